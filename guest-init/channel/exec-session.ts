import { guarded } from "../../core/guard.ts";
import { PodnetError } from "../../core/errors.ts";
import { noBytes } from "../protocol/bytes.ts";
import { abortError } from "../../core/aborting.ts";
import { ExecQueue } from "./exec-queue.ts";
import type { ExecEvent, ExecSession } from "./guest.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import type { Tty } from "./tty.ts";

const SIGKILL = 9;

/** How standard input goes to this kind of guest. */
export interface InputStyle {
  /** Most data in one frame. */
  readonly frame: number;
  /**
   * Bytes after which the guest is pinged before more is sent; undefined leaves the pace to the
   * socket. hyperstart discards silently what its 512-byte buffer does not hold: its answer shows
   * that it has been round its event loop since.
   */
  readonly pingEvery: number | undefined;
  /** Most bytes that one process gets, unless on a terminal; undefined sets no bound. */
  readonly most?: number;
}

export interface ProcessSessionOptions {
  readonly id: string;
  /** Its name in the protocol. */
  readonly process: string;
  readonly stdio: bigint;
  /** 0 on a terminal. */
  readonly stderr: bigint;
  readonly input: InputStyle;
  readonly tty: Tty;
  readonly limits: ChannelLimits;
  readonly time: GuestTime;
  readonly signal: AbortSignal;
  /** Whether other sessions share the channel. */
  readonly othersLive: () => boolean;
  readonly resize: (rows: number, columns: number) => Promise<void>;
  readonly kill: (signal: number) => Promise<void>;
  readonly ping: () => Promise<void>;
  readonly gone: () => void;
}

/**
 * Where a process is: the end of its output and its exit status come on two channels, in any order.
 */
type Phase =
  | { readonly kind: "running" }
  /** Its output is complete; the exit status is on its way. */
  | { readonly kind: "drained" }
  /** It has ended; some of its output may be on its way. */
  | { readonly kind: "finished"; readonly code: number }
  /** Ended; with a reason when it was not by its exit. */
  | { readonly kind: "over"; readonly reason: PodnetError | undefined };

/**
 * One process. Output waits in a bounded queue; when that is full the whole tty channel is paused,
 * since the guest has one pipe for all. A reader may hold up others for `execStallMs`, then its
 * session is ended and its process killed; alone on the channel it may take for ever.
 */
export class ProcessSession implements ExecSession {
  readonly id: string;
  readonly process: string;
  readonly stdio: bigint;
  readonly stderr: bigint;
  readonly events: ExecQueue;
  readonly #options: ProcessSessionOptions;
  readonly #onAbort: () => void;
  #phase: Phase = { kind: "running" };
  #writing: Promise<void> = Promise.resolve();
  #sinceSync = 0;
  #given = 0;
  #inputClosed = false;
  #stallTimer: NodeJS.Timeout | undefined;
  #eofTimer: Disposable | undefined;

