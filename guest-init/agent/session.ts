import type { ProcessSpec } from "../protocol/process-messages.ts";
import { encodeTtyFrame } from "../protocol/tty-frame.ts";
import { type Loop, type Watch, readable } from "./loop.ts";
import { ProcessInput } from "./process-input.ts";
import type { Streams } from "./streams.ts";
import { type Spawned, SysError, pollEvent, sys } from "./sys.ts";

/**
 * Turns of reading in which a process that has ended left all of its output: a pipe holds at most 1
 * MiB (pipe-max-size), unless root made it larger. Later output is of others, who may never stop.
 */
const drainTurns = 32;
/**
 * How long a pipe may fill, milliseconds, and how full it should be then, bytes: a large one takes
 * 1 MiB, and whoever has filled it waits.
 */
const fill = { leastMs: 1, mostMs: 16, from: 512 * 1024, to: 896 * 1024 } as const;
/** Request of ioctl(2) that sets a terminal's size. */
const tiocswinsz = 0x5414;

interface Output {
  readonly fd: number;
  /** The frame that ends its stream. */
  readonly end: Uint8Array;
  watch: Watch | undefined;
  /** How long its pipe fills before it is read again, milliseconds. */
  fillMs: number;
}

export interface SessionEvents {
  /** The process has ended and all it wrote is on its way. The last event. */
  finished(status: number): void;
  /** It read its input: there is room for more. */
  inputTaken(): void;
}

/** One process with its input and output. */
export class Session {
  readonly container: string;
  readonly spec: ProcessSpec;
  readonly pid: number;
  readonly #loop: Loop;
  readonly #streams: Streams;
  readonly #events: SessionEvents;
  readonly #outputs: Output[];
  readonly #stdin: number;
  readonly #input: ProcessInput;
  readonly #end: Uint8Array;
  #status: number | undefined;

  constructor(
    loop: Loop,
    streams: Streams,
    container: string,
    spec: ProcessSpec,
    spawned: Spawned,
    events: SessionEvents,
  ) {
    this.#loop = loop;
    this.#streams = streams;
    this.container = container;
    this.spec = spec;
    this.pid = spawned.pid;
    this.#events = events;
    this.#stdin = spawned.stdin;
    this.#input = new ProcessInput(loop, spawned.stdin, spec.terminal, () => events.inputTaken());
    this.#end = encodeTtyFrame(spec.stdio);
    this.#outputs = [
      { fd: spawned.stdout, end: this.#end, watch: undefined, fillMs: fill.leastMs },
    ];
    if (spawned.stderr >= 0) {
      const end = encodeTtyFrame(spec.stderr);
      this.#outputs.push({ fd: spawned.stderr, end, watch: undefined, fillMs: fill.leastMs });
    }
    this.resume();
  }

  /** Whether the tty channel should wait for this process to read. */
  get clogged(): boolean {
    return this.#input.clogged;
  }

  /** Data for standard input; empty ends it. */
  input(data: Uint8Array): void {
    this.#input.push(data);
  }

  resize(rows: number, columns: number): void {
    if (!this.spec.terminal) throw new SysError("The process has no terminal", 25);
    const size = Uint16Array.of(rows, columns, 0, 0);
    sys.ioctlBytes(this.#stdin, tiocswinsz, new Uint8Array(size.buffer));
  }

  /** Reads output again after the host was slow. */
  resume(): void {
    if (this.#status !== undefined) {
      this.#drain();
      return;
    }
    for (const output of this.#outputs) {
      output.watch ??= this.#loop.watch(output.fd, pollEvent.in, (events) => {
        if (readable(events) && !this.#read(output)) this.#close(output);
      });
    }
  }

  /**
   * The process is gone; what it left in its pipes still counts, what others write there later does
   * not.
   */
  ended(status: number): void {
    this.#status = status;
    this.#drain();
  }

  #drain(): void {
    for (const output of this.#outputs.slice()) {
      let more = true;
      for (let turn = 0; more && turn < drainTurns; turn++) {
        if (this.#streams.full) return;
        more = this.#read(output);
      }
      this.#close(output);
    }
    this.#input.close();
    this.#streams.end(this.#end);
    this.#events.finished(this.#status ?? 0);
  }

  /**
   * Passes on what is there. False when there is nothing more: for good, or (of an ended process)
   * now.
   */
  #read(output: Output): boolean {
    if (this.#streams.full) {
      output.watch?.stop();
      output.watch = undefined;
      return true;
    }
    try {
      const now = this.#streams.forward(output.fd, output.end);
      if (now.from === "filling" && this.#status === undefined) this.#letFill(output, now.moved);
      else if (now.from === "empty") output.fillMs = fill.leastMs;
      return now.from === "open" || (now.from !== "ended" && this.#status === undefined);
    } catch (thrown) {
      // A terminal reports EIO when its other end is closed.
      if (thrown instanceof SysError) return false;
      throw thrown;
    }
  }

  /**
   * Lets a process that writes much fill its pipe before it is read again: read at each of its
   * writes, the guest would spend its time on switching between the two. The pipe's end is seen at
   * once. `moved` is what it wrote since it was read before.
   */
  #letFill(output: Output, moved: number): void {
    const { fillMs } = output;
    if (moved < fill.from) output.fillMs = Math.min(2 * fillMs, fill.mostMs);
    else if (moved > fill.to) output.fillMs = Math.max(fillMs / 2, fill.leastMs);
    output.watch?.events(0);
    this.#loop.after(fillMs, () => this.#readFilled(output));
  }

  #readFilled(output: Output): void {
    // Without a watch it is closed, or waits for room. All of an ended process is read elsewhere.
    if (output.watch === undefined || this.#status !== undefined) return;
    output.watch.events(pollEvent.in);
    if (!this.#read(output)) this.#close(output);
  }

  #close(output: Output): void {
    output.watch?.stop();
    output.watch = undefined;
    this.#outputs.splice(this.#outputs.indexOf(output), 1);
    if (output.fd !== this.#stdin) sys.close(output.fd);
  }
}
