import { familyOf, type Ip, ipToBytes } from "../../../core/address.ts";
import { optional } from "../optional.ts";
import type { Attributes } from "../attributes.ts";
import type { Writer } from "../writer.ts";

/**
 * The content of IFLA_INFO_DATA for the kinds of link podnet makes or meets. Numbers:
 * include/uapi/linux/if_link.h (Linux 6.1), veth's include/uapi/linux/veth.h.
 */

const br = {
  forwardDelay: 1,
  ageingTime: 4,
  stpState: 5,
  vlanFiltering: 7,
  vlanProtocol: 8,
  mcastSnooping: 23,
  nfCallIptables: 36,
  nfCallIp6tables: 37,
  // (Linux 5.0 and 6.7; an older one passes over them.)
  multiBoolopt: 46,
  fdbMaxLearned: 49,
} as const;

/** BR_BOOLOPT_NO_LL_LEARN, as a bit of struct br_boolopt_multi. */
const noLinkLocalLearn = 1;

export interface BridgeSettings {
  /** Spanning tree: 0 off, 1 the kernel's, 2 a daemon's. */
  readonly stpState?: number;
  /** Hundredths of a second. */
  readonly forwardDelay?: number;
  /** Hundredths of a second until a learnt address is forgotten. */
  readonly ageingTime?: number;
  readonly vlanFiltering?: boolean;
  readonly mcastSnooping?: boolean;
  /** How many addresses it learns at most; 0 is any number. */
  readonly fdbMaxLearned?: number;
  /**
   * Learns no address from frames to 01:80:c2:00:00:0X, which it does not forward (LLDP and the
   * like).
   */
  readonly noLinkLocalLearn?: boolean;
  /**
   * Whether frames between its ports pass the host's rules of IPv4 and IPv6 (br_netfilter); they do
   * with the sysctl as well.
   */
  readonly nfCallIptables?: boolean;
  readonly nfCallIp6tables?: boolean;
}

export interface BridgeData extends BridgeSettings {
  /**
   * 0x8100, or another; reported only by kernels whose bridges can filter VLANs
   * (CONFIG_BRIDGE_VLAN_FILTERING).
   */
  readonly vlanProtocol?: number;
}

export function writeBridge(writer: Writer, bridge: BridgeSettings): void {
  if (bridge.forwardDelay !== undefined) writer.attributeU32(br.forwardDelay, bridge.forwardDelay);
  if (bridge.ageingTime !== undefined) writer.attributeU32(br.ageingTime, bridge.ageingTime);
  if (bridge.stpState !== undefined) writer.attributeU32(br.stpState, bridge.stpState);
  writer.attributeFlag(br.vlanFiltering, bridge.vlanFiltering);
  writer.attributeFlag(br.mcastSnooping, bridge.mcastSnooping);
  writer.attributeFlag(br.nfCallIptables, bridge.nfCallIptables);
  writer.attributeFlag(br.nfCallIp6tables, bridge.nfCallIp6tables);
  if (bridge.fdbMaxLearned !== undefined)
    writer.attributeU32(br.fdbMaxLearned, bridge.fdbMaxLearned);
  if (bridge.noLinkLocalLearn !== undefined)
    // struct br_boolopt_multi { u32 optval; u32 optmask; }
    writer.attribute(
      br.multiBoolopt,
      uint32s(bridge.noLinkLocalLearn ? noLinkLocalLearn : 0, noLinkLocalLearn),
    );
}

const uint32s = (...values: readonly number[]): Uint8Array =>
  new Uint8Array(Uint32Array.from(values).buffer);

const hasBit = (bits: number | undefined, bit: number): boolean | undefined =>
  bits === undefined ? undefined : (bits & bit) !== 0;

export function readBridge(data: Attributes): BridgeData {
  return {
    ...optional("stpState", data.u32(br.stpState)),
    ...optional("forwardDelay", data.u32(br.forwardDelay)),
    ...optional("ageingTime", data.u32(br.ageingTime)),
    ...optional("vlanFiltering", data.bool(br.vlanFiltering)),
    ...optional("mcastSnooping", data.bool(br.mcastSnooping)),
    ...optional("fdbMaxLearned", data.u32(br.fdbMaxLearned)),
    ...optional("noLinkLocalLearn", hasBit(data.u32(br.multiBoolopt), noLinkLocalLearn)),
    ...optional("nfCallIptables", data.bool(br.nfCallIptables)),
    ...optional("nfCallIp6tables", data.bool(br.nfCallIp6tables)),
    ...optional("vlanProtocol", data.u16be(br.vlanProtocol)),
  };
}

