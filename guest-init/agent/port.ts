import { joinBytes } from "../protocol/bytes.ts";
import type { Loop, Watch } from "./loop.ts";
import { type Forwarded, SysError, openFlag, pollEvent, sys } from "./sys.ts";

export interface PortHandlers {
  /** The port is open, for the first time or after it was lost. */
  opened(): void;
  /** There may be bytes to `read`. */
  readable(): void;
  /** The host let go: what was under way in either direction is void. */
  lost(): void;
  /**
   * The host may have let go, or may just have come back: half a frame of its is void, answers to
   * it are not. Called each time this is seen.
   */
  doubted(): void;
  /** Everything sent so far is on its way. */
  drained(): void;
}

/** Between attempts to open a port, or looks at one whose host is absent, milliseconds. */
const retryMs = 50;
/**
 * A hang-up so soon after bytes came is believed only if it lasts, milliseconds. The kernel
 * delivers data of a reconnected host before it notices the reconnection (virtio_console, Linux
 * 6.1: an interrupt brings data, a worker the state of the port), and would drop the answer.
 * Shorter than a start or reconnection of podnetd takes.
 */
const doubtMs = 100;
/**
 * How long a virtio port that takes nothing more is left alone, milliseconds: it holds a hundred
 * frames then, and reports each that the host takes. One at a time would cost the guest a wake-up
 * for each.
 */
const fullMs = 2;
const socketType = 0o140000;
const typeMask = 0o170000;

/**
 * One channel to the host: a virtio serial port, or its replacement (a terminal, a unix socket). A
 * virtio port stays open when its host disconnects and reconnects; poll then reports hang-up
 * continuously, so the port is polled at intervals. A socket is reconnected.
 */
export class Port {
  readonly #loop: Loop;
  readonly #find: () => string | undefined;
  readonly #handlers: PortHandlers;
  #fd = -1;
  #socket = false;
  #watch: Watch | undefined;
  #out: Uint8Array[] = [];
  #outBytes = 0;
  #reading = true;
  #hostPresent = true;
  /** When bytes came last, by the loop's clock. */
  #heardAt = -doubtMs;
  #retrying = false;
  /** It took nothing more, and is asked again in a while. */
  #resting = false;

  /** `find` names the port's path, or undefined while it is not there. */
  constructor(loop: Loop, find: () => string | undefined, handlers: PortHandlers) {
    this.#loop = loop;
    this.#find = find;
    this.#handlers = handlers;
  }

  get isOpen(): boolean {
    return this.#fd >= 0;
  }

  /** Bytes that wait to be written. */
  get queued(): number {
    return this.#outBytes;
  }

  /** Its descriptor, while its bytes are taken and none are queued; else -1. */
  get idle(): number {
    return this.#out.length === 0 && this.#reading && this.#watch !== undefined ? this.#fd : -1;
  }

