import { SOL_UDP, UDP_GRO } from "./datagram-socket.ts";
import { lastErrno, recvmmsg } from "../ffi/libc.ts";
import { NativeMemory, Vectors } from "../native-memory.ts";
import { errnoName } from "../rtnetlink/errno.ts";

// include/linux/socket.h (Linux 6.1)
const MSG_DONTWAIT = 0x40;
const MSG_TRUNC = 0x20;

/**
 * struct mmsghdr { struct msghdr { name, namelen, iov, iovlen, control, controllen, flags }; u32
 * length; }
 */
const messageSize = 64;
/** struct cmsghdr { size_t length; int level; int type; } and an int, padded. */
const controlSize = 24;

/**
 * Takes what a UDP socket has, many messages in one system call; a message is one datagram, or
 * several of one sender that are alike in length but for the last (UDP_GRO).
 */
export class DatagramIntake {
  /** All messages; `place(i)` is where one begins. */
  readonly memory: NativeMemory;
  readonly #fd: number;
  readonly #slotSize: number;
  readonly #messages: NativeMemory;
  readonly #control: NativeMemory;
  /** How many were had last time, and have to be made ready again. */
  #used: number;

  constructor(fd: number, slots: number, slotSize: number) {
    this.#fd = fd;
    this.#slotSize = slotSize;
    this.memory = new NativeMemory(slots * slotSize);
    this.#control = new NativeMemory(slots * controlSize);
    this.#messages = new NativeMemory(slots * messageSize);
    const vectors = new Vectors(slots);
    this.#vectors = vectors;
    for (let i = 0; i < slots; i++) {
      vectors.add(this.memory.address + i * slotSize, slotSize);
      this.#messages.setPointer(i * messageSize + 16, vectors.addressOf(i));
      this.#messages.words[(i * messageSize + 24) >> 2] = 1;
      this.#messages.setPointer(i * messageSize + 32, this.#control.address + i * controlSize);
    }
    this.#used = slots;
  }

  /** The kernel has pointers into it. */
  readonly #vectors: Vectors;

  /**
   * Number of received messages; 0 when there are none. A name of an error when the socket is
   * broken.
   */
  receive(): number | string {
    const { words } = this.#messages;
    for (let i = 0; i < this.#used; i++) words[(i * messageSize + 40) >> 2] = controlSize;
    const count = recvmmsg(this.#fd, this.#messages.bytes, this.#vectors.count, MSG_DONTWAIT, null);
    this.#used = Math.max(count, 0);
    if (count >= 0) return count;
    const name = errnoName(lastErrno());
    return name === "EAGAIN" || name === "EINTR" ? 0 : name;
  }

  place(message: number): number {
    return message * this.#slotSize;
  }

  /** Bytes it has; 0 when it had more than a slot takes. */
  lengthOf(message: number): number {
    const at = (message * messageSize) >> 2;
    const { words } = this.#messages;
    return ((words[at + 12] as number) & MSG_TRUNC) === 0 ? (words[at + 14] as number) : 0;
  }

  /** Bytes of each datagram in it; the last may have fewer. */
  segmentOf(message: number): number {
    const length = this.lengthOf(message);
    if ((this.#messages.words[(message * messageSize + 40) >> 2] as number) < 20) return length;
    const { view } = this.#control;
    const at = message * controlSize;
    if (view.getInt32(at + 8, true) !== SOL_UDP || view.getInt32(at + 12, true) !== UDP_GRO)
      return length;
    const size = view.getInt32(at + 16, true);
    return size > 0 ? Math.min(size, length) : length;
  }
}
