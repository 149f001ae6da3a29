import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import type { IfName } from "../../core/names.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import {
  addressOf,
  bind,
  getsockopt,
  ioctlPointer,
  lastErrno,
  recvmsg,
  send,
  setsockopt,
  socket,
} from "../ffi/libc.ts";
import { type Frame, parseControl, withTag } from "./packet-control.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { setIntOption, setReceiveBuffer } from "../sockets/socket-option.ts";
import { checked, syscallError } from "../syscall-error.ts";

// include/linux/socket.h, include/uapi/asm-generic/socket.h, include/uapi/linux/if_packet.h,
// if_ether.h (Linux 6.1)
const AF_PACKET = 17;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_ATTACH_FILTER = 26;
const SO_TIMESTAMPNS = 35;
const SOL_PACKET = 263;
const PACKET_STATISTICS = 6;
const PACKET_AUXDATA = 8;
const ETH_P_ALL = 3;
const SIOCGIFINDEX = 0x8933;
const MSG_TRUNC = 0x20;
const MSG_DONTWAIT = 0x40;

const receiveBuffer = 4 << 20;
const controlSize = 256;

export type { Frame } from "./packet-control.ts";

export interface PacketSocketOptions {
  readonly link: IfName;
  /** Bytes kept of each frame. */
  readonly snapBytes: number;
  /** Of `assembleFilter`: which frames are taken; every one unless given. */
  readonly filter?: Uint8Array;
  /**
   * Bytes the kernel may queue, of its own reckoning; some 2,000 frames of 1,500 bytes unless
   * given.
   */
  readonly queueBytes?: number;
}

/**
 * Takes a copy of every frame that passes a link, both ways, never blocking: an AF_PACKET socket
 * (packet(7)). The kernel queues so much for it and counts what it drops beyond. Takes CAP_NET_RAW.
 */
export class PacketSocket implements Disposable {
  readonly fd: number;
  readonly #link: IfName;
  readonly #index: number;
  readonly #frame: Uint8Array;
  readonly #control = new Uint8Array(controlSize);
  readonly #vector = new Uint8Array(16);
  readonly #header = new Uint8Array(56);
  #closed = false;

