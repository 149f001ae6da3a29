import type { Mac } from "../../../core/address.ts";
import { optional } from "../optional.ts";
import { type Attributes, parseAttributes, textOf } from "../attributes.ts";
import { type BridgePort, readBridgePort } from "./bridge-port.ts";
import { AF_BRIDGE } from "../constants.ts";
import {
  IFF_LOOPBACK,
  IFF_LOWER_UP,
  IFF_NOARP,
  IFF_RUNNING,
  IFF_UP,
  IFLA_ADDRESS,
  IFLA_ALT_IFNAME,
  IFLA_GROUP,
  IFLA_IFALIAS,
  IFLA_IFNAME,
  IFLA_INFO_DATA,
  IFLA_INFO_KIND,
  IFLA_INFO_SLAVE_DATA,
  IFLA_INFO_SLAVE_KIND,
  IFLA_LINK,
  IFLA_LINK_NETNSID,
  IFLA_LINKINFO,
  IFLA_MASTER,
  IFLA_MAX_MTU,
  IFLA_MIN_MTU,
  IFLA_MTU,
  IFLA_OPERSTATE,
  IFLA_PROP_LIST,
  IFLA_PROTINFO,
  IFLA_QDISC,
} from "./link-attributes.ts";
import {
  type BridgeData,
  readBridge,
  readTun,
  readVxlan,
  type TunData,
  type VxlanSettings,
} from "./link-kind.ts";
import { Reader } from "../reader.ts";

/** A link according to the kernel. Values that the kernel does not report are absent. */
export interface Link {
  readonly index: number;
  /** Any bytes but `/` and white space; our own names are `IfName`, foreign ones need not be. */
  readonly name: string;
  /** The administrator wants it up (IFF_UP). */
  readonly up: boolean;
  /** It can carry frames now (IFF_RUNNING). */
  readonly running: boolean;
  /** Its lower layer is connected: for a tap, that someone holds it open (IFF_LOWER_UP). */
  readonly carrier: boolean;
  readonly loopback: boolean;
  /** MACs of neighbours are not asked for (IFF_NOARP): only those that were set are known. */
  readonly noArp?: true;
  readonly operState: OperState;
  readonly mtu: number;
  readonly minMtu?: number;
  /** 0 means no limit is known. */
  readonly maxMtu?: number;
  readonly mac?: Mac;
  readonly group: number;
  readonly alias?: string;
  readonly altNames: readonly string[];
  /** The kind of its root queue: `noqueue`, `pfifo_fast`, `tbf`, … */
  readonly queue?: string;
  /** Index of the bridge it is a port of. */
  readonly master?: number;
  /**
   * Index of the link below or of a veth's peer; in another namespace when `linkNetnsId` is there.
   */
  readonly link?: number;
  readonly linkNetnsId?: number;
  /** `bridge`, `veth`, `vxlan`, `tun` (taps too), …; undefined for hardware. */
  readonly kind?: string;
  readonly bridge?: BridgeData;
  readonly vxlan?: VxlanSettings;
  readonly tun?: TunData;
  /** Settings it has as a port of a bridge. */
  readonly port?: BridgePort;
}

/** What a machine asks of its own links: few of some fifty attributes. */
export type LinkState = Pick<
  Link,
  "index" | "name" | "up" | "carrier" | "loopback" | "noArp" | "mtu" | "mac"
>;

/** RFC 2863 6.1.1, in the order of IF_OPER_* (include/uapi/linux/if.h). */
const operStates = [
  "unknown",
  "not-present",
  "down",
  "lower-layer-down",
  "testing",
  "dormant",
  "up",
] as const;
type OperState = (typeof operStates)[number];

// struct ifinfomsg: u8 family, u8, u16 type, s32 index, u32 flags, u32 change.
const ifinfomsgSize = 16;

/** The group of the link in such a payload, and nothing else of it. Throws `NETLINK_FAILED`. */
export const parseGroup = (payload: Uint8Array): number =>
  parseAttributes(new Reader(payload, "a link").rest(ifinfomsgSize)).u32(IFLA_GROUP) ?? 0;

