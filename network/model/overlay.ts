import { type Cidr, type Family, familyOf, type Ip, type Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";

/**
 * The desired state of one network across hosts, on this host. Plain data, which determine
 * everything that is made and everything that stays.
 */
export interface OverlayDesired {
  /** Names it in marks; characters as in a network's name. */
  readonly name: string;
  readonly backend: OverlayBackend;
  /** The link by which this host reaches the others. */
  readonly parent: IfName;
  /** One for each family it has. Nothing of one touches the other. */
  readonly sides: readonly OverlaySide[];
  /** Hides pods' addresses outside of the overlay; absent: no address is translated. */
  readonly masquerade?: OverlayMasquerade;
  /**
   * Accepts packets forwarded from and to the overlay where a firewall would drop them (flannel's
   * forward rules).
   */
  readonly forward: boolean;
}

/** How packets get to the other hosts. */
export type OverlayBackend =
  | VxlanBackend
  | UdpBackend
  /** Routes to the hosts' addresses: all hosts are on one link. */
  | { readonly kind: "host-gw" }
  /** This host does not forward the packets. */
  | { readonly kind: "none" };

export interface VxlanBackend {
  readonly kind: "vxlan";
  readonly vni: number;
  /** UDP port; 0 is the kernel's own, 8472. */
  readonly port: number;
  /** The underlay's MTU, if it is smaller than the parent's. */
  readonly mtu?: number;
  readonly gbp: boolean;
  readonly learning: boolean;
  /** Hosts on this host's link are reached directly, without the tunnel. */
  readonly directRouting: boolean;
  /**
   * Whether checksums of what enters the tunnel are left to the network card; absent: as the device
   * is born, left.
   */
  readonly txChecksum?: boolean;
}

/** Each packet in a datagram of its own, moved by podnetd itself. IPv4 alone. */
interface UdpBackend {
  readonly kind: "udp";
  /** The port of this host and of every other. */
  readonly port: number;
}

/** An overlay in one address family. */
export interface OverlaySide {
  /** The whole overlay. */
  readonly network: Cidr;
  /** This host's part of it. */
  readonly subnet: Cidr;
  /** The address of this host that the others send to. */
  readonly publicIp: Ip;
  /** VXLAN only. */
  readonly vtep?: OverlayVtep;
  /** Every other host. */
  readonly peers: readonly OverlayPeer[];
}

interface OverlayVtep {
  readonly device: IfName;
  /**
   * The address others know it by. Absent keeps what the device has, or takes one the kernel draws.
   */
  readonly mac?: Mac;
}

/** Another host's part of the overlay. */
export interface OverlayPeer {
  readonly subnet: Cidr;
  readonly publicIp: Ip;
  /** Its end of the tunnel; VXLAN only. */
  readonly vtepMac?: Mac;
}

/** Identifies peers of one family: two peers with one key have equal entries. */
export const peerKey = ({ subnet, publicIp, vtepMac }: OverlayPeer): string =>
  `${subnet} ${publicIp} ${vtepMac ?? ""}`;

/** Peers of one family that are not as they were; one that changed is in both. */
export interface PeerDelta {
  readonly removed: readonly OverlayPeer[];
  readonly added: readonly OverlayPeer[];
}

/** By family; an absent family is unchanged. */
export type OverlayDelta = ReadonlyMap<Family, PeerDelta>;

/** A side without its peers, which are followed by deltas. */
export type SideShape = Omit<OverlaySide, "peers">;

/** An overlay without its peers. */
export type OverlayShape = Omit<OverlayDesired, "sides"> & { readonly sides: readonly SideShape[] };

interface OverlayMasquerade {
  /** Source ports are drawn at random, all of them: two connections never race for one. */
  readonly randomFully: boolean;
  /** Subnets outside of the overlay that see pods' own addresses, and whose own pods see. */
  readonly except: readonly Cidr[];
}

/** The inputs of an overlay's rules. */
export type OverlayRuled = Pick<OverlayDesired, "name" | "masquerade" | "forward"> & {
  readonly sides: readonly (Pick<OverlaySide, "network" | "subnet"> & {
    /**
     * Hosts whose own addresses are let in to the subnet; undefined where no host sends by its own
     * (`ruledOverlay`).
     */
    readonly senders?: readonly Ip[];
  })[];
};

export const sideFamily = ({ network }: Pick<OverlaySide, "network">): Family => familyOf(network);

/** The overlay in one family; undefined if the overlay does not have the family. */
export const sideOf = <Side extends Pick<OverlaySide, "network">>(
  overlay: { readonly sides: readonly Side[] },
  family: Family,
): Side | undefined => overlay.sides.find((side) => sideFamily(side) === family);
