import { setImmediate as nextTurn } from "node:timers/promises";
import { throwIfAborted } from "../../core/aborting.ts";
import type { Ip, Mac } from "../../core/address.ts";
import { assertNever } from "../../core/brand.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { addFdb, deleteFdb } from "../../linux/rtnetlink/fdb.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { deleteNeighbour, replaceNeighbour } from "../../linux/rtnetlink/neighbour.ts";
import { deleteRoute, replaceRoute } from "../../linux/rtnetlink/route-requests.ts";
import { mark } from "../model/desired.ts";
import {
  isPeerChange,
  type OverlayChange,
  type PeerChange,
  type TunnelChange,
  type TunnelPeerChange,
} from "./change.ts";
import type { OverlayKernel, OverlayNetlink } from "./kernel.ts";
import {
  applyTunnel,
  applyTunnelPeers,
  isTunnelChange,
  isTunnelPeer,
  keepToItself,
} from "./udp/apply.ts";

export interface Applied {
  readonly done: readonly OverlayChange[];
  /** The failures of single peers, which do not hold up the others. */
  readonly failures: readonly PodnetError[];
}

/**
 * Applies changes in order. The first failure of a device ends the call, because peers' entries are
 * on the device. The changes of peers are all tried, whatever fails, but a route is not made if its
 * neighbour or forwarding entry failed.
 */
export async function applyOverlay(
  changes: readonly OverlayChange[],
  kernel: OverlayKernel,
  signal: AbortSignal,
): Promise<Applied> {
  const done: OverlayChange[] = [];
  for (const change of changes) {
    if (isPeerChange(change) || isTunnelPeer(change)) continue;
    throwIfAborted(signal, "A change of an overlay");
    await (isTunnelChange(change) ? applyTunnel(change, kernel) : applyDevice(change, kernel));
    done.push(change);
  }
  const tunnelled = changes.filter(isTunnelPeer);
  applyTunnelPeers(tunnelled, kernel.tunnels);
  const peers = await applyPeers(changes.filter(isPeerChange), kernel.netlink, signal);
  return { done: [...done, ...tunnelled, ...peers.done], failures: peers.failures };
}

async function applyDevice(
  change: Exclude<OverlayChange, PeerChange | TunnelChange | TunnelPeerChange>,
  { netlink, sysctl, checksums }: OverlayKernel,
): Promise<void> {
  const { device } = change;
  switch (change.kind) {
    case "delete-device":
      await netlink.deleteLink(device);
      return;
    case "create-device": {
      const { vni, port, local, parent, learning, gbp } = change.vxlan;
      const link = (await indexes(netlink, [parent])).get(parent) ?? 0;
      const vxlan = { id: vni, port, local, link, learning, ...(gbp ? { gbp } : {}) };
      const { mac, mtu, group, alias } = change.set;
      try {
        await netlink.addVxlan({
          name: device,
          vxlan,
          ...(mac === undefined ? {} : { mac }),
          ...(mtu === undefined ? {} : { mtu }),
          ...(group === undefined ? {} : { group }),
          ...(alias === undefined ? {} : { alias }),
        });
      } catch (error) {
        throw isPodnetError(error) && error.details["errno"] === "EEXIST"
          ? networkTaken(device, vni, error)
          : error;
      }
      keepToItself(device, sysctl);
      return;
    }
    case "set-device": {
      const { vlanFiltering: _bridgesOnly, ...set } = change.set;
      await netlink.changeLink(device, set);
      return;
    }
    case "set-learning":
      await netlink.changeVxlan(device, { id: change.vni, learning: change.learning });
      return;
    case "set-tx-checksum":
      checksums.leave(device, change.left);
      return;
    case "add-address":
    case "remove-address": {
      const index = (await indexes(netlink, [device])).get(device) ?? 0;
      if (change.kind === "add-address")
        await netlink.addAddress(index, change.prefix, { noDad: true });
      else await netlink.deleteAddress(index, change.prefix);
      return;
    }
    default:
      assertNever(change);
  }
}

/** The kernel knows networks by their numbers: another device has this one. */
const networkTaken = (device: IfName, vni: number, cause: PodnetError): PodnetError =>
  new PodnetError("OVERLAY_CONFLICT", `VXLAN ${vni} belongs to another device than "${device}"`, {
    hint: "Look for it (ip -d link show type vxlan), and remove it or give the overlay another VNI",
    details: { link: device, vni, ...cause.details },
    cause,
  });

/**
 * Messages in one system call: some milliseconds of the kernel's, after which others have their
 * turn.
 */
const atOnce = 256;

