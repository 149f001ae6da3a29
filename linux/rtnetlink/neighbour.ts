import { type Ip, ipToBytes, type Mac, macToBytes } from "../../core/address.ts";
import { optional } from "./optional.ts";
import { parseAttributes } from "./attributes.ts";
import { AF_INET, AF_INET6, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH } from "./constants.ts";
import { familyFilter, familyNumber } from "./family.ts";
import { NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, type Request } from "./message.ts";
import {
  NDA_DST,
  NDA_IFINDEX,
  NDA_LLADDR,
  NDA_MASTER,
  NDA_PROTOCOL,
  ndmsg,
  ndmsgSize,
  NTF_EXT_LEARNED,
  NTF_PROXY,
  NTF_ROUTER,
} from "./neighbour-numbers.ts";
import { Reader } from "./reader.ts";

/** NUD_*: a state as the kernel names it; `none` is zero. */
const states = {
  none: 0,
  incomplete: 0x01,
  reachable: 0x02,
  stale: 0x04,
  delay: 0x08,
  probe: 0x10,
  failed: 0x20,
  noarp: 0x40,
  permanent: 0x80,
} as const;

export type NeighbourState = keyof typeof states;

/** An entry of the ARP or ND table. */
export interface Neighbour {
  /** Index of the link. */
  readonly index: number;
  readonly address: Ip;
  readonly mac?: Mac;
  readonly state: NeighbourState;
  readonly router: boolean;
  /** The host answers for it (proxy ARP); it has neither MAC nor state. */
  readonly proxy: boolean;
  readonly externallyLearned: boolean;
  /** Who made it, a route protocol's number. */
  readonly protocol?: number;
}

/**
 * Parses the payload of RTM_NEWNEIGH or RTM_DELNEIGH of the ARP or ND table; undefined for other
 * families: `parseFdb` reads the bridges'. Throws `NETLINK_FAILED`.
 */
export function parseNeighbour(payload: Uint8Array): Neighbour | undefined {
  const reader = new Reader(payload, "a neighbour");
  const family = reader.u8(0);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const attributes = parseAttributes(reader.rest(ndmsgSize));
  const address = attributes.ip(NDA_DST);
  if (address === undefined) return undefined;
  const flags = reader.u8(10);
  return {
    index: reader.i32(4),
    address,
    ...optional("mac", attributes.mac(NDA_LLADDR)),
    state: stateName(reader.u16(8)),
    router: (flags & NTF_ROUTER) !== 0,
    proxy: (flags & NTF_PROXY) !== 0,
    externallyLearned: (flags & NTF_EXT_LEARNED) !== 0,
    ...optional("protocol", attributes.u8(NDA_PROTOCOL)),
  };
}

function stateName(value: number): NeighbourState {
  for (const name of Object.keys(states) as NeighbourState[])
    if (states[name] === value) return name;
  return "none";
}

/** An entry to make. */
export interface NewNeighbour {
  /** Index of the link. */
  readonly index: number;
  readonly address: Ip;
  readonly mac: Mac;
  /** `permanent` unless given: it stays and is never asked for. */
  readonly state?: NeighbourState;
  /**
   * Who makes it, a route protocol's number; kept since Linux 5.2, and by earlier ones passed over.
   */
  readonly protocol?: number;
}

/** Sets a neighbour's MAC, whatever was there. */
export function replaceNeighbour(neighbour: NewNeighbour): Request {
  const { index, address, mac, state = "permanent", protocol } = neighbour;
  const writer = ndmsg(familyNumber(address), index, states[state], 0)
    .attribute(NDA_DST, ipToBytes(address))
    .attribute(NDA_LLADDR, macToBytes(mac));
  if (protocol !== undefined) writer.attributeU8(NDA_PROTOCOL, protocol);
  return {
    type: RTM_NEWNEIGH,
    flags: NLM_F_CREATE | NLM_F_REPLACE,
    payload: writer.finish(),
    what: `Cannot set neighbour ${address} of link ${index}`,
  };
}

/** Forgets a neighbour. `ENOENT` when there is none. */
export const deleteNeighbour = (index: number, address: Ip): Request => ({
  type: RTM_DELNEIGH,
  flags: 0,
  payload: ndmsg(familyNumber(address), index, 0, 0)
    .attribute(NDA_DST, ipToBytes(address))
    .finish(),
  what: `Cannot delete neighbour ${address} of link ${index}`,
});

export interface NeighbourFilter {
  readonly family?: 4 | 6;
  readonly index?: number;
  /** Index of the bridge whose ports' neighbours are wanted. */
  readonly master?: number;
}

/** Asks for the ARP and ND tables. */
export function getNeighbours(filter: NeighbourFilter = {}): Request {
  const writer = ndmsg(familyFilter(filter.family), 0, 0, 0);
  if (filter.index !== undefined) writer.attributeU32(NDA_IFINDEX, filter.index);
  if (filter.master !== undefined) writer.attributeU32(NDA_MASTER, filter.master);
  return {
    type: RTM_GETNEIGH,
    flags: NLM_F_DUMP,
    payload: writer.finish(),
    what: "Cannot list neighbours",
  };
}
