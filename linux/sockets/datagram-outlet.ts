import { SOL_UDP, UDP_SEGMENT } from "./datagram-socket.ts";
import { Waiting } from "../files/descriptor.ts";
import { lastErrno, sendmmsg } from "../ffi/libc.ts";
import { NativeMemory, Vectors } from "../native-memory.ts";
import { errnoName } from "../rtnetlink/errno.ts";

// include/linux/socket.h (Linux 6.1)
const AF_INET = 2;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/** See `DatagramIntake`. */
const messageSize = 64;
const controlSize = 24;
const nameSize = 16;

/** Limits of one message: UDP_MAX_SEGMENTS before Linux 6.9, and an IP packet less its headers. */
const mostDatagrams = 64;
const mostBytes = 65_507;
/**
 * Longest wait for room in the socket's queue; datagrams without room are then dropped, like
 * packets.
 */
const timeoutMs = 20;

export interface OutletOptions {
  readonly fd: number;
  /** The port that all are sent to. */
  readonly port: number;
  readonly messages: number;
  readonly pieces: number;
}

/**
 * Sends datagrams made of pieces that are not copied, many in one system call. Datagrams to one
 * host that are equally long, except for the last, leave as one message, which the kernel splits as
 * late as it can (UDP_SEGMENT); where it cannot, each leaves by itself.
 */
export class DatagramOutlet {
  /** Datagrams that left, and those that did not. */
  sent = 0;
  lost = 0;
  /** System calls that took several messages or one. */
  calls = 0;
  readonly #fd: number;
  readonly #family: number;
  readonly #mostMessages: number;
  readonly #vectors: Vectors;
  readonly #messages: NativeMemory;
  readonly #names: NativeMemory;
  readonly #control: NativeMemory;
  /** Of each message: datagrams in it, and its first vector. */
  readonly #datagrams: Uint8Array;
  readonly #first: Uint32Array;
  readonly #room: Waiting;
  #single: NativeMemory | undefined;
  #segments = true;
  #count = 0;
  /** The message that may get more. */
  #host = 0;
  #size = 0;
  #bytes = 0;
  #isOpen = false;

  constructor({ fd, port, messages, pieces }: OutletOptions) {
    this.#fd = fd;
    this.#family = (AF_INET | ((port & 0xff) << 24) | ((port >> 8) << 16)) >>> 0;
    this.#mostMessages = messages;
    this.#vectors = new Vectors(pieces);
    this.#messages = new NativeMemory(messages * messageSize);
    this.#names = new NativeMemory(messages * nameSize);
    this.#control = new NativeMemory(messages * controlSize);
    this.#datagrams = new Uint8Array(messages);
    this.#first = new Uint32Array(messages + 1);
    this.#room = new Waiting([fd], "writable");
    for (let i = 0; i < messages; i++) {
      this.#messages.setPointer(i * messageSize, this.#names.address + i * nameSize);
      this.#messages.words[(i * messageSize + 8) >> 2] = nameSize;
      const { view } = this.#control;
      view.setUint32(i * controlSize, 16 + 2, true);
      view.setInt32(i * controlSize + 8, SOL_UDP, true);
      view.setInt32(i * controlSize + 12, UDP_SEGMENT, true);
    }
  }

  /**
   * Begins a datagram of `length` bytes to a host, given as its four bytes in a word; `piece` says
   * where they are.
   */
  begin(host: number, length: number): void {
    if (this.#vectors.count + 2 > this.#vectors.capacity) this.flush();
    const last = this.#count - 1;
    if (
      this.#isOpen &&
      host === this.#host &&
      length <= this.#size &&
      this.#bytes + length <= mostBytes &&
      (this.#datagrams[last] as number) < mostDatagrams
    ) {
      this.#datagrams[last] = (this.#datagrams[last] as number) + 1;
      this.#bytes += length;
      // A shorter one ends it.
      this.#isOpen = length === this.#size;
      return;
    }
    if (this.#count === this.#mostMessages) this.flush();
    const index = this.#count++;
    this.#names.words[index * 4] = this.#family;
    this.#names.words[index * 4 + 1] = host;
    this.#control.view.setUint16(index * controlSize + 16, length, true);
    this.#first[index] = this.#vectors.count;
    this.#datagrams[index] = 1;
    this.#host = host;
    this.#size = length;
    this.#bytes = length;
    this.#isOpen = this.#segments;
  }

  /** A part of the datagram last begun; two at most. */
  piece(address: number, length: number): void {
    this.#vectors.add(address, length);
  }

  /** Sends everything. The pieces must not change before. */
  flush(): void {
    this.#finish();
    for (let at = 0; at < this.#count; ) {
      const place = this.#messages.address + at * messageSize;
      const taken = sendmmsg(this.#fd, place, this.#count - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      this.calls++;
      for (let i = at; i < at + taken; i++) this.sent += this.#datagrams[i] as number;
      if (taken > 0) at += taken;
      else if (!this.#excuse(errnoName(lastErrno()), at)) at++;
      else if (!this.#room.wait(timeoutMs)) {
        for (; at < this.#count; at++) this.lost += this.#datagrams[at] as number;
      }
    }
    this.#count = 0;
    this.#vectors.count = 0;
    this.#isOpen = false;
  }

  #finish(): void {
    const { words } = this.#messages;
    this.#first[this.#count] = this.#vectors.count;
    for (let i = 0; i < this.#count; i++) {
      const at = i * messageSize;
      const first = this.#first[i] as number;
      this.#messages.setPointer(at + 16, this.#vectors.addressOf(first));
      words[(at + 24) >> 2] = (this.#first[i + 1] as number) - first;
      const several = (this.#datagrams[i] as number) > 1;
      this.#messages.setPointer(at + 32, several ? this.#control.address + i * controlSize : 0);
      words[(at + 40) >> 2] = several ? controlSize : 0;
    }
  }

  /** Whether the message is worth another try; if not, it has been seen to. */
  #excuse(error: string, message: number): boolean {
    if (error === "EAGAIN" || error === "EINTR") return true;
    const datagrams = this.#datagrams[message] as number;
    if (datagrams > 1 && (error === "EIO" || error === "EINVAL" || error === "EMSGSIZE")) {
      // EIO: the link cannot sum up what it is to take apart, now and later. The others: longer
      // than the way takes.
      if (error === "EIO") this.#segments = false;
      this.#sendSingly(message);
    } else this.lost += datagrams;
    return false;
  }

  /** One datagram after the other, which the kernel cuts into fragments where it has to. */
  #sendSingly(message: number): void {
    const size = this.#control.view.getUint16(message * controlSize + 16, true);
    this.#single ??= new NativeMemory(messageSize);
    const single = this.#single;
    single.bytes.set(this.#messages.bytes.subarray(message * messageSize).subarray(0, 32));
    const end = this.#first[message + 1] as number;
    for (let from = this.#first[message] as number; from < end; ) {
      let to = from;
      for (let bytes = 0; to < end && bytes < size; to++) bytes += this.#vectors.lengthOf(to);
      single.setPointer(16, this.#vectors.addressOf(from));
      single.words[6] = to - from;
      const taken = sendmmsg(this.#fd, single.address, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
      this.calls++;
      if (taken === 1) this.sent++;
      else this.lost++;
      from = to;
    }
  }
}
