import { type Mac, macToBytes } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import { type BridgePortSettings, writeBridgePort } from "./bridge-port.ts";
import {
  AF_INET6,
  RTM_DELLINK,
  RTM_DELLINKPROP,
  RTM_GETLINK,
  RTM_NEWLINK,
  RTM_NEWLINKPROP,
} from "../constants.ts";
import {
  IFF_NOARP,
  IFF_UP,
  IFLA_ADDRESS,
  IFLA_AF_SPEC,
  IFLA_ALT_IFNAME,
  IFLA_EXT_MASK,
  IFLA_GROUP,
  IFLA_IFALIAS,
  IFLA_IFNAME,
  IFLA_INET6_ADDR_GEN_MODE,
  IFLA_INFO_DATA,
  IFLA_INFO_KIND,
  IFLA_INFO_SLAVE_DATA,
  IFLA_INFO_SLAVE_KIND,
  IFLA_LINKINFO,
  IFLA_MASTER,
  IFLA_MTU,
  IFLA_NET_NS_FD,
  IFLA_PROP_LIST,
  IN6_ADDR_GEN_MODE_NONE,
  RTEXT_FILTER_SKIP_STATS,
  VETH_INFO_PEER,
} from "./link-attributes.ts";
import { type BridgeSettings, type VxlanSettings, writeBridge, writeVxlan } from "./link-kind.ts";
import { NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_APPEND, type Request } from "../message.ts";
import { Writer } from "../writer.ts";

/**
 * Names the link a request is about: by index where it is known, else by name or alternative name.
 */
export type LinkRef = number | string;

/** Changes of a link; absent settings stay unchanged. */
export interface LinkChange {
  readonly up?: boolean;
  /** MACs of neighbours are not asked for. */
  readonly noArp?: boolean;
  readonly mtu?: number;
  /** Index of the bridge to become a port of; 0 leaves it. */
  readonly master?: number;
  readonly name?: string;
  readonly mac?: Mac;
  /** At most 255 bytes; the empty text removes it. */
  readonly alias?: string;
  readonly group?: number;
  /** Open descriptor of the network namespace to move it to. */
  readonly netnsFd?: number;
  /**
   * No IPv6 link-local address is made when it comes up (`addr_gen_mode` 1). Set after `up` where
   * one message has both. `EAFNOSUPPORT` without IPv6, and nothing of the message is done.
   */
  readonly linkLocal?: false;
}

/**
 * Settings that a new link of any kind can have. The kernel takes no alias at birth: `changeLink`
 * sets it afterwards.
 */
export interface NewLink {
  readonly name: string;
  readonly mac?: Mac;
  readonly mtu?: number;
  readonly group?: number;
  readonly master?: number;
  readonly up?: boolean;
  readonly netnsFd?: number;
}

const maxName = 15;

/** struct ifinfomsg. `flags` beyond `change` are left alone by the kernel. */
function ifinfomsg(index: number, flags: number, change: number): Writer {
  return new Writer().u8(0).u8(0).u16(0).i32(index).u32(flags).u32(change);
}

type Flags = readonly [flags: number, change: number];

/** The values of flags, and the mask of flags to change. */
function linkFlags({ up, noArp }: Pick<LinkChange, "up" | "noArp">): Flags {
  const flag = (bit: number, value: boolean | undefined): Flags =>
    value === undefined ? [0, 0] : [value ? bit : 0, bit];
  const [state, arp] = [flag(IFF_UP, up), flag(IFF_NOARP, noArp)];
  return [state[0] | arp[0], state[1] | arp[1]];
}

const label = (link: LinkRef): string => (typeof link === "number" ? `link ${link}` : `"${link}"`);

/** Header that names a link, followed by its name when that is how it is named. */
function refer(link: LinkRef, change: LinkChange = {}): Writer {
  const writer = ifinfomsg(typeof link === "number" ? link : 0, ...linkFlags(change));
  if (typeof link === "string") writeName(writer, link);
  return writer;
}

function writeName(writer: Writer, name: string): void {
  const long = encodeUtf8(name).length > maxName;
  writer.attributeText(long ? IFLA_ALT_IFNAME : IFLA_IFNAME, name);
}

function writeNewLink(writer: Writer, link: NewLink): void {
  writer.attributeText(IFLA_IFNAME, link.name);
  if (link.mac !== undefined) writer.attribute(IFLA_ADDRESS, macToBytes(link.mac));
  if (link.mtu !== undefined) writer.attributeU32(IFLA_MTU, link.mtu);
  if (link.group !== undefined) writer.attributeU32(IFLA_GROUP, link.group);
  if (link.master !== undefined) writer.attributeU32(IFLA_MASTER, link.master);
  if (link.netnsFd !== undefined) writer.attributeU32(IFLA_NET_NS_FD, link.netnsFd);
}

