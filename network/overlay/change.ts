import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import { assertNever } from "../../core/brand.ts";
import type { IfName } from "../../core/names.ts";
import { type LinkSettings, settingsText } from "../model/change.ts";
import type { TunnelBirth } from "./udp/tunnel.ts";

/** A VXLAN device as it is born; parts of it can only be had by making another. */
export interface VxlanBirth {
  readonly vni: number;
  readonly port: number;
  readonly local: Ip;
  readonly parent: IfName;
  readonly gbp: boolean;
  readonly learning: boolean;
}

/** The properties that identify an overlay's route. */
export interface RouteTo {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  readonly link: IfName;
  /** The gateway is taken to be on the link. */
  readonly onlink: boolean;
}

/** One effect on the kernel, as data. An array of them is in the order they are applied. */
export type OverlayChange =
  | { readonly kind: "delete-device"; readonly device: IfName }
  | {
      readonly kind: "create-device";
      readonly device: IfName;
      readonly vxlan: VxlanBirth;
      readonly set: LinkSettings;
    }
  | { readonly kind: "set-device"; readonly device: IfName; readonly set: LinkSettings }
  | {
      readonly kind: "set-learning";
      readonly device: IfName;
      readonly vni: number;
      readonly learning: boolean;
    }
  /** Whether checksums of what leaves by it are left to the card below. */
  | { readonly kind: "set-tx-checksum"; readonly device: IfName; readonly left: boolean }
  | { readonly kind: "add-address"; readonly device: IfName; readonly prefix: IpPrefix }
  | { readonly kind: "remove-address"; readonly device: IfName; readonly prefix: IpPrefix }
  | TunnelChange
  | TunnelPeerChange
  | PeerChange;

/** A change of a tunnel through which podnetd itself forwards packets. */
export type TunnelChange =
  | { readonly kind: "open-tunnel"; readonly overlay: string; readonly birth: TunnelBirth }
  | { readonly kind: "close-tunnel"; readonly overlay: string; readonly device: IfName };

/** The destination of a tunnel for a part of the overlay. */
export type TunnelPeerChange =
  | {
      readonly kind: "set-peer";
      readonly overlay: string;
      readonly subnet: Cidr;
      readonly host: Ip;
    }
  | { readonly kind: "remove-peer"; readonly overlay: string; readonly subnet: Cidr };

/**
 * A change of a peer's entry. There are thousands: they are applied in batches, each by itself, and
 * a failure does not stop the others.
 */
export type PeerChange =
  /** Whatever was there. */
  | { readonly kind: "set-neighbour"; readonly device: IfName; readonly ip: Ip; readonly mac: Mac }
  | { readonly kind: "remove-neighbour"; readonly device: IfName; readonly ip: Ip }
  /** Frames to this MAC leave to this host. */
  | { readonly kind: "set-fdb"; readonly device: IfName; readonly mac: Mac; readonly remote: Ip }
  | { readonly kind: "remove-fdb"; readonly device: IfName; readonly mac: Mac; readonly remote: Ip }
  | ({ readonly kind: "set-route" } & RouteTo)
  | ({
      readonly kind: "remove-route";
      readonly protocol: number;
      readonly metric: number;
    } & RouteTo);

const peerKinds: ReadonlySet<string> = new Set<PeerChange["kind"]>([
  "set-neighbour",
  "remove-neighbour",
  "set-fdb",
  "remove-fdb",
  "set-route",
  "remove-route",
]);

export const isPeerChange = (change: OverlayChange): change is PeerChange =>
  peerKinds.has(change.kind);

/** A change as people read it, one line. */
export function overlayChangeText(change: OverlayChange): string {
  switch (change.kind) {
    case "delete-device":
      return `link - ${change.device}`;
    case "create-device": {
      const { vni, port, local, parent, gbp, learning } = change.vxlan;
      const flags = `${learning ? "" : " nolearning"}${gbp ? " gbp" : ""}`;
      return `link + ${change.device} vxlan id ${vni} local ${local} dev ${parent} dstport ${port}${flags} ${settingsText(change.set)}`;
    }
    case "set-device":
      return `link ~ ${change.device} ${settingsText(change.set)}`;
    case "set-learning":
      return `link ~ ${change.device} ${change.learning ? "learning" : "nolearning"}`;
    case "set-tx-checksum":
      return `link ~ ${change.device} tx ${change.left ? "on" : "off"}`;
    case "add-address":
      return `address + ${change.prefix} on ${change.device}`;
    case "remove-address":
      return `address - ${change.prefix} on ${change.device}`;
    case "open-tunnel": {
      const { publicIp, port } = change.birth;
      return `tunnel + ${change.overlay} at ${publicIp}:${port}`;
    }
    case "close-tunnel":
      return `tunnel - ${change.overlay} on ${change.device}`;
    case "set-peer":
      return `peer + ${change.subnet} at ${change.host}`;
    case "remove-peer":
      return `peer - ${change.subnet}`;
    case "set-neighbour":
      return `neighbour + ${change.ip} lladdr ${change.mac} on ${change.device}`;
    case "remove-neighbour":
      return `neighbour - ${change.ip} on ${change.device}`;
    case "set-fdb":
      return `fdb + ${change.mac} dst ${change.remote} on ${change.device}`;
    case "remove-fdb":
      return `fdb - ${change.mac} dst ${change.remote} on ${change.device}`;
    case "set-route":
      return `route + ${routeText(change)}`;
    case "remove-route":
      return `route - ${routeText(change)}`;
    default:
      return assertNever(change);
  }
}

const routeText = ({ destination, gateway, link, onlink }: RouteTo): string =>
  `${destination}${gateway === undefined ? "" : ` via ${gateway}`} dev ${link}${onlink ? " onlink" : ""}`;