/**
 * The state of the link in such a payload. The guest's engine is slow: it reads nothing else.
 * Throws `NETLINK_FAILED`.
 */
export function parseLinkState(payload: Uint8Array): LinkState {
  const reader = new Reader(payload, "a link");
  return stateOf(reader, parseAttributes(reader.rest(ifinfomsgSize)));
}

function stateOf(reader: Reader, attributes: Attributes): LinkState {
  const flags = reader.u32(8);
  return {
    index: reader.i32(4),
    name: attributes.text(IFLA_IFNAME) ?? "",
    up: (flags & IFF_UP) !== 0,
    carrier: (flags & IFF_LOWER_UP) !== 0,
    loopback: (flags & IFF_LOOPBACK) !== 0,
    ...((flags & IFF_NOARP) === 0 ? {} : { noArp: true as const }),
    mtu: attributes.u32(IFLA_MTU) ?? 0,
    ...optional("mac", attributes.mac(IFLA_ADDRESS)),
  };
}

/** Parses the payload of RTM_NEWLINK or RTM_DELLINK, of any family. Throws `NETLINK_FAILED`. */
export function parseLink(payload: Uint8Array): Link {
  const reader = new Reader(payload, "a link");
  const attributes = parseAttributes(reader.rest(ifinfomsgSize));
  const info = attributes.nested(IFLA_LINKINFO);
  return {
    ...stateOf(reader, attributes),
    running: (reader.u32(8) & IFF_RUNNING) !== 0,
    operState: operStates[attributes.u8(IFLA_OPERSTATE) ?? 0] ?? "unknown",
    ...optional("minMtu", attributes.u32(IFLA_MIN_MTU)),
    ...optional("maxMtu", attributes.u32(IFLA_MAX_MTU)),
    group: attributes.u32(IFLA_GROUP) ?? 0,
    ...optional("alias", attributes.text(IFLA_IFALIAS)),
    altNames: (attributes.nested(IFLA_PROP_LIST)?.all(IFLA_ALT_IFNAME) ?? []).map(textOf),
    ...optional("queue", attributes.text(IFLA_QDISC)),
    ...optional("master", attributes.u32(IFLA_MASTER)),
    ...optional("link", attributes.u32(IFLA_LINK)),
    ...optional("linkNetnsId", attributes.i32(IFLA_LINK_NETNSID)),
    ...(info === undefined ? {} : readInfo(info)),
    ...readProtinfo(reader.u8(0), attributes),
  };
}

/**
 * Family of a link message: AF_BRIDGE ones report a bridge's port, not of the link's coming or
 * going.
 */
export function isPortMessage(payload: Uint8Array): boolean {
  return payload[0] === AF_BRIDGE;
}

type Info = Pick<Link, "kind" | "bridge" | "vxlan" | "tun" | "port">;

function readInfo(info: Attributes): Info {
  const kind = info.text(IFLA_INFO_KIND);
  const data = info.nested(IFLA_INFO_DATA);
  const portData =
    info.text(IFLA_INFO_SLAVE_KIND) === "bridge" ? info.nested(IFLA_INFO_SLAVE_DATA) : undefined;
  return {
    ...optional("kind", kind),
    ...(data !== undefined && kind === "bridge" ? { bridge: readBridge(data) } : {}),
    ...(data !== undefined && kind === "vxlan" ? { vxlan: readVxlan(data) } : {}),
    ...(data !== undefined && kind === "tun" ? { tun: readTun(data) } : {}),
    ...(portData === undefined ? {} : { port: readBridgePort(portData) }),
  };
}

function readProtinfo(family: number, attributes: Attributes): Pick<Link, "port"> {
  // In other families IFLA_PROTINFO holds other things (AF_INET6: IFLA_INET6_*).
  if (family !== AF_BRIDGE) return {};
  const port = attributes.nested(IFLA_PROTINFO);
  return port === undefined ? {} : { port: readBridgePort(port) };
}
