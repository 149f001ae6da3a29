import { PodnetError } from "../../../core/errors.ts";
import { command } from "../../protocol/codes.ts";
import {
  type MainProcessSpec,
  type ProcessEnd,
  encodeFollowedMain,
  encodeMainEnded,
  parseFollowMain,
  parseResizeMain,
  parseSignalMain,
  parseStartMain,
} from "../../protocol/main-process.ts";
import { writeHostFiles } from "./host-files.ts";
import { makeDirectories, readText } from "../files.ts";
import { KeptOutput } from "./kept-output.ts";
import { type Loop, type Watch, readable } from "../loop.ts";
import { hostname } from "../machine.ts";
import { environment } from "../processes.ts";
import { refuseUnlessProgram } from "./program.ts";
import { ProcessInput } from "../process-input.ts";
import { type Reply, done } from "../reply.ts";
import type { Streams } from "../streams.ts";
import { type Ended, SysError, pollEvent, sys } from "../sys.ts";
import { identify } from "../users.ts";

/**
 * Bytes of output that are kept for a host that comes back: more than was on its way to the one
 * before.
 */
const keptBytes = 512 * 1024;
/** Read of an output at a time: with its header a frame of the tty channel. */
const chunk = 32 * 1024 - 12;
/** Chunks of one output before others have their turn. */
const chunksATurn = 16;
/** As for other processes: what an ended process can have left in a pipe. */
const drainTurns = 40;
/** Request of ioctl(2) that sets a terminal's size. */
const tiocswinsz = 0x5414;

interface Output {
  readonly fd: number;
  readonly stderr: boolean;
  watch: Watch | undefined;
}

/** The host that follows the output. */
interface Follower {
  readonly stdout: bigint;
  readonly stderr: bigint;
  /** Bytes of the output that are on their way to it, or were not kept for it. */
  sent: number;
}

interface Around {
  readonly streams: () => Streams;
  readonly report: (code: number, payload: Uint8Array) => void;
  /** The process read its input: there is room for more. */
  readonly inputTaken: () => void;
}

interface Running {
  readonly spec: MainProcessSpec;
  readonly pid: number;
  readonly input: ProcessInput;
  readonly terminal: number | undefined;
  readonly kept: KeptOutput;
  outputs: Output[];
  end: ProcessEnd | undefined;
}

/**
 * The pod's main process. A host that follows sets the pace of its output: what it does not take
 * waits in the process's pipe. Without such a host the process is not held up: its output is read,
 * and the end of it is kept.
 */
export class MainProcess {
  readonly #loop: Loop;
  readonly #isInit: boolean;
  readonly #around: Around;
  readonly #buffer = new Uint8Array(chunk);
  #main: Running | undefined;
  #follower: Follower | undefined;

  constructor(loop: Loop, isInit: boolean, around: Around) {
    this.#loop = loop;
    this.#isInit = isInit;
    this.#around = around;
  }

  /** Whether the tty channel should wait for the process to read. */
  get clogged(): boolean {
    return this.#main?.input.clogged ?? false;
  }

