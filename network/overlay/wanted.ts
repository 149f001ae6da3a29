import {
  type Cidr,
  familyBits,
  type Ip,
  ipOf,
  type IpPrefix,
  type Mac,
  withLength,
} from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { RouteTo, VxlanBirth } from "./change.ts";
import {
  type OverlayPeer,
  type OverlayShape,
  type OverlaySide,
  peerKey,
  sideFamily,
} from "../model/overlay.ts";
import { sideMtu } from "./mtu.ts";
import { peerRefusal } from "../model/refuse-peer.ts";
import { sendersOf } from "../model/overlay-senders.ts";

/**
 * The wanted or observed entries of all peers in the kernel. The keys are those by which the kernel
 * distinguishes entries.
 */
export interface PeerTables {
  readonly neighbours: ReadonlyMap<Ip, Mac>;
  readonly fdb: ReadonlyMap<Mac, Ip>;
  readonly routes: ReadonlyMap<Cidr, RouteTo>;
  /** The destinations of podnetd's own tunnel; only with the backend udp. */
  readonly tunnel?: ReadonlyMap<Cidr, Ip>;
}

export interface WantedDevice {
  readonly device: IfName;
  readonly mac: Mac | undefined;
  readonly mtu: number;
  /** Undefined of a tunnel's, which comes and goes with the tunnel. */
  readonly vxlan: VxlanBirth | undefined;
  /** The host's own end, where the others' packets to it arrive. */
  readonly address: IpPrefix;
  /** Undefined leaves it. */
  readonly txChecksum?: boolean | undefined;
}

/** Its tables are kept in step with deltas of peers (`applyDelta`). */
export interface WantedSide extends PeerTables {
  readonly neighbours: Map<Ip, Mac>;
  readonly fdb: Map<Mac, Ip>;
  readonly routes: Map<Cidr, RouteTo>;
  readonly tunnel?: Map<Cidr, Ip>;
  /** Hosts that may send by their own addresses, by their subnets (`sendersOf`). */
  readonly senders?: Map<Cidr, Ip> | undefined;
  /** Peers have an end of the tunnel in common: one host with several leases. */
  readonly sharesMac?: boolean;
  readonly device: WantedDevice | undefined;
  readonly refused: readonly RefusedPeer[];
}

/** A peer without entries. */
export interface RefusedPeer {
  readonly peer: OverlayPeer;
  readonly reason: string;
}

/** The observed properties of the host that decide what is wanted. */
export interface Surroundings {
  readonly parentMtu: number;
  /** The MAC the device has now. */
  readonly deviceMac?: Mac | undefined;
  /**
   * Whether packets to this address leave by a link the host is on, by no gateway and no tunnel.
   */
  readonly isDirect: (publicIp: Ip) => boolean;
  /** Addresses at which all hosts of the parent's networks are reached. */
  readonly broadcasts?: ReadonlySet<Ip>;
  /** The name of podnetd's own tunnel. */
  readonly tunnelDevice?: IfName | undefined;
}

/** The kernel's default port (VXLAN_PORT of Linux; IANA's is another). */
const kernelVxlanPort = 8472;

/**
 * The wanted state of one address family of an overlay on this host. If peers exclude each other
 * (one MAC at two addresses, say), the lower subnet wins, in whatever order leases were received: a
 * restart changes nothing. Pure.
 */
export function wantedSide(
  desired: OverlayShape,
  side: OverlaySide,
  surroundings: Surroundings,
): WantedSide {
  const wanted = sideOfPeers(desired, side, surroundings);
  if (wanted.refused.length === 0) return wanted;
  const peers = side.peers.toSorted(bySubnet);
  const sorted = sideOfPeers(desired, { ...side, peers }, surroundings);
  const order = new Map(side.peers.map((peer, i) => [peer, i]));
  const at = ({ peer }: RefusedPeer): number => order.get(peer) ?? 0;
  return { ...sorted, refused: sorted.refused.toSorted((a, b) => at(a) - at(b)) };
}

const bySubnet = (a: OverlayPeer, b: OverlayPeer): number => (peerKey(a) < peerKey(b) ? -1 : 1);

/**
 * The state with the peers in the given order: of peers that exclude each other, the first wins.
 */
