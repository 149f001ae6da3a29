import { type Ip, ipToBytes, type Mac, macToBytes } from "../../core/address.ts";
import { optional } from "./optional.ts";
import { parseAttributes } from "./attributes.ts";
import { AF_BRIDGE, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH } from "./constants.ts";
import {
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_DUMP,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  type Request,
} from "./message.ts";
import {
  NDA_DST,
  NDA_IFINDEX,
  NDA_LLADDR,
  NDA_MASTER,
  NDA_PORT,
  NDA_VLAN,
  NDA_VNI,
  ndmsg,
  ndmsgSize,
  NTF_EXT_LEARNED,
  NTF_MASTER,
  NTF_SELF,
  NTF_STICKY,
  NUD_NOARP,
  NUD_PERMANENT,
  NUD_REACHABLE,
} from "./neighbour-numbers.ts";
import { Reader } from "./reader.ts";
import type { Writer } from "./writer.ts";

/**
 * Whose table an entry is in: the link's own (a VXLAN, a card) or that of the bridge it is a port
 * of.
 */
type FdbTable = "self" | "master";

/**
 * In a bridge, `permanent` entries are the host's own addresses (frames are received, not
 * forwarded), `static` ones neither age nor move, `dynamic` ones were learnt or may age. In a VXLAN
 * `permanent` and `static` do not age.
 */
type FdbState = "permanent" | "static" | "dynamic";

/** An entry of a forwarding database. */
export interface FdbEntry {
  /** Index of the port or VXLAN. */
  readonly index: number;
  readonly mac: Mac;
  readonly table: FdbTable;
  readonly state: FdbState;
  /** Index of the bridge. */
  readonly master?: number;
  readonly vlan?: number;
  /** VXLAN: the address frames are sent to, and what differs from the link's own settings. */
  readonly remote?: Ip;
  readonly port?: number;
  readonly vni?: number;
  readonly sticky: boolean;
  readonly externallyLearned: boolean;
}

/**
 * Parses the payload of RTM_NEWNEIGH or RTM_DELNEIGH of AF_BRIDGE; undefined for others. Throws
 * `NETLINK_FAILED`.
 */
export function parseFdb(payload: Uint8Array): FdbEntry | undefined {
  const reader = new Reader(payload, "a forwarding entry");
  if (reader.u8(0) !== AF_BRIDGE) return undefined;
  const attributes = parseAttributes(reader.rest(ndmsgSize));
  const mac = attributes.mac(NDA_LLADDR);
  if (mac === undefined) return undefined;
  const state = reader.u16(8);
  const flags = reader.u8(10);
  return {
    index: reader.i32(4),
    mac,
    table: (flags & NTF_SELF) !== 0 ? "self" : "master",
    state:
      (state & NUD_PERMANENT) !== 0
        ? "permanent"
        : (state & NUD_NOARP) !== 0
          ? "static"
          : "dynamic",
    ...optional("master", attributes.u32(NDA_MASTER)),
    ...optional("vlan", attributes.u16(NDA_VLAN)),
    ...optional("remote", attributes.ip(NDA_DST)),
    ...optional("port", attributes.u16be(NDA_PORT)),
    ...optional("vni", attributes.u32(NDA_VNI)),
    sticky: (flags & NTF_STICKY) !== 0,
    externallyLearned: (flags & NTF_EXT_LEARNED) !== 0,
  };
}

/** An entry to make or remove. */
export interface NewFdbEntry {
  readonly index: number;
  readonly mac: Mac;
  readonly table: FdbTable;
  readonly state?: FdbState;
  readonly vlan?: number;
  readonly remote?: Ip;
  readonly port?: number;
  readonly vni?: number;
  readonly sticky?: boolean;
}

const stateNumbers: Readonly<Record<FdbState, number>> = {
  permanent: NUD_PERMANENT,
  // A bridge asks for NOARP, a VXLAN for REACHABLE or PERMANENT; iproute2 6.1 says both as well.
  static: NUD_NOARP | NUD_REACHABLE,
  dynamic: NUD_REACHABLE,
};

function encode(entry: NewFdbEntry, state: number): Writer {
  const flags =
    (entry.table === "self" ? NTF_SELF : NTF_MASTER) | (entry.sticky === true ? NTF_STICKY : 0);
  const writer = ndmsg(AF_BRIDGE, entry.index, state, flags);
  writer.attribute(NDA_LLADDR, macToBytes(entry.mac));
  if (entry.remote !== undefined) writer.attribute(NDA_DST, ipToBytes(entry.remote));
  if (entry.vlan !== undefined) writer.attributeU16(NDA_VLAN, entry.vlan);
  if (entry.port !== undefined) writer.attributeU16be(NDA_PORT, entry.port);
  if (entry.vni !== undefined) writer.attributeU32(NDA_VNI, entry.vni);
  return writer;
}

/**
 * Makes an entry. `add` fails with `EEXIST` when the address is there, `replace` takes its place,
 * and `append` adds one more remote (a VXLAN's all-zero address floods to each of them). The state
 * is `static` unless given.
 */
export function addFdb(entry: NewFdbEntry, mode: "add" | "replace" | "append" = "add"): Request {
  const flags = { add: NLM_F_EXCL, replace: NLM_F_REPLACE, append: NLM_F_APPEND }[mode];
  return {
    type: RTM_NEWNEIGH,
    flags: NLM_F_CREATE | flags,
    payload: encode(entry, stateNumbers[entry.state ?? "static"]).finish(),
    what: `Cannot ${mode} forwarding entry ${entry.mac} of link ${entry.index}`,
  };
}

/** Removes an entry. `ENOENT` when there is none. */
export const deleteFdb = (entry: NewFdbEntry): Request => ({
  type: RTM_DELNEIGH,
  flags: 0,
  payload: encode(entry, 0).finish(),
  what: `Cannot delete forwarding entry ${entry.mac} of link ${entry.index}`,
});

export interface FdbFilter {
  /** Index of the port or VXLAN. */
  readonly index?: number;
  /** Index of the bridge. */
  readonly master?: number;
}

/** Asks for the forwarding databases of bridges, VXLANs and cards. */
export function getFdb(filter: FdbFilter = {}): Request {
  const writer = ndmsg(AF_BRIDGE, 0, 0, 0);
  if (filter.index !== undefined) writer.attributeU32(NDA_IFINDEX, filter.index);
  if (filter.master !== undefined) writer.attributeU32(NDA_MASTER, filter.master);
  return {
    type: RTM_GETNEIGH,
    flags: NLM_F_DUMP,
    payload: writer.finish(),
    what: "Cannot list forwarding entries",
  };
}