const vx = {
  id: 1,
  group: 2,
  link: 3,
  local: 4,
  ttl: 5,
  learning: 7,
  ageing: 8,
  port: 15,
  group6: 16,
  local6: 17,
  udpCsum: 18,
  gbp: 23,
} as const;

export interface VxlanSettings {
  /** The VNI, 24 bits. */
  readonly id: number;
  /** Address frames leave with. */
  readonly local?: Ip;
  /** Remote end or multicast group for unknown addresses. */
  readonly remote?: Ip;
  /** Index of the link below. */
  readonly link?: number;
  /** UDP port; the kernel's default is 8472, IANA's 4789. */
  readonly port?: number;
  readonly learning?: boolean;
  /** 0 is the kernel's choice (`ttl auto`). */
  readonly ttl?: number;
  /** Seconds until a learnt address is forgotten. */
  readonly ageing?: number;
  /** Checksums of what leaves over IPv4; over IPv6 there always are some. */
  readonly udpCsum?: boolean;
  /** Group policies travel along. Never false: it is there or not. */
  readonly gbp?: true;
}

export function writeVxlan(writer: Writer, vxlan: VxlanSettings): void {
  writer.attributeU32(vx.id, vxlan.id);
  if (vxlan.remote !== undefined)
    writer.attribute(familyOf(vxlan.remote) === 4 ? vx.group : vx.group6, ipToBytes(vxlan.remote));
  if (vxlan.link !== undefined) writer.attributeU32(vx.link, vxlan.link);
  if (vxlan.local !== undefined)
    writer.attribute(familyOf(vxlan.local) === 4 ? vx.local : vx.local6, ipToBytes(vxlan.local));
  if (vxlan.ttl !== undefined) writer.attributeU8(vx.ttl, vxlan.ttl);
  writer.attributeFlag(vx.learning, vxlan.learning);
  if (vxlan.ageing !== undefined) writer.attributeU32(vx.ageing, vxlan.ageing);
  writer.attributeFlag(vx.udpCsum, vxlan.udpCsum);
  // A flag of netlink's own kind: it has no value.
  if (vxlan.gbp === true) writer.attribute(vx.gbp, new Uint8Array(0));
  if (vxlan.port !== undefined) writer.attributeU16be(vx.port, vxlan.port);
}

export function readVxlan(data: Attributes): VxlanSettings {
  return {
    id: data.u32(vx.id) ?? 0,
    ...optional("remote", data.ip(vx.group) ?? data.ip(vx.group6)),
    ...optional("link", data.u32(vx.link)),
    ...optional("local", data.ip(vx.local) ?? data.ip(vx.local6)),
    ...optional("ttl", data.u8(vx.ttl)),
    ...optional("learning", data.bool(vx.learning)),
    ...optional("ageing", data.u32(vx.ageing)),
    ...optional("udpCsum", data.bool(vx.udpCsum)),
    ...(data.get(vx.gbp) === undefined ? {} : { gbp: true as const }),
    ...optional("port", data.u16be(vx.port)),
  };
}

const tun = { owner: 1, type: 3, pi: 4, vnetHdr: 5, persist: 6, multiQueue: 7 } as const;

/** A tun or tap, as dumps report it. Only /dev/net/tun makes one. */
export interface TunData {
  readonly type: "tun" | "tap";
  readonly ownerUid?: number;
  readonly packetInfo: boolean;
  readonly vnetHeader: boolean;
  readonly persistent: boolean;
  readonly multiQueue: boolean;
}

export function readTun(data: Attributes): TunData {
  return {
    // IFF_TUN is 1, IFF_TAP 2 (include/uapi/linux/if_tun.h).
    type: data.u8(tun.type) === 1 ? "tun" : "tap",
    ...optional("ownerUid", data.u32(tun.owner)),
    packetInfo: data.bool(tun.pi) ?? false,
    vnetHeader: data.bool(tun.vnetHdr) ?? false,
    persistent: data.bool(tun.persist) ?? false,
    multiQueue: data.bool(tun.multiQueue) ?? false,
  };
}