async function applyPeers(
  changes: readonly PeerChange[],
  netlink: OverlayNetlink,
  signal: AbortSignal,
): Promise<{ done: PeerChange[]; failures: PodnetError[] }> {
  const links = await indexes(netlink, changes.map(linkOf));
  const done: PeerChange[] = [];
  const failures: PodnetError[] = [];
  const unreached = new Set<Ip | Mac>();
  const gateways = new Map<Ip, Mac>();
  for (const change of changes)
    if (change.kind === "set-neighbour") gateways.set(change.ip, change.mac);
  const isUnreached = (change: PeerChange): boolean => {
    if (change.kind !== "set-route" || change.gateway === undefined) return false;
    const mac = gateways.get(change.gateway);
    return unreached.has(change.gateway) || (mac !== undefined && unreached.has(mac));
  };
  for (let start = 0; start < changes.length; ) {
    throwIfAborted(signal, "A change of an overlay");
    const some = sameKind(changes, start);
    start += some.length;
    const tried = some.filter((change) => links.has(linkOf(change)) && !isUnreached(change));
    const outcomes = await netlink.tryBatch(tried.map((change) => request(change, links)));
    for (const [i, change] of tried.entries()) {
      const failure = outcomes[i];
      if (failure === undefined || isAbsence(change, failure)) {
        done.push(change);
        continue;
      }
      failures.push(failure);
      if (change.kind === "set-neighbour") unreached.add(change.ip);
      if (change.kind === "set-fdb") unreached.add(change.mac);
    }
    await nextTurn();
  }
  // The entries of a deleted link have gone with it.
  const lost = changes.filter((change) => !links.has(linkOf(change)) && !isRemoval(change));
  failures.push(...[...new Set(lost.map(linkOf))].map(linkGone));
  return { done, failures };
}

const linkOf = (change: PeerChange): IfName => ("device" in change ? change.device : change.link);

const isRemoval = ({ kind }: PeerChange): boolean => kind.startsWith("remove-");

const linkGone = (link: IfName): PodnetError =>
  new PodnetError("NETLINK_FAILED", `Link "${link}" of the overlay has gone`, {
    hint: "It is looked for again; bring it back if it is not podnet's",
    details: { link, errno: "ENODEV" },
  });

/**
 * Changes of one kind from here on, as many as go at once: what a route depends on is done before
 * it is asked for.
 */
function sameKind(changes: readonly PeerChange[], start: number): readonly PeerChange[] {
  const kind = changes[start]?.kind;
  let end = start + 1;
  while (end < changes.length && end - start < atOnce && changes[end]?.kind === kind) end++;
  return changes.slice(start, end);
}

const absent: readonly unknown[] = ["ENODEV", "ESRCH", "ENOENT"];

/** Whether the entry to delete is absent, which counts as success. */
const isAbsence = (change: PeerChange, { details }: PodnetError): boolean =>
  isRemoval(change) && absent.includes(details["errno"]);

function request(change: PeerChange, links: ReadonlyMap<IfName, number>): Request {
  const index = links.get(linkOf(change)) as number;
  switch (change.kind) {
    case "set-neighbour": {
      const { ip: address, mac } = change;
      return replaceNeighbour({ index, address, mac, protocol: mark.routeProtocol });
    }
    case "remove-neighbour":
      return deleteNeighbour(index, change.ip);
    case "set-fdb":
    case "remove-fdb": {
      const { mac, remote } = change;
      const entry = { index, mac, remote, table: "self", state: "permanent" } as const;
      return change.kind === "set-fdb" ? addFdb(entry, "replace") : deleteFdb(entry);
    }
    case "set-route":
    case "remove-route": {
      const { destination, gateway, onlink } = change;
      const protocol = change.kind === "set-route" ? mark.routeProtocol : change.protocol;
      const route = {
        destination,
        ...(gateway === undefined ? {} : { gateway }),
        link: index,
        ...(onlink ? { onlink } : {}),
        protocol,
      };
      if (change.kind === "set-route") return replaceRoute(route);
      return deleteRoute({ ...route, ...(change.metric === 0 ? {} : { metric: change.metric }) });
    }
    default:
      return assertNever(change);
  }
}

/** Indexes of links by name; those that are not there are left out. */
async function indexes(
  netlink: OverlayNetlink,
  names: readonly IfName[],
): Promise<ReadonlyMap<IfName, number>> {
  const found = new Map<IfName, number>();
  for (const name of new Set(names)) {
    const link = await netlink.link(name);
    if (link !== undefined) found.set(name, link.index);
  }
  return found;
}
