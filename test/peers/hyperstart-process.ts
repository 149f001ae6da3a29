import type { Program } from "./hyperstart-programs.ts";

/** Sizes of the agent's buffer for a process's stdin and of the kernel's pipe behind it. */
const bufferSize = 512;
const pipePages = 16;
const pageSize = 4096;

/** What the agent is asked to run, its stream numbers being the host's. */
export interface ProcessSpec {
  readonly container: string;
  readonly id: string;
  readonly stdio: bigint;
  readonly stderr: bigint;
  readonly terminal: boolean;
  readonly args: readonly string[];
  readonly envs: readonly { readonly env: string; readonly value: string }[];
  readonly workdir: string;
}

/** Called by a process; the agent gets to it when it is not held up. */
export interface ProcessEvents {
  output(seq: bigint, data: Buffer): void;
  exit(process: GuestProcess, status: number): void;
}

/**
 * Stdin as hyperstart feeds it: 512 bytes wait for room in the pipe, the rest is lost without a
 * word.
 */
class Stdin {
  #buffer = Buffer.alloc(0);
  #pipe = Buffer.alloc(0);
  /** Bytes in each page of the pipe. */
  #pages: number[] = [];
  #ended = false;
  #wake: (() => void) | undefined;
  lost = 0;

  /** One frame of the host. */
  offer(data: Buffer): void {
    const kept = data.subarray(0, bufferSize - this.#buffer.length);
    this.lost += data.length - kept.length;
    this.#buffer = Buffer.concat([this.#buffer, kept]);
    this.#fill();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  /** What the process gets from read(2); undefined at the end. */
  async read(): Promise<Buffer | undefined> {
    while (this.#pipe.length === 0) {
      if (this.#ended) return undefined;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    const data = this.#pipe;
    this.#pipe = Buffer.alloc(0);
    this.#pages = [];
    this.#fill();
    return data;
  }

  #fill(): void {
    const { length } = this.#buffer;
    const last = this.#pages.at(-1);
    // As the kernel does it: what does not fit into the last page begins another one, and a small
    // write is whole or not at all.
    if (last !== undefined && last + length <= pageSize)
      this.#pages[this.#pages.length - 1] = last + length;
    else if (this.#pages.length < pipePages) this.#pages.push(length);
    else return;
    this.#pipe = Buffer.concat([this.#pipe, this.#buffer]);
    this.#buffer = Buffer.alloc(0);
    this.#wake?.();
  }
}

/** A process of the simulated guest. */
export class GuestProcess {
  readonly spec: ProcessSpec;
  readonly stdin = new Stdin();
  readonly #events: ProcessEvents;
  /** Rows and columns of the last WINSIZE. */
  size: readonly [number, number] | undefined;
  status: number | undefined;

  constructor(spec: ProcessSpec, events: ProcessEvents) {
    this.spec = spec;
    this.#events = events;
  }

  start(program: Program): void {
    const { spec } = this;
    const io = {
      read: () => this.stdin.read(),
      stdout: (data: Buffer | string) => this.#write(spec.stdio, data),
      stderr: (data: Buffer | string) =>
        this.#write(spec.terminal ? spec.stdio : spec.stderr, data),
    };
    void (async () => {
      this.#end(await program(spec.args, io));
    })();
  }

  /** A signal ends it at once; no simulated program catches any. */
  signal(number: number): void {
    this.#end(128 + number);
  }

  #write(seq: bigint, data: Buffer | string): void {
    if (this.status !== undefined) return;
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    // A terminal makes CR LF of each LF.
    const shown = this.spec.terminal
      ? Buffer.from(bytes.toString("latin1").replaceAll("\n", "\r\n"), "latin1")
      : bytes;
    if (shown.length > 0) this.#events.output(seq, shown);
  }

  #end(status: number): void {
    if (this.status !== undefined) return;
    this.status = status;
    this.#events.exit(this, status);
  }
}
