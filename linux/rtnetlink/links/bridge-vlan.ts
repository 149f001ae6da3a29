import { parseAttributes } from "../attributes.ts";
import { AF_BRIDGE, RTM_DELLINK, RTM_GETVLAN, RTM_SETLINK } from "../constants.ts";
import { NLM_F_DUMP, type Request } from "../message.ts";
import { Reader } from "../reader.ts";
import { Writer } from "../writer.ts";

/** Numbers: include/uapi/linux/if_bridge.h and if_link.h (Linux 6.1). */
const IFLA_AF_SPEC = 26;
const IFLA_BRIDGE_VLAN_INFO = 2;
const BRIDGE_VLANDB_ENTRY = 1;
const BRIDGE_VLANDB_ENTRY_INFO = 1;
const BRIDGE_VLANDB_ENTRY_RANGE = 2;
const flag = { pvid: 1 << 1, untagged: 1 << 2 } as const;
/** struct br_vlan_msg: u8 family, u8, u16, u32 index. */
const vlanMessageSize = 8;

/** A VLAN, or a run of them, that a port is a member of. */
export interface PortVlan {
  readonly vlan: number;
  /** The last of a run; `vlan` when there is one. */
  readonly last: number;
  /** Frames that come without a tag belong to it. */
  readonly pvid: boolean;
  /** Frames of it leave without a tag. */
  readonly untagged: boolean;
}

/** Asks for the VLANs of one port. */
export const getPortVlans = (index: number): Request => ({
  type: RTM_GETVLAN,
  flags: NLM_F_DUMP,
  payload: new Writer().u8(AF_BRIDGE).u8(0).u16(0).u32(index).finish(),
  what: `Cannot list the VLANs of link ${index}`,
});

/**
 * Parses the payload of RTM_NEWVLAN; undefined when it is about another link. Throws
 * `NETLINK_FAILED`.
 */
export function parsePortVlans(payload: Uint8Array, index: number): PortVlan[] | undefined {
  const reader = new Reader(payload, "VLANs of a port");
  if (reader.u32(4) !== index) return undefined;
  const entries = parseAttributes(reader.rest(vlanMessageSize)).all(BRIDGE_VLANDB_ENTRY);
  return entries.flatMap((bytes) => {
    const entry = parseAttributes(bytes);
    const info = entry.get(BRIDGE_VLANDB_ENTRY_INFO);
    if (info === undefined) return [];
    // struct bridge_vlan_info: u16 flags, u16 vid.
    const fields = new Reader(info, "a VLAN");
    const [flags, vlan] = [fields.u16(0), fields.u16(2)];
    return {
      vlan,
      last: entry.u16(BRIDGE_VLANDB_ENTRY_RANGE) ?? vlan,
      pvid: (flags & flag.pvid) !== 0,
      untagged: (flags & flag.untagged) !== 0,
    };
  });
}

function change(type: number, index: number, vlan: number, flags: number, what: string): Request {
  // struct ifinfomsg.
  const writer = new Writer().u8(AF_BRIDGE).u8(0).u16(0).i32(index).u32(0).u32(0);
  const info = new Writer().u16(flags).u16(vlan).finish();
  // As iproute2 does, without NLA_F_NESTED.
  const spec = new Writer().attribute(IFLA_BRIDGE_VLAN_INFO, info).finish();
  writer.attribute(IFLA_AF_SPEC, spec);
  return { type, flags: 0, payload: writer.finish(), what: `Cannot ${what} link ${index}` };
}

/** Makes a port a member of a VLAN, whose frames come and go without tags. */
export const addPortVlan = (index: number, vlan: number): Request =>
  change(RTM_SETLINK, index, vlan, flag.pvid | flag.untagged, `set VLAN ${vlan} of`);

/** Ends a membership. */
export const deletePortVlan = (index: number, vlan: number): Request =>
  change(RTM_DELLINK, index, vlan, 0, `delete VLAN ${vlan} of`);
