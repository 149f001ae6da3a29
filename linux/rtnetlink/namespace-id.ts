import { parseAttributes } from "./attributes.ts";
import { RTM_GETNSID } from "./constants.ts";
import type { Request } from "./message.ts";
import { Reader } from "./reader.ts";
import { Writer } from "./writer.ts";

// include/uapi/linux/net_namespace.h (Linux 6.1)
const NETNSA_NSID = 1;
const NETNSA_FD = 3;
const unassigned = -1;

// struct rtgenmsg: u8 family, padded.
const rtgenmsgSize = 4;

/**
 * Asks by what number another network namespace, held open as `fd`, is known in this one:
 * `Link.linkNetnsId` names it so.
 */
export const getNamespaceId = (fd: number): Request => ({
  type: RTM_GETNSID,
  flags: 0,
  payload: new Writer().u8(0).u8(0).u16(0).attributeU32(NETNSA_FD, fd).finish(),
  what: "Cannot determine the number of a network namespace",
});

/**
 * Parses the payload of RTM_NEWNSID; undefined for a namespace without a number. Throws
 * `NETLINK_FAILED`.
 */
export function parseNamespaceId(payload: Uint8Array): number | undefined {
  const reader = new Reader(payload, "a namespace's number");
  const id = parseAttributes(reader.rest(rtgenmsgSize)).i32(NETNSA_NSID);
  return id === unassigned ? undefined : id;
}
