import { PodnetError } from "../../core/errors.ts";
import { agentContainer, command } from "../protocol/codes.ts";
import {
  type ProcessSpec,
  encodeProcessEvent,
  parseExecCmd,
  parseSignalProcess,
  parseWinSize,
} from "../protocol/process-messages.ts";
import { readText } from "./files.ts";
import type { Loop } from "./loop.ts";
import { type Reply, done } from "./reply.ts";
import { Session } from "./session.ts";
import type { Streams } from "./streams.ts";
import { type Confinement, type Ended, sys } from "./sys.ts";
import { type Accounts, identify } from "./users.ts";

/** The variable PATH of processes that bring none. */
export const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** Processes at a time; each takes descriptors and memory of PID 1. */
const processLimit = 256;

/** Environment of a process: what every one has, then what was asked for. */
export function environment(spec: Pick<ProcessSpec, "terminal" | "envs">, home: string): string[] {
  if (!spec.terminal && spec.envs.length === 0) return [`PATH=${searchPath}`, `HOME=${home}`];
  const all = new Map<string, string>([
    ["PATH", searchPath],
    ["HOME", home],
    ...(spec.terminal ? [["TERM", "xterm"] as const] : []),
    ...spec.envs.map(({ env, value }) => [env, value] as const),
  ]);
  return Array.from(all, ([key, value]) => `${key}=${value}`);
}

/** Where a process runs that EXECCMD starts. */
export interface ExecPlace {
  readonly accounts: Accounts;
  readonly confinement?: Confinement;
  /** What the container's own process has. */
  readonly envs: ProcessSpec["envs"];
  readonly groups: readonly number[];
  readonly directory: string;
}

const ownPlace: ExecPlace = {
  accounts: {
    passwd: () => readText("/etc/passwd") ?? "",
    group: () => readText("/etc/group") ?? "",
  },
  envs: [],
  groups: [],
  directory: "",
};

/** The processes that EXECCMD did not start. */
interface Others {
  /** Undefined for a container that does not run. */
  placeOf(container: string): ExecPlace | undefined;
  /** Where programs run that are in no container; undefined: where the agent is. */
  mainPlace(): Confinement | undefined;
  ended(child: Ended): void;
  /** Whether the tty channel should wait for them to read. */
  clogged(): boolean;
}

/**
 * Processes started by EXECCMD, in a container or in the agent's own namespaces: the container
 * hyperstart calls `hyperstart`.
 */
export class Processes {
  readonly #loop: Loop;
  readonly #streams: () => Streams;
  readonly #report: (code: number, payload: Uint8Array) => void;
  readonly #byPid = new Map<number, Session>();
  readonly #byStream = new Map<bigint, Session>();
  readonly #others: Others;

  constructor(
    loop: Loop,
    streams: () => Streams,
    report: (code: number, payload: Uint8Array) => void,
    others: Others,
  ) {
    this.#others = others;
    this.#loop = loop;
    this.#streams = streams;
    this.#report = report;
  }

  exec(payload: Uint8Array): Reply {
    const { container, process: spec } = parseExecCmd(payload);
    const place = container === agentContainer ? this.#ownPlace() : this.#others.placeOf(container);
    if (place === undefined) throw noSuch("container");
    this.#checkFree(container, spec);
    const identity = identify(spec, place.accounts);
    const envs = place.envs.length === 0 ? spec.envs : [...place.envs, ...spec.envs];
    const spawned = sys.spawn({
      args: spec.args,
      env: environment({ terminal: spec.terminal, envs }, identity.home),
      directory: spec.workdir ?? place.directory,
      uid: identity.uid,
      gid: identity.gid,
      groups:
        place.groups.length === 0
          ? identity.groups
          : [...new Set([...identity.groups, ...place.groups])],
      terminal: spec.terminal,
      ...(place.confinement === undefined ? {} : { confinement: place.confinement }),
    });
    const session = new Session(this.#loop, this.#streams(), container, spec, spawned, {
      finished: (status) => this.#finished(session, status),
      inputTaken: () => this.unclog(),
    });
    this.#byPid.set(session.pid, session);
    this.#byStream.set(spec.stdio, session);
    return done;
  }

  signal(payload: Uint8Array): Reply {
    const { container, process: id, signal } = parseSignalProcess(payload);
    sys.kill(-this.#find(container, id).pid, signal);
    return done;
  }

  resize(payload: Uint8Array): Reply {
    const { target, row, column } = parseWinSize(payload);
    const session =
      target.kind === "stream"
        ? this.#byStream.get(target.stream)
        : this.#find(target.container, target.process);
    if (session === undefined) throw noSuch("process");
    session.resize(row, column);
    return done;
  }

  /** Data from the host; false for a stream without a process. */
  input(stream: bigint, data: Uint8Array): boolean {
    const session = this.#byStream.get(stream);
    if (session === undefined) return false;
    session.input(data);
    if (session.clogged || this.#streams().held) this.pace();
    return true;
  }

  /** There may be room for input again; costs next to nothing while there was. */
  unclog(): void {
    if (this.#streams().held) this.pace();
  }

  /**
   * Streams have no flow control of their own: one process that leaves its input unread holds up
   * the channel.
   */
  pace(): void {
    const clogged = Array.from(this.#byPid.values()).some((session) => session.clogged);
    this.#streams().reading(!clogged && !this.#others.clogged());
  }

  /** There is room for output again. */
  resume(): void {
    for (const session of this.#byPid.values()) session.resume();
  }

  /** Collects children that have ended: ours, and as PID 1 everyone's. */
  reap(): void {
    for (let child = sys.reap(); child !== undefined; child = sys.reap()) {
      const session = this.#byPid.get(child.pid);
      if (session === undefined) this.#others.ended(child);
      else session.ended(child.status);
    }
  }

  #finished(session: Session, status: number): void {
    const { container, spec } = session;
    this.#byPid.delete(session.pid);
    this.#byStream.delete(spec.stdio);
    this.unclog();
    this.#report(
      command.processAsyncEvent,
      encodeProcessEvent({ container, process: spec.id, event: "finished", status }),
    );
  }

  #find(container: string, id: string): Session {
    for (const session of this.#byPid.values())
      if (session.container === container && session.spec.id === id) return session;
    throw noSuch("process");
  }

  #checkFree(container: string, spec: ProcessSpec): void {
    const refuse = (message: string): never => {
      throw new PodnetError("INVALID_ARGUMENT", message);
    };
    if (!this.#streams().isOpen) refuse("The tty channel is not open");
    if (this.#byPid.size >= processLimit) refuse(`${processLimit} processes run already`);
    if (this.#byStream.has(spec.stdio)) refuse(`Stream ${spec.stdio} is in use`);
    if (spec.id === "") return;
    for (const other of this.#byPid.values())
      if (other.container === container && other.spec.id === spec.id)
        refuse(`Process "${spec.id}" runs already`);
  }

  #ownPlace(): ExecPlace {
    const confinement = this.#others.mainPlace();
    return confinement === undefined ? ownPlace : { ...ownPlace, confinement };
  }
}

export const noSuch = (what: "container" | "process"): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `no such ${what}`);

/** Files are the agent's own alone. */
export function onlyAgent(container: string): void {
  if (container !== agentContainer) throw noSuch("container");
}
