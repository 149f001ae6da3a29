import { closeSync } from "node:fs";
import { perform } from "../core/effect.ts";
import type { IfName } from "../core/names.ts";
import { encodeUtf8 } from "../core/utf8.ts";
import { addressOf, ioctlPointer, socket } from "./ffi/libc.ts";
import { AF_INET } from "./sockets/socket-address.ts";
import { checked } from "./syscall-error.ts";

// include/uapi/linux/sockios.h, ethtool.h (Linux 6.1)
const SIOCETHTOOL = 0x8946;
const ETHTOOL_GTXCSUM = 0x16;
const ETHTOOL_STXCSUM = 0x17;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;

/**
 * Whether a link, or the layer below it, computes the checksums of outgoing packets (`ethtool -k
 * LINK`, tx-checksumming). Throws `SYSCALL_FAILED`; `details.errno` is `ENODEV` when there is no
 * such link.
 */
export const leavesChecksums = (link: IfName): boolean =>
  ethtool(link, ETHTOOL_GTXCSUM, 0, `Cannot determine who computes checksums for "${link}"`) !== 0;

/**
 * Leaves checksums to a link, or makes them before (`ethtool -K LINK tx off`). Throws as
 * `leavesChecksums` does.
 */
export function leaveChecksums(link: IfName, leave: boolean): void {
  const what = `Cannot set who makes checksums for "${link}"`;
  perform("ioctl", "set tx checksum", () => ethtool(link, ETHTOOL_STXCSUM, leave ? 1 : 0, what));
}

function ethtool(link: IfName, command: number, data: number, what: string): number {
  // struct ethtool_value { u32 cmd; u32 data; }
  const value = new Uint8Array(8);
  const view = new DataView(value.buffer);
  view.setUint32(0, command, true);
  view.setUint32(4, data, true);
  // struct ifreq { char name[16]; void *data; … }, 40 bytes.
  const request = new Uint8Array(40);
  request.set(encodeUtf8(link));
  new DataView(request.buffer).setBigUint64(16, addressOf(value), true);
  const fd = checked(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket", what);
  try {
    checked(ioctlPointer(fd, SIOCETHTOOL, request), "SIOCETHTOOL", what);
    return view.getUint32(4, true);
  } finally {
    closeSync(fd);
  }
}