  /** Starts it. Refuses with `ENOENT` or `EACCES` what is no program, and a second one. */
  start(payload: Uint8Array): Reply {
    const spec = parseStartMain(payload);
    if (this.#main !== undefined) {
      if (this.#main.spec.id === spec.id) return done;
      if (this.#main.end === undefined)
        throw new PodnetError("INVALID_ARGUMENT", "The main process runs already");
    }
    const [user = "", group = ""] = (spec.user ?? "").split(":", 2);
    const asked = {
      user: user === "" ? "0" : user,
      ...(group === "" ? {} : { group }),
      additionalGroups: [],
    };
    const identity = identify(asked, {
      passwd: () => readText("/etc/passwd") ?? "",
      group: () => readText("/etc/group") ?? "",
    });
    if (this.#isInit) writeHostFiles(hostname(), spec.addresses);
    makeDirectories(spec.workdir);
    const env = environment(
      { terminal: spec.terminal, envs: [{ env: "HOSTNAME", value: hostname() }, ...spec.env] },
      identity.home,
    );
    refuseUnlessProgram(spec.args[0] ?? "", env, spec.workdir);
    const { args, workdir: directory, terminal } = spec;
    const spawned = sys.spawn({ args, env, directory, ...identity, terminal });
    const outputs = [{ fd: spawned.stdout, stderr: false, watch: undefined }];
    const main: Running = {
      spec,
      pid: spawned.pid,
      input: new ProcessInput(this.#loop, spawned.stdin, terminal, this.#around.inputTaken),
      terminal: terminal ? spawned.stdin : undefined,
      kept: new KeptOutput(keptBytes),
      outputs:
        spawned.stderr < 0
          ? outputs
          : [...outputs, { fd: spawned.stderr, stderr: true, watch: undefined }],
      end: undefined,
    };
    this.#main = main;
    this.#follower = undefined;
    if (!spec.stdin && !terminal) main.input.push(new Uint8Array());
    if (main.terminal !== undefined) setSize(main.terminal, spec.rows ?? 24, spec.columns ?? 80);
    this.resume();
    return done;
  }

  /** Sends the output to these streams from now on, and the end of the process after all of it. */
  follow(payload: Uint8Array): Reply {
    const { stdout, stderr, from } = parseFollowMain(payload);
    const { spec, kept } = this.#required();
    if (from > kept.end)
      throw new PodnetError("INVALID_ARGUMENT", `Only ${kept.end} bytes were written`, {
        field: "from",
      });
    const at = Math.max(from, kept.start);
    this.#follower = { stdout, stderr, sent: at };
    return { payload: encodeFollowedMain({ id: spec.id, at }), after: () => this.resume() };
  }

  /** The host is gone. */
  unfollow(): void {
    this.#follower = undefined;
    this.resume();
  }

  signal(payload: Uint8Array): Reply {
    const signal = parseSignalMain(payload);
    const { pid, end } = this.#required();
    if (end !== undefined) throw new PodnetError("INVALID_ARGUMENT", "no such process");
    sys.kill(pid, signal);
    return done;
  }

  resize(payload: Uint8Array): Reply {
    const { rows, columns } = parseResizeMain(payload);
    const { terminal, end } = this.#required();
    if (terminal === undefined) throw new SysError("The process has no terminal", 25);
    if (end === undefined) setSize(terminal, rows, columns);
    return done;
  }

  /** Data from the host; false when the stream is another's. */
  input(stream: bigint, data: Uint8Array): boolean {
    if (this.#main === undefined || stream !== this.#follower?.stdout) return false;
    if (this.#main.spec.stdin) this.#main.input.push(data);
    this.#around.inputTaken();
    return true;
  }

  /** A process that EXECCMD did not start has ended. */
  ended({ pid, status, signal }: Ended): void {
    const main = this.#main;
    if (main === undefined || main.pid !== pid || main.end !== undefined) return;
    main.end = signal > 0 ? { signal } : { code: status };
    // What it left in its pipes counts; what others write there later does not.
    for (const output of main.outputs)
      for (let turn = 0; turn < drainTurns && this.#read(main, output); turn++);
    for (const output of main.outputs) this.#close(main, output);
    main.input.close();
    this.resume();
  }

  /** Goes on with what waited for the host, or needs to wait no more. */
  resume(): void {
    const main = this.#main;
    if (main === undefined) return;
    this.#send(main);
    const free = this.#mayRead(main);
    for (const output of main.outputs) {
      if (!free) {
        output.watch?.stop();
        output.watch = undefined;
      } else
        output.watch ??= this.#loop.watch(output.fd, pollEvent.in, (events) => {
          if (readable(events)) this.#take(main, output);
        });
    }
  }

  /** Whether all that was read is on its way, where anyone wants it. */
  #mayRead({ kept }: Running): boolean {
    const follower = this.#follower;
    return follower === undefined || (follower.sent === kept.end && !this.#around.streams().full);
  }

  #take(main: Running, output: Output): void {
    for (let turn = 0; turn < chunksATurn && this.#mayRead(main); turn++) {
      if (!this.#read(main, output)) break;
      this.#send(main);
    }
    this.resume();
  }

  /** Reads what is there. False when that is nothing, now or for good. */
  #read(main: Running, output: Output): boolean {
    try {
      const count = sys.read(output.fd, this.#buffer);
      if (count === undefined) return false;
      if (count > 0) main.kept.push(output.stderr, this.#buffer.slice(0, count));
      else this.#close(main, output);
      return count > 0;
    } catch (thrown) {
      // A terminal reports EIO when its other end is closed.
      if (!(thrown instanceof SysError)) throw thrown;
      this.#close(main, output);
      return false;
    }
  }

  #send(main: Running): void {
    const follower = this.#follower;
    const streams = this.#around.streams();
    if (follower === undefined) return;
    while (!streams.full) {
      const piece = main.kept.from(follower.sent);
      if (piece === undefined) break;
      streams.send(piece.stderr ? follower.stderr : follower.stdout, piece.data);
      follower.sent = piece.at + piece.data.length;
    }
    if (main.end === undefined || follower.sent < main.kept.end) return;
    this.#follower = undefined;
    const { spec, kept, end } = main;
    this.#around.report(command.mainEnded, encodeMainEnded({ id: spec.id, at: kept.end, end }));
  }

  #close(main: Running, output: Output): void {
    output.watch?.stop();
    main.outputs = main.outputs.filter((other) => other !== output);
    // On a terminal the input has the same descriptor, and closes it.
    if (main.terminal === undefined) sys.close(output.fd);
  }

  #required(): Running {
    if (this.#main !== undefined) return this.#main;
    throw new PodnetError("INVALID_ARGUMENT", "No main process was started");
  }
}

function setSize(fd: number, rows: number, columns: number): void {
  const size = Uint16Array.of(rows, columns, 0, 0);
  sys.ioctlBytes(fd, tiocswinsz, new Uint8Array(size.buffer));
}
