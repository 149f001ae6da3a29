import { PodnetError } from "../../../core/errors.ts";
import { command } from "../../protocol/codes.ts";
import {
  type MainProcessSpec,
  encodeFollowedMain,
  encodeMainEnded,
  parseFollowMain,
  parseResizeMain,
  parseSignalMain,
  parseStartMain,
} from "../../protocol/main-process.ts";
import { writeHostFiles } from "./host-files.ts";
import { makeDirectories, readText } from "../files.ts";
import type { Loop } from "../loop.ts";
import { hostname } from "../machine.ts";
import { environment } from "../processes.ts";
import { leaveInitPlace, makeInitPlace } from "./init-place.ts";
import { KeptProcess } from "./kept-process.ts";
import { refuseUnlessProgram } from "./program.ts";
import { type Reply, done } from "../reply.ts";
import type { Streams } from "../streams.ts";
import { type Confinement, type Ended, sys } from "../sys.ts";
import { identify } from "../users.ts";

/**
 * Bytes of output that are kept for a host that comes back: more than was on its way to the one
 * before.
 */
const keptBytes = 512 * 1024;

const interrupt = 2;

/** What a process with kept output needs of the agent. */
export interface Around {
  readonly streams: () => Streams;
  readonly report: (code: number, payload: Uint8Array) => void;
  /** The process read its input: there is room for more. */
  readonly inputTaken: () => void;
}

interface Running {
  readonly spec: MainProcessSpec;
  readonly process: KeptProcess;
}

/** `user` or `user:group`, each a name or a number; root where no user is named. */
export function splitUser(text: string | undefined): { user: string; group?: string } {
  const [user = "", group = ""] = (text ?? "").split(":", 2);
  return { user: user === "" ? "0" : user, ...(group === "" ? {} : { group }) };
}

/** The pod's main process. */
export class MainProcess {
  readonly #loop: Loop;
  readonly #isInit: boolean;
  readonly #around: Around;
  #main: Running | undefined;

  constructor(loop: Loop, isInit: boolean, around: Around) {
    this.#loop = loop;
    this.#isInit = isInit;
    this.#around = around;
  }

  /** Whether the tty channel should wait for the process to read. */
  get clogged(): boolean {
    return this.#main?.process.clogged ?? false;
  }

  /** Starts it. Refuses with `ENOENT` or `EACCES` what is no program, and a second one. */
  start(payload: Uint8Array): Reply {
    const spec = parseStartMain(payload);
    if (this.#main !== undefined) {
      if (this.#main.spec.id === spec.id) return done;
      if (this.#main.process.end === undefined)
        throw new PodnetError("INVALID_ARGUMENT", "The main process runs already");
    }
    const identity = identify(
      { ...splitUser(spec.user), additionalGroups: [] },
      {
        passwd: () => readText("/etc/passwd") ?? "",
        group: () => readText("/etc/group") ?? "",
      },
    );
    if (this.#isInit) writeHostFiles(hostname(), spec.addresses);
    makeDirectories(spec.workdir);
    const env = environment(
      { terminal: spec.terminal, envs: [{ env: "HOSTNAME", value: hostname() }, ...spec.env] },
      identity.home,
    );
    refuseUnlessProgram(spec.args[0] ?? "", env, spec.workdir);
    const { args, workdir: directory, terminal, stdin } = spec;
    const confinement = spec.init === true ? makeInitPlace() : undefined;
    const request = { args, env, directory, ...identity, terminal };
    const spawned = sys.spawn(confinement === undefined ? request : { ...request, confinement });
    if (confinement !== undefined) leaveInitPlace();
    const { inputTaken, streams, report } = this.#around;
    const process = new KeptProcess(this.#loop, {
      spawned,
      terminal,
      stdin,
      keptBytes,
      streams: streams(),
      inputTaken,
      ended: (at, end) => report(command.mainEnded, encodeMainEnded({ id: spec.id, at, end })),
    });
    this.#main = { spec, process };
    if (terminal) process.resize(spec.rows ?? 24, spec.columns ?? 80);
    process.resume();
    return done;
  }

  /** Sends the output to these streams from now on, and the end of the process after all of it. */
  follow(payload: Uint8Array): Reply {
    const { stdout, stderr, from } = parseFollowMain(payload);
    const { spec, process } = this.#required();
    const at = process.follow(stdout, stderr, from);
    return { payload: encodeFollowedMain({ id: spec.id, at }), after: () => process.resume() };
  }

  /** The host is gone. */
  unfollow(): void {
    this.#main?.process.unfollow();
  }

  signal(payload: Uint8Array): Reply {
    const signal = parseSignalMain(payload);
    this.#required().process.signal(signal);
    return done;
  }

  resize(payload: Uint8Array): Reply {
    const { rows, columns } = parseResizeMain(payload);
    this.#required().process.resize(rows, columns);
    return done;
  }

  /** Data from the host; false when the stream is another's. */
  input(stream: bigint, data: Uint8Array): boolean {
    return this.#main?.process.input(stream, data) ?? false;
  }

  /** A process that EXECCMD did not start has ended. */
  ended(child: Ended): void {
    if (this.#main?.process.pid !== child.pid) return;
    const { spec, process } = this.#main;
    // So ends a process namespace that was powered off: pid_namespaces(7).
    const isOff = spec.init === true && child.signal === interrupt;
    process.ended(isOff ? { ...child, status: 0, signal: 0 } : child);
  }

  /** Where other programs run, for them to see what it sees; undefined: where the agent is. */
  get place(): Confinement | undefined {
    if (this.#main?.spec.init !== true || this.#main.process.end !== undefined) return undefined;
    const place = { kind: "joined", pid: this.#main.process.pid } as const;
    return { place, capabilities: undefined, noNewPrivileges: false, group: undefined };
  }

  /** Goes on with what waited for the host, or needs to wait no more. */
  resume(): void {
    this.#main?.process.resume();
  }

  #required(): Running {
    if (this.#main !== undefined) return this.#main;
    throw new PodnetError("INVALID_ARGUMENT", "No main process was started");
  }
}
