import { type Family, type Ip, ipOf, type Mac } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { type OverlayDesired, type OverlaySide, sideFamily } from "../model/overlay.ts";
import type { OverlayNetlink } from "./kernel.ts";
import { overlayMtu } from "./mtu.ts";
import type { WantedSide } from "./wanted.ts";

/** What a side was last made to be, and what was known then. */
export interface FollowedSide {
  readonly wanted: WantedSide;
  readonly parentMtu: number;
  readonly deviceMac: Mac | undefined;
  /** Of the parent's networks. */
  readonly broadcasts: ReadonlySet<Ip>;
  /** Hosts on a link of this one, of those asked about. */
  readonly direct: Set<Ip>;
  readonly asked: Set<Ip>;
}

/** An overlay as it was last made, so that news of peers need no look at the others. */
export interface Followed {
  readonly desired: OverlayDesired;
  readonly sides: ReadonlyMap<Family, FollowedSide>;
}

const withoutPeers = (desired: OverlayDesired): string =>
  JSON.stringify({ ...desired, sides: desired.sides.map((side) => ({ ...side, peers: [] })) });

/** Whether nothing but peers is new. */
export const onlyPeersDiffer = (before: OverlayDesired, after: OverlayDesired): boolean =>
  withoutPeers(before) === withoutPeers(after);

/** What is told of an overlay as it was made. */
export function summary({ desired, sides }: Followed): {
  readonly refused: WantedSide["refused"];
  readonly mtu: number;
  readonly macs: ReadonlyMap<Family, Mac>;
} {
  const all = [...sides];
  const parentMtu = Math.min(...all.map(([, side]) => side.parentMtu));
  return {
    refused: all.flatMap(([, { wanted }]) => wanted.refused),
    mtu: overlayMtu(desired.backend, desired.sides.map(sideFamily), parentMtu),
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
  { publicIp }: OverlaySide,
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
