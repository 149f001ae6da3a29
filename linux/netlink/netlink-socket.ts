import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { bind, lastErrno, recv, send, socket } from "../ffi/libc.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { setIntOption, setReceiveBuffer } from "../sockets/socket-option.ts";
import { checked, syscallError } from "../syscall-error.ts";

// include/linux/socket.h, include/uapi/asm-generic/socket.h, include/uapi/linux/netlink.h (Linux
// 6.1)
const AF_NETLINK = 16;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_NETLINK = 270;
/** NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_XFRM, NETLINK_NETFILTER. */
const families = { route: 0, sockets: 4, xfrm: 6, netfilter: 12 } as const;
/** Names of the opening of a socket for failpoints. */
const names = {
  route: "rtnetlink",
  sockets: "sock_diag",
  xfrm: "xfrm",
  netfilter: "nfnetlink",
} as const;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
const MSG_TRUNC = 0x20;

/** The kernel's default of 104 KiB holds 48 link events, this 3,855 (measured, Linux 6.18). */
const defaultReceiveBuffer = 8 << 20;
// A dump comes in parts of at most 32 KiB (Linux 4.6 on), a single reply in one message.
const partSize = 128 << 10;
/**
 * Received data is copied out before anything else happens: one buffer is enough for all sockets of
 * a thread.
 */
const part = new Uint8Array(partSize);

export interface NetlinkOptions {
  /** The netlink family; `route` by default. */
  readonly family?: keyof typeof families;
  /** Multicast groups to join, by number. */
  readonly groups?: readonly number[];
  /** Bytes the kernel may queue. */
  readonly receiveBuffer?: number;
}

/**
 * A netlink socket, bound and never blocking, in the network namespace the calling thread is in at
 * birth.
 */
export class NetlinkSocket {
  readonly fd: number;
  #closed = false;

  constructor(options: NetlinkOptions = {}) {
    const what = "Cannot open a netlink socket";
    const { family = "route" } = options;
    this.fd = checked(
      socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, families[family]),
      "socket",
      what,
    );
    try {
      perform("socket", `open ${names[family]}`, () => this.#setUp(options, what));
    } catch (error) {
      closeSync(this.fd);
      throw error;
    }
  }

  #setUp(options: NetlinkOptions, what: string): void {
    setReceiveBuffer(this.fd, options.receiveBuffer ?? defaultReceiveBuffer, what);
    // Best effort: errors with text since Linux 4.12, filtered dumps since 4.20.
    setIntOption(this.fd, SOL_NETLINK, NETLINK_EXT_ACK, 1);
    setIntOption(this.fd, SOL_NETLINK, NETLINK_CAP_ACK, 1);
    setIntOption(this.fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
    // struct sockaddr_nl { u16 family; u16 pad; u32 pid; u32 groups; }: the kernel chooses the port
    // id.
    const address = new Uint8Array(12);
    address[0] = AF_NETLINK;
    checked(bind(this.fd, address, address.length), "bind", what);
    for (const group of options.groups ?? [])
      checked(
        setIntOption(this.fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group),
        "setsockopt",
        what,
      );
  }

  /**
   * Sends requests. The kernel does the work before it returns; answers are then queued. Throws
   * `SYSCALL_FAILED`.
   */
  send(bytes: Uint8Array): void {
    checked(send(this.fd, bytes, bytes.length, 0), "send", "Cannot send to the kernel");
  }

  /** Sends on libuv's thread pool, for requests that take the kernel long. */
  sendAsync(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      send.async(this.fd, bytes, bytes.length, 0, (error: unknown, sent: number) => {
        if (sent === bytes.length) resolve();
        else reject(asyncSendError(error));
      });
    });
  }

  /**
   * The content of one datagram; `empty` when nothing is queued, `lost` when the kernel had to drop
   * some.
   */
  receive(): Uint8Array | "empty" | "lost" {
    for (;;) {
      const size = recv(this.fd, part, partSize, MSG_TRUNC);
      if (size > partSize) return "lost";
      if (size >= 0) return part.slice(0, size);
      const errno = lastErrno();
      switch (errnoName(errno)) {
        case "EAGAIN":
          return "empty";
        case "ENOBUFS":
          return "lost";
        case "EINTR":
          continue;
        default:
          throw syscallError("recv", errno, "Cannot receive from the kernel");
      }
    }
  }

  close(): void {
    if (!this.#closed) closeSync(this.fd);
    this.#closed = true;
  }
}

// koffi's asynchronous calls carry no errno.
function asyncSendError(cause: unknown): PodnetError {
  return new PodnetError("SYSCALL_FAILED", "Cannot send to the kernel: send failed", {
    details: { syscall: "send" },
    ...(cause === null || cause === undefined ? {} : { cause }),
  });
}
