import { close, closeSync, constants, openSync } from "node:fs";
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
const IFF_NO_PI = 0x1000;
const IFF_VNET_HDR = 0x4000;
const IFF_PERSIST = 0x0800;
const IFF_TUN_EXCL = 0x8000;

/**
 * An open tap, or tun. The device lives as long as some process holds the descriptor or a copy of
 * it.
 */
export interface Tap extends AsyncDisposable {
  readonly fd: number;
  readonly name: IfName;
  /**
   * Lets go of this process's descriptor; a second call does nothing. The last close anywhere ends
   * the device.
   */
  close(): Promise<void>;
}

/**
 * Makes a tap in the calling thread's network namespace: Ethernet frames with a virtio header,
 * single queue, not persistent. `ownerUid` lets that user attach to it by name.
 *
 * Throws `SYSCALL_FAILED`; `details.errno` is `EBUSY` when the name is taken (by a tap or any other
 * link: IFF_TUN_EXCL).
 */
export function openTap(name: IfName, options: { readonly ownerUid?: number } = {}): Tap {
  const what = `Cannot open tap "${name}"`;
  return openDevice(what, (fd) => {
    attach(fd, name, IFF_TAP | IFF_TUN_EXCL, what);
    const { ownerUid } = options;
    if (ownerUid !== undefined)
      perform("ioctl", "own tap", () =>
        checked(ioctlNumber(fd, TUNSETOWNER, ownerUid), "TUNSETOWNER", what),
      );
    return name;
  });
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
): Tap {
  const fd = openTunDevice(what, flags);
  try {
    return new OpenTap(fd, prepare(fd));
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
  readonly fd: number;
  readonly name: IfName;
  #closing: Promise<void> | undefined;

  constructor(fd: number, name: IfName) {
    this.fd = fd;
    this.name = name;
  }

  close(): Promise<void> {
    // The last close waits 17-20 ms for the kernel (RCU), hence on libuv's pool and not on the main
    // thread.
    this.#closing ??= performAsync("ioctl", "close tap", () => this.#close());
    return this.#closing;
  }

  #close(): Promise<void> {
    return new Promise((resolve, reject) => {
      close(this.fd, (error) => {
        if (error === null || error === undefined) resolve();
        else reject(fileError(error, `Cannot close tap "${this.name}"`));
      });
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
