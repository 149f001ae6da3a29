import { PodnetError } from "../../../core/errors.ts";
import type { ProcessEnd } from "../../protocol/main-process.ts";
import { type Loop, type Watch, readable } from "../loop.ts";
import { ProcessInput } from "../process-input.ts";
import type { Streams } from "../streams.ts";
import { type Ended, type Spawned, SysError, pollEvent, sys } from "../sys.ts";
import { KeptOutput } from "../../../core/kept-output.ts";

/** Read of an output at a time: with its header a frame of the tty channel. */
const chunk = 32 * 1024 - 12;
/** Chunks of one output before others have their turn. */
const chunksATurn = 16;
/** As for other processes: what an ended process can have left in a pipe. */
const drainTurns = 40;
/** Request of ioctl(2) that sets a terminal's size. */
const tiocswinsz = 0x5414;

const buffer = new Uint8Array(chunk);

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

export interface KeptProcessOptions {
  readonly spawned: Spawned;
  readonly terminal: boolean;
  /** Standard input is the host's to give; otherwise it is at its end. */
  readonly stdin: boolean;
  /** Bytes of output that are kept for a host that comes back. */
  readonly keptBytes: number;
  readonly streams: Streams;
  /** The process read its input: there is room for more. */
  readonly inputTaken: () => void;
  /** It has ended, and the host that follows has all of its output. */
  readonly ended: (at: number, end: ProcessEnd) => void;
}

/**
 * A process whose output is kept. A host that follows sets the pace of its output: what it does not
 * take waits in the process's pipe. Without such a host the process is not held up: its output is
 * read, and the end of it is kept.
 */
export class KeptProcess {
  readonly pid: number;
  readonly #loop: Loop;
  readonly #options: KeptProcessOptions;
  readonly #input: ProcessInput;
  readonly #terminal: number | undefined;
  readonly #kept: KeptOutput;
  #outputs: Output[];
  #end: ProcessEnd | undefined;
  #follower: Follower | undefined;

  constructor(loop: Loop, options: KeptProcessOptions) {
    const { spawned, terminal, stdin } = options;
    this.#loop = loop;
    this.#options = options;
    this.pid = spawned.pid;
    this.#input = new ProcessInput(loop, spawned.stdin, terminal, options.inputTaken);
    this.#terminal = terminal ? spawned.stdin : undefined;
    this.#kept = new KeptOutput(options.keptBytes);
    this.#outputs = [{ fd: spawned.stdout, stderr: false, watch: undefined }];
    if (spawned.stderr >= 0)
      this.#outputs.push({ fd: spawned.stderr, stderr: true, watch: undefined });
    if (!stdin && !terminal) this.#input.push(new Uint8Array());
  }

  /** How it ended; undefined while it runs. */
  get end(): ProcessEnd | undefined {
    return this.#end;
  }

  /** Bytes written so far. */
  get written(): number {
    return this.#kept.end;
  }

  /** Whether the tty channel should wait for the process to read. */
  get clogged(): boolean {
    return this.#input.clogged;
  }

  /**
   * Sends the output to these streams from `resume` on, and the end of the process after all of it.
   * Answers the first byte that comes.
   */
  follow(stdout: bigint, stderr: bigint, from: number): number {
    if (from > this.#kept.end)
      throw new PodnetError("INVALID_ARGUMENT", `Only ${this.#kept.end} bytes were written`, {
        field: "from",
      });
    const at = Math.max(from, this.#kept.start);
    this.#follower = { stdout, stderr, sent: at };
    return at;
  }

  /** The host is gone. */
  unfollow(): void {
    this.#follower = undefined;
    this.resume();
  }

  /** Signals the process alone. Throws `no such process` after its end. */
  signal(signal: number): void {
    if (this.#end !== undefined) throw new PodnetError("INVALID_ARGUMENT", "no such process");
    sys.kill(this.pid, signal);
  }

  resize(rows: number, columns: number): void {
    if (this.#terminal === undefined) throw new SysError("The process has no terminal", 25);
    const size = Uint16Array.of(rows, columns, 0, 0);
    if (this.#end === undefined)
      sys.ioctlBytes(this.#terminal, tiocswinsz, new Uint8Array(size.buffer));
  }

  /** Data from the host; false when the stream is another's. */
  input(stream: bigint, data: Uint8Array): boolean {
    if (stream !== this.#follower?.stdout) return false;
    if (this.#options.stdin) this.#input.push(data);
    this.#options.inputTaken();
    return true;
  }

  /** The process has ended. */
  ended({ status, signal }: Ended): void {
    if (this.#end !== undefined) return;
    this.#end = signal > 0 ? { signal } : { code: status };
    // What it left in its pipes counts; what others write there later does not.
    for (const output of this.#outputs.slice()) {
      for (let turn = 0; turn < drainTurns && this.#read(output); turn++);
      this.#close(output);
    }
    this.#input.close();
    this.resume();
  }

  /** Goes on with what waited for the host, or needs to wait no more. */
  resume(): void {
    this.#send();
    const free = this.#mayRead();
    for (const output of this.#outputs) {
      if (!free) {
        output.watch?.stop();
        output.watch = undefined;
      } else
        output.watch ??= this.#loop.watch(output.fd, pollEvent.in, (events) => {
          if (readable(events)) this.#take(output);
        });
    }
  }

  /** Whether all that was read is on its way, where anyone wants it. */
  #mayRead(): boolean {
    const follower = this.#follower;
    if (follower === undefined) return true;
    return follower.sent === this.#kept.end && !this.#options.streams.full;
  }

  #take(output: Output): void {
    for (let turn = 0; turn < chunksATurn && this.#mayRead(); turn++) {
      if (!this.#read(output)) break;
      this.#send();
    }
    this.resume();
  }

  /** Reads what is there. False when that is nothing, now or for good. */
  #read(output: Output): boolean {
    try {
      const count = sys.read(output.fd, buffer);
      if (count === undefined) return false;
      if (count > 0) this.#kept.push(output.stderr, buffer.slice(0, count));
      else this.#close(output);
      return count > 0;
    } catch (thrown) {
      // A terminal reports EIO when its other end is closed.
      if (!(thrown instanceof SysError)) throw thrown;
      this.#close(output);
      return false;
    }
  }

  #send(): void {
    const follower = this.#follower;
    const { streams } = this.#options;
    if (follower === undefined) return;
    while (!streams.full) {
      const piece = this.#kept.from(follower.sent);
      if (piece === undefined) break;
      streams.send(piece.stderr ? follower.stderr : follower.stdout, piece.data);
      follower.sent = piece.at + piece.data.length;
    }
    if (this.#end === undefined || follower.sent < this.#kept.end) return;
    this.#follower = undefined;
    this.#options.ended(this.#kept.end, this.#end);
  }

  #close(output: Output): void {
    if (!this.#outputs.includes(output)) return;
    output.watch?.stop();
    this.#outputs = this.#outputs.filter((other) => other !== output);
    // On a terminal the input has the same descriptor, and closes it.
    if (this.#terminal === undefined) sys.close(output.fd);
  }
}