  constructor(options: ProcessSessionOptions) {
    this.#options = options;
    this.id = options.id;
    this.process = options.process;
    this.stdio = options.stdio;
    this.stderr = options.stderr;
    this.events = new ExecQueue(
      () => this.#taken(),
      () =>
        this.abandon(this.#error("CANCELLED", "The client stopped reading the process's output"), {
          kill: true,
        }),
    );
    options.tty.listen(this.stdio, (data) => this.#output("stdout", data));
    if (this.stderr !== 0n) options.tty.listen(this.stderr, (data) => this.#output("stderr", data));
    this.#onAbort = () => this.abandon(abortError(options.signal, "The process"), { kill: true });
    options.signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  write(data: Uint8Array): Promise<void> {
    return this.#queued(async () => {
      const { frame, pingEvery } = this.#options.input;
      this.#requireRoom(data.length);
      for (let at = 0; at < data.length; at += frame) {
        if (this.#isOver()) return;
        const part = data.subarray(at, at + frame);
        await this.#options.tty.write(this.stdio, part);
        this.#sinceSync += part.length;
        if (pingEvery === undefined || this.#sinceSync < pingEvery) continue;
        this.#sinceSync = 0;
        await this.#options.ping();
      }
    });
  }

  /**
   * Checks that `more` bytes provably arrive. Throws `UNSUPPORTED` before any is sent; the writer
   * then ends the process. Input typed into a terminal has no bound: people type as the program
   * reads.
   */
  #requireRoom(more: number): void {
    const { input, stderr } = this.#options;
    if (input.most === undefined || stderr === 0n || this.#isOver()) return;
    this.#given += more;
    if (this.#given <= input.most) return;
    throw new PodnetError(
      "UNSUPPORTED",
      `A hyperstart takes at most ${input.most} bytes of input for one program`,
      {
        hint: "Copy files with `podnet cp`, give the input in parts, or use an image with podnet's own agent",
        details: { process: this.process, most_bytes: input.most },
      },
    );
  }

  closeInput(): Promise<void> {
    return this.#queued(async () => {
      if (this.#isOver() || this.#inputClosed) return;
      this.#inputClosed = true;
      await this.#options.tty.write(this.stdio, noBytes);
    });
  }

  resize(rows: number, columns: number): Promise<void> {
    return this.#options.resize(rows, columns);
  }

  signal(number: number): Promise<void> {
    return this.#options.kill(number);
  }

  lend(): void {
    this.events.lend();
  }

  /** The process has ended with this status. */
  finished(code: number): void {
    if (this.#phase.kind === "drained") this.#exit(code);
    else if (this.#phase.kind === "running") {
      this.#phase = { kind: "finished", code };
      this.#awaitEof(code);
    }
  }

  /** Ends the session without an exit: what is queued is still read, then `reason` is thrown. */
  abandon(reason: PodnetError, { kill }: { readonly kill: boolean }): void {
    if (this.#phase.kind === "over") return;
    // The answer does not matter any more, and the guest may be gone.
    if (kill && this.#phase.kind !== "finished") this.#options.kill(SIGKILL).catch(() => {});
    this.#over(reason);
    this.events.fail(reason);
  }

  /** One write after the other, in the order of the calls. */
  #queued(body: () => Promise<void>): Promise<void> {
    const turn = this.#writing.then(body);
    this.#writing = turn.catch(() => {});
    return turn;
  }

  #output(kind: "stdout" | "stderr", data: Uint8Array): void {
    // hyperstart ends the stdio stream alone, after both have been written; an end of stderr says
    // nothing.
    if (data.length === 0) {
      if (kind === "stderr") return;
      if (this.#phase.kind === "finished") this.#exit(this.#phase.code);
      else if (this.#phase.kind === "running") this.#phase = { kind: "drained" };
      return;
    }
    this.#deliver({ kind, data });
    if (this.#phase.kind === "finished") this.#awaitEof(this.#phase.code);
  }

  #deliver(event: ExecEvent): void {
    this.events.push(event);
    if (this.events.cost < this.#options.limits.execQueue || this.#stallTimer !== undefined) return;
    this.#options.tty.hold(this);
    this.#watchStall();
  }

  #taken(): void {
    if (this.#stallTimer === undefined || this.events.cost > this.#options.limits.execQueue / 2)
      return;
    this.#release();
  }

  #watchStall(): void {
    this.#stallTimer = setTimeout(
      guarded("guest", () => {
        if (!this.#options.othersLive()) return this.#watchStall();
        this.abandon(
          this.#error("DEADLINE_EXCEEDED", "The process's output was not read while others waited"),
          { kill: true },
        );
      }),
      this.#options.limits.execStallMs,
    );
  }

  #release(): void {
    clearTimeout(this.#stallTimer);
    this.#stallTimer = undefined;
    this.#options.tty.release(this);
  }

  /** A guest that never ends the stream must not keep the exit from being reported. */
  #awaitEof(code: number): void {
    this.#eofTimer?.[Symbol.dispose]();
    this.#eofTimer = this.#options.time.after(this.#options.limits.execEofMs, () => {
      if (this.#options.tty.held) this.#awaitEof(code);
      else this.#exit(code);
    });
  }

  #exit(code: number): void {
    this.#over();
    this.events.push({ kind: "exit", code });
  }

  /**
   * Whether input would go nowhere; after an exit that is not an error, as the writer cannot know.
   */
  #isOver(): boolean {
    if (this.#phase.kind !== "over") return false;
    if (this.#phase.reason !== undefined) throw this.#phase.reason;
    return true;
  }

  #over(reason?: PodnetError): void {
    this.#phase = { kind: "over", reason };
    this.#eofTimer?.[Symbol.dispose]();
    if (this.#stallTimer !== undefined) this.#release();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    this.#options.tty.forget(this.stdio);
    this.#options.tty.forget(this.stderr);
    this.#options.gone();
  }

  #error(code: "CANCELLED" | "DEADLINE_EXCEEDED", message: string): PodnetError {
    return new PodnetError(code, message, { details: { process: this.process } });
  }
}