  /** Opens the port; tries again until it is there. Answers whether it is open now. */
  open(): boolean {
    if (this.#fd >= 0) return true;
    const path = this.#find();
    if (path !== undefined) {
      try {
        this.#socket = ((sys.mode(path) ?? 0) & typeMask) === socketType;
        this.#fd = this.#socket
          ? sys.connectUnix(path)
          : sys.open(path, openFlag.readWrite | openFlag.nonBlock);
      } catch (thrown) {
        if (!(thrown instanceof SysError)) throw thrown;
      }
    }
    if (this.#fd < 0) {
      this.#retry();
      return false;
    }
    this.#hostPresent = true;
    this.#listen();
    this.#handlers.opened();
    return true;
  }

  /** Bytes read; undefined when there are none now. */
  read(into: Uint8Array): number | undefined {
    if (this.#fd < 0 || into.length === 0) return undefined;
    let count: number | undefined;
    try {
      count = sys.fill(this.#fd, into);
    } catch (thrown) {
      this.#failed(thrown);
    }
    if (count === 0) this.#hungUp();
    if (count === undefined || count === 0) return undefined;
    this.#heardAt = sys.monotonic();
    return count;
  }

  get isReading(): boolean {
    return this.#reading;
  }

  /** Whether the host's bytes are taken; while not, they wait at the host. */
  reading(wanted: boolean): void {
    if (this.#reading === wanted) return;
    this.#reading = wanted;
    this.#update();
  }

  /**
   * Queues bytes; they are written at the end of this round of the loop, or when the host takes
   * them.
   */
  send(bytes: Uint8Array): void {
    this.#out.push(bytes);
    this.#outBytes += bytes.length;
    if (this.#out.length === 1) this.#update();
  }

  /** As `send` and `flush`. */
  sendNow(bytes: Uint8Array): void {
    this.#out.push(bytes);
    this.#outBytes += bytes.length;
    this.flush();
  }

  /**
   * Passes on what can be read of `from` without a copy of it here: see `sys.forward`. Only while
   * nothing is queued.
   */
  forward(from: number, frame: Uint8Array, header: number, most: number): Forwarded {
    const result = sys.forward(from, this.#fd, frame, header, most);
    // A failure of the port shows when the rest of the frame is written.
    if (result.left !== undefined) this.send(result.left.slice());
    return result;
  }

  /** Writes what is queued, as far as the host takes it. */
  flush(): void {
    if (this.#out.length === 0) return;
    const before = this.#outBytes;
    while (this.#fd >= 0 && this.#out.length > 0) {
      const bytes = this.#next();
      let count: number | undefined;
      try {
        count = sys.write(this.#fd, bytes);
      } catch (thrown) {
        this.#failed(thrown);
      }
      // A virtio port whose queue is full may also take nothing without an error.
      if (count === undefined || count === 0) {
        this.#rest();
        break;
      }
      this.#outBytes -= count;
      if (count === bytes.length) this.#out.shift();
      else this.#out[0] = bytes.subarray(count);
    }
    this.#update();
    if (before > 0 && this.#outBytes === 0) this.#handlers.drained();
  }

  /**
   * Several small frames leave in one write: a write to a virtio port costs an exit to the
   * hypervisor.
   */
  #next(): Uint8Array {
    const first = this.#out[0] as Uint8Array;
    if (this.#out.length === 1 || first.length >= 4096) return first;
    let count = 0;
    let length = 0;
    for (const part of this.#out) {
      if (length + part.length > 16384 && count > 0) break;
      length += part.length;
      count++;
    }
    const joined = joinBytes(this.#out.splice(0, count));
    this.#out.unshift(joined);
    return joined;
  }

  #listen(): void {
    this.#watch?.stop();
    this.#watch = this.#loop.watch(this.#fd, 0, (events) => this.#happened(events));
    this.#update();
  }

  #update(): void {
    const writing = this.#out.length > 0 && !this.#resting;
    this.#watch?.events((this.#reading ? pollEvent.in : 0) | (writing ? pollEvent.out : 0));
  }

  #rest(): void {
    if (this.#socket || this.#resting) return;
    this.#resting = true;
    this.#loop.after(fullMs, () => {
      this.#resting = false;
      this.#update();
    });
  }

  #happened(events: number): void {
    if (events & pollEvent.in) {
      this.#hostPresent = true;
      this.#handlers.readable();
    } else if (events & (pollEvent.hangUp | pollEvent.error)) {
      this.#hungUp();
      return;
    }
    if (events & pollEvent.out) {
      this.#hostPresent = true;
      this.flush();
    }
  }

  #failed(thrown: unknown): void {
    if (!(thrown instanceof SysError)) throw thrown;
    this.#hungUp();
  }

  #hungUp(): void {
    this.#watch?.stop();
    this.#watch = undefined;
    const doubtful =
      !this.#socket && sys.monotonic() - Math.max(this.#heardAt, sys.heard()) < doubtMs;
    if (this.#hostPresent && !doubtful) {
      this.#hostPresent = false;
      this.#out = [];
      this.#outBytes = 0;
      this.#handlers.lost();
    } else if (this.#hostPresent) this.#handlers.doubted();
    if (this.#socket) {
      sys.close(this.#fd);
      this.#fd = -1;
    }
    this.#retry();
  }

  #retry(): void {
    if (this.#retrying) return;
    this.#retrying = true;
    this.#loop.after(retryMs, () => {
      this.#retrying = false;
      if (this.#fd < 0) this.open();
      else if (this.#watch === undefined) this.#listen();
    });
  }
}