  /**
   * Throws `SYSCALL_FAILED`; `details.errno` is `ENODEV` when there is no such link, `EPERM`
   * without CAP_NET_RAW.
   */
  constructor(options: PacketSocketOptions) {
    const { link, snapBytes } = options;
    const what = `Cannot capture on "${link}"`;
    this.#link = link;
    // Without a protocol nothing is taken before it is bound: not a frame of another link.
    this.fd = perform("socket", "open packet socket", () => {
      const fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd >= 0) return fd;
      const hint = "Run podnetd as root, or give it CAP_NET_RAW";
      const errno = lastErrno();
      throw syscallError("socket", errno, what, errnoName(errno) === "EPERM" ? { hint } : {});
    });
    try {
      this.#index = perform("socket", "bind packet socket", () => this.#attach(options, what));
    } catch (error) {
      closeSync(this.fd);
      throw error;
    }
    this.#frame = new Uint8Array(snapBytes);
    // struct iovec { void *base; size_t len; }
    const iovec = new DataView(this.#vector.buffer);
    iovec.setBigUint64(0, addressOf(this.#frame), true);
    iovec.setBigUint64(8, BigInt(snapBytes), true);
    // struct msghdr { name, namelen, iov, iovlen, control, controllen, flags }
    const msghdr = new DataView(this.#header.buffer);
    msghdr.setBigUint64(16, addressOf(this.#vector), true);
    msghdr.setBigUint64(24, 1n, true);
    msghdr.setBigUint64(32, addressOf(this.#control), true);
  }

  #attach({ link, filter, queueBytes = receiveBuffer }: PacketSocketOptions, what: string): number {
    const index = checked(this.#indexOf(link), "SIOCGIFINDEX", what);
    setReceiveBuffer(this.fd, queueBytes, what);
    if (filter !== undefined) this.#filter(filter, what);
    checked(setIntOption(this.fd, SOL_SOCKET, SO_TIMESTAMPNS, 1), "setsockopt", what);
    checked(setIntOption(this.fd, SOL_PACKET, PACKET_AUXDATA, 1), "setsockopt", what);
    // struct sockaddr_ll { u16 family; be16 protocol; int ifindex; u16 hatype; u8 pkttype; u8
    // halen; u8 addr[8]; }
    const address = new Uint8Array(20);
    const sockaddr = new DataView(address.buffer);
    sockaddr.setUint16(0, AF_PACKET, true);
    sockaddr.setUint16(2, ETH_P_ALL, false);
    sockaddr.setInt32(4, index, true);
    checked(bind(this.fd, address, address.length), "bind", what);
    return index;
  }

  /** Before it is bound: nothing that is not wanted is ever queued. */
  #filter(filter: Uint8Array, what: string): void {
    // struct sock_fprog { u16 len; struct sock_filter *filter; }
    const program = new Uint8Array(16);
    const view = new DataView(program.buffer);
    view.setUint16(0, filter.length / 8, true);
    view.setBigUint64(8, addressOf(filter), true);
    checked(setsockopt(this.fd, SOL_SOCKET, SO_ATTACH_FILTER, program, 16), "setsockopt", what);
  }

  /** The current index of the link with a name; negative when there is none. */
  #indexOf(link: IfName): number {
    // struct ifreq { char name[16]; int index; … }, 40 bytes.
    const request = new Uint8Array(40);
    request.set(encodeUtf8(link));
    const failed = ioctlPointer(this.fd, SIOCGIFINDEX, request);
    return failed < 0 ? failed : new DataView(request.buffer).getInt32(16, true);
  }

  /** Whether the link is there, up or down; one that was made anew under its name is another. */
  linkIsThere(): boolean {
    return this.#indexOf(this.#link) === this.#index;
  }

  /**
   * The next frame; `empty` when the queue is empty, `down` when the link has gone down, or away.
   * Throws `SYSCALL_FAILED`.
   */
  receive(): Frame | "empty" | "down" {
    for (;;) {
      new DataView(this.#header.buffer).setBigUint64(40, BigInt(controlSize), true);
      // The answer is the frame's own length, however little of it was asked for.
      const length = recvmsg(this.fd, this.#header, MSG_TRUNC);
      if (length >= 0) {
        const kept = this.#frame.subarray(0, Math.min(length, this.#frame.length));
        const size = Number(new DataView(this.#header.buffer).getBigUint64(40, true));
        return withTag(kept, length, parseControl(this.#control.subarray(0, size)));
      }
      const errno = lastErrno();
      switch (errnoName(errno)) {
        case "EAGAIN":
          return "empty";
        case "ENETDOWN":
          return "down";
        case "EINTR":
          continue;
        default:
          throw syscallError("recvmsg", errno, "Cannot receive what passes a link");
      }
    }
  }

  /**
   * Sends a frame by the link, past every bridge and rule. Answers whether it went: a link may be
   * down, or its queue full.
   */
  send(frame: Uint8Array): boolean {
    return perform(
      "socket",
      "send frame",
      () => send(this.fd, frame, frame.length, MSG_DONTWAIT) >= 0,
    );
  }

  /** Frames dropped since the last call because the queue was full. Throws `SYSCALL_FAILED`. */
  takeDropped(): number {
    // struct tpacket_stats { u32 packets; u32 drops; }
    const value = new Uint8Array(8);
    checked(
      getsockopt(this.fd, SOL_PACKET, PACKET_STATISTICS, value, Uint8Array.of(8, 0, 0, 0)),
      "getsockopt",
      "Cannot determine what was dropped",
    );
    return new DataView(value.buffer).getUint32(4, true);
  }

  close(): void {
    if (!this.#closed) closeSync(this.fd);
    this.#closed = true;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
