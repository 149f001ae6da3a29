import type { Ip } from "../../core/address.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { overlayMark } from "../model/ownership.ts";
import type { OverlayChange } from "./change.ts";
import type { OverlayShape, OverlaySide } from "../model/overlay.ts";
import { type FollowedSide, refuseForeignAddress } from "./followed.ts";
import type { OverlayKernel } from "./kernel.ts";
import { observeBroadcasts, observeDirect, observeMarked, observeSide } from "./observe.ts";
import { type ObservedSide, planSide } from "./plan.ts";
import { deviceToCome, planTunnel, wantedTunnel } from "./udp/plan.ts";
import { wantedSide } from "./wanted.ts";

/**
 * The wanted state of one address family, given the observed one, and the changes that lead there.
 */
export interface ComparedSide
  extends Pick<FollowedSide, "wanted" | "broadcasts" | "direct" | "asked"> {
  readonly changes: readonly OverlayChange[];
}

/**
 * The changes that come before any comparison of address families: devices that an earlier
 * configuration of the overlay made and this one does not want, and podnetd's own tunnel, which
 * makes its device.
 */
export const compareBasis = async (
  kernel: OverlayKernel,
  desired: OverlayShape,
): Promise<OverlayChange[]> => [
  ...(await compareFormer(kernel, desired)),
  ...(await compareTunnel(kernel, desired)),
];

/**
 * Observes one address family on the host, and compares it. Throws `OVERLAY_CONFLICT`, and the
 * errors of observing.
 */
export async function compareSide(
  kernel: OverlayKernel,
  desired: OverlayShape,
  side: OverlaySide,
  parent: Link,
): Promise<ComparedSide> {
  const { netlink, tunnels } = kernel;
  if (desired.backend.kind === "host-gw") await refuseForeignAddress(netlink, side, parent);
  const tunnel = desired.backend.kind === "udp" ? tunnels.get(desired.name) : undefined;
  const seen = await observeSide(netlink, side, parent, tunnel);
  const observed = withChecksums(kernel, desired, seen);
  const broadcasts = await observeBroadcasts(netlink, parent);
  const asked = side.peers.map(({ publicIp }) => publicIp);
  const direct = await directOf(kernel, desired, asked);
  const wanted = wantedSide(desired, side, {
    parentMtu: parent.mtu,
    deviceMac: observed.device?.mac,
    isDirect: (ip) => direct.has(ip),
    broadcasts,
    tunnelDevice: tunnel?.device ?? deviceToCome,
  });
  const changes = planSide(desired.name, side.network, wanted, observed);
  return { changes, wanted, broadcasts, direct: new Set(direct), asked: new Set(asked) };
}

/** The changes that bring podnetd's own tunnel to the wanted state. */
export async function compareTunnel(
  { tunnels, netlink }: OverlayKernel,
  desired: OverlayShape,
): Promise<OverlayChange[]> {
  const { name } = desired;
  const open = tunnels.get(name);
  const link = open && (await netlink.link(open.device));
  return planTunnel(name, wantedTunnel(desired), open, link?.kind === "tun");
}

/** The hosts that are reached without the overlay's device. */
export async function directOf(
  { netlink }: OverlayKernel,
  { backend }: OverlayShape,
  addresses: readonly Ip[],
): Promise<ReadonlySet<Ip>> {
  if (backend.kind !== "vxlan" || !backend.directRouting) return new Set();
  return observeDirect(netlink, addresses);
}

/** Queried only if the checksum setting is configured. */
function withChecksums(
  { checksums }: OverlayKernel,
  { backend }: OverlayShape,
  observed: ObservedSide,
): ObservedSide {
  const { device } = observed;
  if (backend.kind !== "vxlan" || backend.txChecksum === undefined || device?.kind !== "vxlan")
    return observed;
  const txChecksum = checksums.left(device.device);
  return { ...observed, device: { ...device, txChecksum } };
}

async function compareFormer(
  { netlink }: OverlayKernel,
  { name, sides, backend }: OverlayShape,
): Promise<OverlayChange[]> {
  const wanted = new Set(
    backend.kind === "vxlan" ? sides.flatMap(({ vtep }) => vtep?.device ?? []) : [],
  );
  const marked = await observeMarked(netlink);
  return marked
    .filter(({ device, alias }) => alias === overlayMark(name) && !wanted.has(device))
    .map(({ device }) => ({ kind: "delete-device", device }));
}
