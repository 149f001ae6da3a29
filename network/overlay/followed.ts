import { type Family, type Ip, ipOf, type Mac } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import {
  type OverlayPeer,
  type OverlayShape,
  type PeerDelta,
  peerKey,
  sideFamily,
  type SideShape,
} from "../model/overlay.ts";
import type { OverlayNetlink } from "./kernel.ts";
import { overlayMtu } from "./mtu.ts";
import type { WantedSide } from "./wanted.ts";

/** The state of an address family that was last applied, and the observations it was based on. */
export interface FollowedSide {
  readonly side: SideShape;
  /** The peers, by their keys. */
  readonly peers: Map<string, OverlayPeer>;
  readonly wanted: WantedSide;
  readonly parentMtu: number;
  readonly deviceMac: Mac | undefined;
  /** The broadcast addresses of the parent's networks. */
  readonly broadcasts: ReadonlySet<Ip>;
  /** Hosts on a link of this one, of those asked about. */
  readonly direct: Set<Ip>;
  readonly asked: Set<Ip>;
}

/** An overlay as it was last made, so that a delta of peers needs no look at the others. */
export interface Followed {
  readonly shape: OverlayShape;
  readonly sides: ReadonlyMap<Family, FollowedSide>;
}

/**
 * Peers by their keys; undefined where two have one key, so that a delta could not tell them apart.
 */
export function peersByKey(peers: readonly OverlayPeer[]): Map<string, OverlayPeer> | undefined {
  const byKey = new Map(peers.map((peer) => [peerKey(peer), peer]));
  return byKey.size === peers.length ? byKey : undefined;
}

/** Brings peers up to date. Answers whether the delta fits to what they were. */
export function updatePeers(
  peers: Map<string, OverlayPeer>,
  { removed, added }: PeerDelta,
): boolean {
  for (const peer of removed) if (!peers.delete(peerKey(peer))) return false;
  for (const peer of added) {
    if (peers.has(peerKey(peer))) return false;
    peers.set(peerKey(peer), peer);
  }
  return true;
}

/** The report about an overlay as it was applied. */
export function summary({ shape, sides }: Followed): {
  readonly refused: WantedSide["refused"];
  readonly mtu: number;
  readonly macs: ReadonlyMap<Family, Mac>;
} {
  const all = [...sides];
  const parentMtu = Math.min(...all.map(([, side]) => side.parentMtu));
  return {
    refused: all.flatMap(([, { wanted }]) => wanted.refused),
    mtu: overlayMtu(shape.backend, shape.sides.map(sideFamily), parentMtu),
    macs: new Map(
      all.flatMap(([family, { deviceMac }]) =>
        deviceMac === undefined ? [] : [[family, deviceMac] as const],
      ),
    ),
  };
}

/** Other hosts send to this address without asking whose it is: it has to be the link's own. */
export async function refuseForeignAddress(
  netlink: OverlayNetlink,
  { publicIp }: SideShape,
  parent: Link,
): Promise<void> {
  const addresses = await netlink.addresses({ index: parent.index });
  if (addresses.some(({ prefix }) => ipOf(prefix) === publicIp)) return;
  throw new PodnetError(
    "OVERLAY_CONFLICT",
    `host-gw needs ${publicIp} to be an address of "${parent.name}"`,
    {
      hint: "Let the public address be the interface's own, or use the backend vxlan",
      details: { link: parent.name, address: publicIp },
    },
  );
}