function newLink(kind: string, link: NewLink, data: (writer: Writer) => void): Request {
  const writer = ifinfomsg(0, ...linkFlags(link));
  writeNewLink(writer, link);
  writer.nested(IFLA_LINKINFO, (info) => {
    info.attributeText(IFLA_INFO_KIND, kind);
    info.nested(IFLA_INFO_DATA, data);
  });
  return {
    type: RTM_NEWLINK,
    flags: NLM_F_CREATE | NLM_F_EXCL,
    payload: writer.finish(),
    what: `Cannot add ${kind} "${link.name}"`,
  };
}

/** Makes a bridge. `EEXIST` when the name is taken. */
export const newBridge = (link: NewLink & { readonly bridge?: BridgeSettings }): Request =>
  newLink("bridge", link, (data) => writeBridge(data, link.bridge ?? {}));

/**
 * The far end of a veth pair. It cannot be born up: it is made before the near end (`ENOTCONN`,
 * Linux 6.18).
 */
export type VethPeer = Omit<NewLink, "up">;

/**
 * Makes a pair of links; frames sent on one arrive on the other. The peer may be born in another
 * namespace.
 */
export const newVeth = (link: NewLink & { readonly peer: VethPeer }): Request =>
  newLink("veth", link, (data) => {
    data.nested(VETH_INFO_PEER, (peer) => {
      peer.u8(0).u8(0).u16(0).i32(0).u32(0).u32(0);
      writeNewLink(peer, link.peer);
    });
  });

export const newVxlan = (link: NewLink & { readonly vxlan: VxlanSettings }): Request =>
  newLink("vxlan", link, (data) => writeVxlan(data, link.vxlan));

/**
 * Makes a link of a kind without further attributes. Not every kernel has every kind: `EOPNOTSUPP`.
 */
export const newOfKind = (kind: string, link: NewLink): Request => newLink(kind, link, () => {});

/** Makes a link that sends out again what is redirected to it, by way of a queue of its own. */
export const newIfb = (link: NewLink): Request => newOfKind("ifb", link);

/** Makes a link that drops what is sent on it. */
export const newDummy = (link: NewLink): Request => newOfKind("dummy", link);

/**
 * Changes a link. Several changes in one request are not atomic: the kernel applies them one by one
 * and stops at the first that fails. Leaving a bridge or a namespace waits for RCU, hence slow.
 */
export function changeLink(link: LinkRef, change: LinkChange): Request {
  const writer = refer(link, change);
  if (change.name !== undefined && typeof link === "number")
    writer.attributeText(IFLA_IFNAME, change.name);
  if (change.mac !== undefined) writer.attribute(IFLA_ADDRESS, macToBytes(change.mac));
  if (change.mtu !== undefined) writer.attributeU32(IFLA_MTU, change.mtu);
  // Without its NUL, which the kernel would count as part of the alias.
  if (change.alias !== undefined) writer.attribute(IFLA_IFALIAS, encodeUtf8(change.alias));
  if (change.master !== undefined) writer.attributeU32(IFLA_MASTER, change.master);
  if (change.group !== undefined) writer.attributeU32(IFLA_GROUP, change.group);
  if (change.netnsFd !== undefined) writer.attributeU32(IFLA_NET_NS_FD, change.netnsFd);
  if (change.linkLocal === false)
    writer.nested(IFLA_AF_SPEC, (families) =>
      families.nested(AF_INET6, (ipv6) =>
        ipv6.attribute(IFLA_INET6_ADDR_GEN_MODE, Uint8Array.of(IN6_ADDR_GEN_MODE_NONE)),
      ),
    );
  return {
    type: RTM_NEWLINK,
    flags: 0,
    payload: writer.finish(),
    what: `Cannot set ${describe(change)} of ${label(link)}`,
    slow: change.master === 0 || change.netnsFd !== undefined,
  };
}

function describe(change: LinkChange): string {
  const entries = Object.entries(change).filter(([, value]) => value !== undefined);
  return entries.map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", ");
}

/**
 * Changes settings of a link as a port of its bridge. `EOPNOTSUPP` or `EINVAL` when it is not in
 * one.
 */
