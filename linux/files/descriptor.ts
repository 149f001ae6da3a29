import { closeSync, writeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { eventfd, lastErrno, poll, read, writev } from "../ffi/libc.ts";
import { NativeMemory, type Vectors } from "../native-memory.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { checked } from "../syscall-error.ts";

// include/uapi/linux/eventfd.h, include/uapi/asm-generic/poll.h (Linux 6.1)
const EFD_NONBLOCK = 0o4000;
const EFD_CLOEXEC = 0o2000000;
const POLLIN = 1;
const POLLOUT = 4;

/** Result of a call that moves bytes: their number, or the name of the error. */
export type Moved = number | string;

/**
 * Reads from a descriptor that never blocks into a place of the caller's; "EAGAIN" when there is
 * nothing.
 */
export function takeInto(fd: number, address: number, size: number): Moved {
  const got = read(fd, address, size);
  return got < 0 ? errnoName(lastErrno()) : got;
}

/** Writes pieces as one packet. */
export function writePieces(fd: number, pieces: Vectors): Moved {
  const written = writev(fd, pieces.memory.bytes, pieces.count);
  return written < 0 ? errnoName(lastErrno()) : written;
}

/** Waits for descriptors, holding up the calling thread: of no use on the main one. */
export class Waiting {
  readonly #memory: NativeMemory;
  readonly #count: number;

  constructor(fds: readonly number[], until: "readable" | "writable" = "readable") {
    this.#count = fds.length;
    this.#memory = new NativeMemory(fds.length * 8);
    // struct pollfd { int fd; short events; short revents; }
    for (const [i, fd] of fds.entries()) {
      this.#memory.view.setInt32(i * 8, fd, true);
      this.#memory.view.setInt16(i * 8 + 4, until === "readable" ? POLLIN : POLLOUT, true);
    }
  }

  /** Until one is ready, is broken, or the time is over. Answers whether one is. */
  wait(milliseconds = -1): boolean {
    // (-1: a signal came. Its call is made again by who waits.)
    return poll(this.#memory.bytes, this.#count, milliseconds) > 0;
  }

  /** Whether this one was ready, or broken, when last waited for. */
  isReady(index: number): boolean {
    return this.#memory.view.getInt16(index * 8 + 6, true) !== 0;
  }
}

/** Wakes a thread that waits for descriptors. */
export interface WakeUp extends Disposable {
  readonly fd: number;
  wake(): void;
}

/** Throws `SYSCALL_FAILED`. */
export function openWakeUp(): WakeUp {
  const fd = perform("socket", "open wake-up", () =>
    checked(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd", "Cannot make a wake-up"),
  );
  const one = new Uint8Array(8);
  one[0] = 1;
  return {
    fd,
    wake: () => void writeSync(fd, one),
    [Symbol.dispose]: () => closeSync(fd),
  };
}
