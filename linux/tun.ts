import { close, closeSync, constants, openSync } from "node:fs";
import { promisify } from "node:util";
import { perform, performAsync } from "../core/effect.ts";
import { PodnetError } from "../core/errors.ts";
import { type IfName, parseIfName } from "../core/names.ts";
import { decodeUtf8, encodeUtf8 } from "../core/utf8.ts";
import { ioctlNumber, ioctlPointer } from "./ffi/libc.ts";
import { checked, fileError } from "./syscall-error.ts";

// include/uapi/linux/if_tun.h
const TUNSETIFF = 0x400454ca;
const TUNGETIFF = 0x800454d2;
const TUNSETOWNER = 0x400454cc;
const TUNSETOFFLOAD = 0x400454d0;
const TUN_F_CSUM = 0x01;
const TUN_F_TSO4 = 0x02;
const IFF_TUN = 0x0001;
const IFF_TAP = 0x0002;
const IFF_MULTI_QUEUE = 0x0100;
const IFF_NO_PI = 0x1000;
const IFF_VNET_HDR = 0x4000;
const IFF_PERSIST = 0x0800;
const IFF_TUN_EXCL = 0x8000;

/**
 * An open tap, or tun. The device lives as long as some process holds the descriptor or a copy of
 * it.
 */
export interface Tap extends AsyncDisposable {
  /** Of the first queue, or the only one. */
  readonly fd: number;
  /** Of all queues, in order. */
  readonly fds: readonly number[];
  readonly name: IfName;
  /**
   * Lets go of this process's descriptors; a second call does nothing. The last close anywhere ends
   * the device.
   */
  close(): Promise<void>;
}

/**
 * Makes a tap in the calling thread's network namespace: Ethernet frames with a virtio header, one
 * queue or several, not persistent. `ownerUid` lets that user attach to it by name.
 *
 * Throws `SYSCALL_FAILED`; `details.errno` is `EBUSY` when the name is taken (by a tap or any other
 * link: IFF_TUN_EXCL).
 */
export function openTap(
  name: IfName,
  options: { readonly ownerUid?: number; readonly queues?: number } = {},
): Tap {
  const what = `Cannot open tap "${name}"`;
  const { ownerUid, queues = 1 } = options;
  const more = queues > 1 ? IFF_MULTI_QUEUE : 0;
  const first = openDevice(what, (fd) => {
    attach(fd, name, IFF_TAP | IFF_TUN_EXCL | more, what);
    if (ownerUid !== undefined)
      perform("ioctl", "own tap", () =>
        checked(ioctlNumber(fd, TUNSETOWNER, ownerUid), "TUNSETOWNER", what),
      );
    return name;
  });
  return queues > 1 ? withQueues(first, queues, what) : first;
}

/** The tap with that many queues, each a descriptor of its own. On failure it is closed. */
function withQueues(first: OpenTap, queues: number, what: string): OpenTap {
  const fds = [...first.fds];
  try {
    while (fds.length < queues) {
      const fd = openTunDevice(what, constants.O_RDWR);
      fds.push(fd);
      attach(fd, first.name, IFF_TAP | IFF_MULTI_QUEUE, what);
    }
    return new OpenTap(fds, first.name);
  } catch (error) {
    for (const fd of fds) closeSync(fd);
    throw error;
  }
}

/**
 * Makes a tun in the calling thread's network namespace: IP packets with a virtio header, possibly
 * several TCP segments in one and checksums to be filled in, single queue, not persistent, reads
 * that never block. In `pattern`, "%d" is the first number that makes an unused name.
 *
 * Throws `SYSCALL_FAILED`; `details.errno` is `EBUSY` when the name is taken.
 */
export function openTun(pattern: string): Tap {
  const what = `Cannot open tun "${pattern}"`;
  const flags = constants.O_RDWR | constants.O_NONBLOCK;
  return openDevice(
    what,
    (fd) => {
      const answer = attach(fd, pattern, IFF_TUN | IFF_TUN_EXCL, what);
      perform("ioctl", "let tun offload", () =>
        checked(ioctlNumber(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4), "TUNSETOFFLOAD", what),
      );
      return parseIfName(decodeUtf8(answer.subarray(0, answer.indexOf(0))));
    },
    flags,
  );
}

/**
 * Opens a persistent foreign tap: it stays when all descriptors are closed, with its bridge
 * unchanged. Its frames come with a virtio header until its next user sets another mode, and have
 * one queue.
 *
 * Throws `TAP_CONFLICT` when there is no such tap, and `SYSCALL_FAILED`; `details.errno` is `EBUSY`
 * when another program has it open, `EINVAL` when it is not a tap or has several queues.
 */
export function openKeptTap(name: IfName): Tap {
  const what = `Cannot use tap "${name}"`;
  return openDevice(what, (fd) => {
    const request = attach(fd, name, IFF_TAP, what);
    perform("ioctl", "look at tap", () =>
      checked(ioctlPointer(fd, TUNGETIFF, request), "TUNGETIFF", what),
    );
    // The kernel makes a missing tap; it ends with the descriptor.
    if ((new DataView(request.buffer).getUint16(16, true) & IFF_PERSIST) !== 0) return name;
    throw new PodnetError("TAP_CONFLICT", `There is no persistent tap "${name}"`, {
      hint: `Make it first: ip tuntap add dev ${name} mode tap`,
      details: { tap: name },
    });
  });
}

function openDevice(
  what: string,
  prepare: (fd: number) => IfName,
  flags: number = constants.O_RDWR,
): OpenTap {
  const fd = openTunDevice(what, flags);
  try {
    return new OpenTap([fd], prepare(fd));
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Answers the struct ifreq that was sent. */
function attach(fd: number, name: string, more: number, what: string): Uint8Array<ArrayBuffer> {
  // struct ifreq: char ifr_name[16]; short ifr_flags; 40 bytes in all.
  const request = new Uint8Array(40);
  request.set(encodeUtf8(name));
  const flags = IFF_NO_PI | IFF_VNET_HDR | more;
  new DataView(request.buffer).setUint16(16, flags, true);
  perform("ioctl", "make tap", () =>
    checked(ioctlPointer(fd, TUNSETIFF, request), "TUNSETIFF", what),
  );
  return request;
}

function openTunDevice(what: string, flags: number): number {
  try {
    return openSync("/dev/net/tun", flags);
  } catch (error) {
    throw fileError(error, what, {
      hint: "Load the module tun and let podnetd open /dev/net/tun",
    });
  }
}

class OpenTap implements Tap {
  readonly fds: readonly number[];
  readonly name: IfName;
  #closing: Promise<void> | undefined;

  constructor(fds: readonly number[], name: IfName) {
    this.fds = fds;
    this.name = name;
  }

  get fd(): number {
    return this.fds[0] as number;
  }

  close(): Promise<void> {
    // The last close waits 17-20 ms for the kernel (RCU), hence on libuv's pool and not on the main
    // thread.
    this.#closing ??= performAsync("ioctl", "close tap", () => this.#close());
    return this.#closing;
  }

  /** Closes all, and rejects with the first failure. */
  async #close(): Promise<void> {
    const ends = await Promise.allSettled(this.fds.map((fd) => closeFd(fd)));
    const failed = ends.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected")
      throw fileError(failed.reason, `Cannot close tap "${this.name}"`);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const closeFd = promisify(close);