export function changeBridgePort(link: LinkRef, settings: BridgePortSettings): Request {
  const writer = refer(link).nested(IFLA_LINKINFO, (info) => {
    info.attributeText(IFLA_INFO_SLAVE_KIND, "bridge");
    info.nested(IFLA_INFO_SLAVE_DATA, (data) => writeBridgePort(data, settings));
  });
  return {
    type: RTM_NEWLINK,
    flags: 0,
    payload: writer.finish(),
    what: `Cannot set the bridge port settings of ${label(link)}`,
  };
}

/** Changes settings of a bridge; absent settings stay unchanged. */
export function changeBridge(link: LinkRef, settings: BridgeSettings): Request {
  const writer = refer(link).nested(IFLA_LINKINFO, (info) => {
    info.attributeText(IFLA_INFO_KIND, "bridge");
    info.nested(IFLA_INFO_DATA, (data) => writeBridge(data, settings));
  });
  return {
    type: RTM_NEWLINK,
    flags: 0,
    payload: writer.finish(),
    what: `Cannot set the bridge settings of ${label(link)}`,
  };
}

/**
 * Changes settings of a VXLAN; absent settings stay unchanged. `EOPNOTSUPP` for port, id and group
 * policies. The request has to contain the unchanged id.
 */
export function changeVxlan(link: LinkRef, settings: VxlanSettings): Request {
  const writer = refer(link).nested(IFLA_LINKINFO, (info) => {
    info.attributeText(IFLA_INFO_KIND, "vxlan");
    info.nested(IFLA_INFO_DATA, (data) => writeVxlan(data, settings));
  });
  return {
    type: RTM_NEWLINK,
    flags: 0,
    payload: writer.finish(),
    what: `Cannot set the VXLAN settings of ${label(link)}`,
  };
}

/** Ends a link. `ENODEV` when there is none. */
export const deleteLink = (link: LinkRef): Request => ({
  type: RTM_DELLINK,
  flags: 0,
  payload: refer(link).finish(),
  what: `Cannot delete ${label(link)}`,
  slow: true,
});

/**
 * Ends every link of a group at once. `ENODEV` when it is empty. Group 0 is where links are born,
 * hence refused.
 */
export function deleteGroup(group: number): Request {
  if (!Number.isInteger(group) || group <= 0 || group > 0xffffffff)
    throw new PodnetError("INVALID_ARGUMENT", `Link group ${group} cannot be deleted`, {
      hint: "Use a group from 1 to 4294967295",
    });
  return {
    type: RTM_DELLINK,
    flags: 0,
    payload: ifinfomsg(0, 0, 0).attributeU32(IFLA_GROUP, group).finish(),
    what: `Cannot delete link group ${group}`,
    slow: true,
  };
}

/** Gives a link a further name of up to 127 bytes. `EEXIST` when it is taken. */
export const addAltName = (link: LinkRef, name: string): Request =>
  altName(RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND, link, name, "add");

export const deleteAltName = (link: LinkRef, name: string): Request =>
  altName(RTM_DELLINKPROP, 0, link, name, "delete");

function altName(type: number, flags: number, link: LinkRef, name: string, verb: string): Request {
  const writer = refer(link).nested(IFLA_PROP_LIST, (list) =>
    list.attributeText(IFLA_ALT_IFNAME, name),
  );
  return {
    type,
    flags,
    payload: writer.finish(),
    what: `Cannot ${verb} alternative name "${name}" of ${label(link)}`,
  };
}

/** Filters of a list of links that the kernel supports. */
export interface LinkFilter {
  /** Index of the bridge whose ports are wanted. */
  readonly master?: number;
  readonly kind?: string;
}

/** Asks for one link. `ENODEV` when there is none. */
export const getLink = (link: LinkRef): Request => ({
  type: RTM_GETLINK,
  flags: 0,
  payload: refer(link).attributeU32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS).finish(),
  what: `Cannot read ${label(link)}`,
});

/** Asks for all links. */
export function getLinks(filter: LinkFilter = {}): Request {
  const writer = ifinfomsg(0, 0, 0).attributeU32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
  if (filter.master !== undefined) writer.attributeU32(IFLA_MASTER, filter.master);
  if (filter.kind !== undefined) {
    const { kind } = filter;
    writer.nested(IFLA_LINKINFO, (info) => info.attributeText(IFLA_INFO_KIND, kind));
  }
  return {
    type: RTM_GETLINK,
    flags: NLM_F_DUMP,
    payload: writer.finish(),
    what: "Cannot list links",
  };
}