function sideOfPeers(
  desired: OverlayShape,
  side: OverlaySide,
  surroundings: Surroundings,
): WantedSide {
  const { backend, parent } = desired;
  const neighbours = new Map<Ip, Mac>();
  const fdb = new Map<Mac, Ip>();
  const routes = new Map<Cidr, RouteTo>();
  const refused: RefusedPeer[] = [];
  const device = wantedDevice(desired, side, surroundings);
  const senders = sendersOf(desired, side, surroundings.broadcasts);
  const base = { neighbours, fdb, routes, senders, device, refused };
  const tunnel = new Map<Cidr, Ip>();
  const ownMac = device?.mac ?? surroundings.deviceMac;
  const refusal = peerRefusal(side, surroundings.broadcasts);
  let sharesMac = false;
  for (const peer of side.peers) {
    const reason = refusal(peer);
    if (reason !== undefined) {
      refused.push({ peer, reason });
      continue;
    }
    if (backend.kind === "none") continue;
    const { subnet, publicIp, vtepMac } = peer;
    if (backend.kind === "udp") {
      tunnel.set(subnet, publicIp);
      continue;
    }
    const direct =
      backend.kind === "host-gw" || (backend.directRouting && surroundings.isDirect(publicIp));
    if (device === undefined || direct) {
      routes.set(subnet, { destination: subnet, gateway: publicIp, link: parent, onlink: false });
      continue;
    }
    const gateway = ipOf(subnet);
    const trouble = macTrouble(peer, ownMac, fdb) ?? baseTrouble(gateway, neighbours);
    if (vtepMac === undefined || trouble !== undefined) {
      refused.push({ peer, reason: trouble ?? "" });
      continue;
    }
    sharesMac ||= fdb.has(vtepMac);
    neighbours.set(gateway, vtepMac);
    fdb.set(vtepMac, publicIp);
    routes.set(subnet, { destination: subnet, gateway, link: device.device, onlink: true });
  }
  if (backend.kind === "udp" && device !== undefined) {
    // The tunnel has the whole network, and answers for addresses without a host.
    const { network } = side;
    routes.set(network, { destination: network, link: device.device, onlink: false });
    return { ...base, tunnel };
  }
  return { ...base, sharesMac };
}

function wantedDevice(
  { backend, parent }: OverlayShape,
  side: OverlaySide,
  { parentMtu, tunnelDevice }: Surroundings,
): WantedDevice | undefined {
  if (backend.kind === "udp" && tunnelDevice !== undefined && sideFamily(side) === 4)
    return {
      device: tunnelDevice,
      mac: undefined,
      mtu: sideMtu(backend, 4, parentMtu),
      vxlan: undefined,
      address: withLength(ipOf(side.subnet), 32),
    };
  if (backend.kind !== "vxlan" || side.vtep === undefined) return undefined;
  const { vni, gbp, learning } = backend;
  const family = sideFamily(side);
  const port = backend.port === 0 ? kernelVxlanPort : backend.port;
  return {
    device: side.vtep.device,
    mac: side.vtep.mac,
    mtu: sideMtu(backend, family, parentMtu),
    vxlan: { vni, port, local: side.publicIp, parent, gbp, learning },
    address: withLength(ipOf(side.subnet), familyBits(family)),
    txChecksum: backend.txChecksum,
  };
}

/** One host may have several leases: its MAC may occur again at its address. */
function macTrouble(
  { vtepMac: mac, publicIp }: OverlayPeer,
  own: Mac | undefined,
  fdb: ReadonlyMap<Mac, Ip>,
): string | undefined {
  if (mac === undefined) return "its end of the tunnel has no MAC";
  // The lowest bit of the first byte marks groups. It is tested on the text, because there are
  // thousands of peers.
  if ("13579bdf".includes(mac.charAt(1)) || mac === "00:00:00:00:00:00")
    return `${mac} is no single host's MAC`;
  if (mac === own) return `${mac} is this host's own MAC`;
  const holder = fdb.get(mac);
  return holder === undefined || holder === publicIp
    ? undefined
    : `${mac} is another peer's MAC, too`;
}

const baseTrouble = (base: Ip, neighbours: ReadonlyMap<Ip, Mac>): string | undefined =>
  neighbours.has(base) ? `${base} begins another peer's subnet, too` : undefined;
