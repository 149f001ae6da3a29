import type { Cidr, Family, Ip } from "../../core/address.ts";
import {
  type OverlayDesired,
  type OverlayRuled,
  type OverlaySide,
  sideFamily,
  type SideShape,
} from "./overlay.ts";
import { peerRefusal } from "./refuse-peer.ts";

/** A change of the hosts that may send to this host's part of an overlay by their own addresses. */
export interface SenderChange {
  /** The overlay's name. */
  readonly name: string;
  readonly family: Family;
  /** This host's part of it. */
  readonly subnet: Cidr;
  readonly removed: readonly Ip[];
  readonly added: readonly Ip[];
}

/**
 * Whether packets between hosts and pods keep the host's own address. With a tunnel to every peer
 * they do not: a host then sends from its end of the tunnel, which is an address of the overlay.
 * host-gw, direct routing of vxlan, and networks that route subnets themselves (alloc, extension)
 * have no such address.
 */
const sendsByOwnAddress = ({ backend }: Pick<OverlayDesired, "backend">): boolean =>
  backend.kind === "host-gw" ||
  backend.kind === "none" ||
  (backend.kind === "vxlan" && backend.directRouting);

/**
 * The hosts that may send to pods and containers here by their own addresses, by the subnet that
 * each has leased. Undefined if the backend has no such packets. Peers without routes may not send
 * either. Pure.
 */
export function sendersOf(
  desired: Pick<OverlayDesired, "backend">,
  side: OverlaySide,
  broadcasts?: ReadonlySet<Ip>,
): Map<Cidr, Ip> | undefined {
  if (!sendsByOwnAddress(desired)) return undefined;
  const refusal = peerRefusal(side, broadcasts);
  const senders = new Map<Cidr, Ip>();
  for (const peer of side.peers)
    if (refusal(peer) === undefined) senders.set(peer.subnet, peer.publicIp);
  return senders;
}

/** The inputs of an overlay's rules, with the hosts that may send. Pure. */
export const ruledOverlay = (desired: OverlayDesired): OverlayRuled => ({
  ...desired,
  sides: desired.sides.map((side) => {
    const { network, subnet } = side;
    const senders = sendersOf(desired, side);
    return {
      network,
      subnet,
      ...(senders === undefined ? {} : { senders: [...new Set(senders.values())] }),
    };
  }),
});

type Senders = ReadonlyMap<Cidr, Ip> | undefined;

/**
 * The change of senders that a delta of peers causes: `from` and `to` are the peers before and
 * after it, `all` every peer after it. A host with another lease stays. Undefined if the senders
 * are unchanged. Pure.
 */
export function senderChange(
  name: string,
  side: SideShape,
  { from, to, all }: { readonly from: Senders; readonly to: Senders; readonly all: Senders },
): SenderChange | undefined {
  const before = new Set(from?.values());
  const after = new Set(to?.values());
  const added = [...after].filter((ip) => !before.has(ip));
  const removed = [...before].filter((ip) => !after.has(ip));
  if (added.length + removed.length === 0) return undefined;
  const remaining = removed.length === 0 ? new Set<Ip>() : new Set(all?.values());
  return {
    name,
    family: sideFamily(side),
    subnet: side.subnet,
    added,
    removed: removed.filter((ip) => !remaining.has(ip)),
  };
}
