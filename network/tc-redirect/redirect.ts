import { setTimeout as delay } from "node:timers/promises";
import { throwIfAborted } from "../../core/aborting.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { addIngress, deleteIngress, getIngress, parseQdisc } from "../../linux/rtnetlink/qdisc.ts";
import { addRedirect, getFilters, parseFilter } from "../../linux/rtnetlink/redirect.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { openTap, type Tap } from "../../linux/tun.ts";
import { writeOptional } from "../bridge/observe.ts";
import { type TakenOver, takenOver } from "./adopted.ts";

/** A VM that takes the place of a link in a namespace. */
export interface JoinDesired {
  /** A path that leads to the namespace. */
  readonly netns: string;
  /** The link there, as CNI named it: `eth0`. */
  readonly link: string;
  /** The machine's own link, to be made alongside it. */
  readonly tap: IfName;
}

export interface Joined {
  /** For QEMU: an open descriptor keeps the tap. It is in the namespace, next to the link. */
  readonly tap: Tap;
  readonly taken: TakenOver;
}

/** (The kernel works at queues outside of its one lock, too, and is busy then.) */
const attempts = 5;
const pauseMs = 10;

/**
 * Connects a VM's tap to a link in a namespace: each frame that one receives is sent by the other,
 * before the namespace's own kernel sees it. The link keeps its addresses, because plugins look for
 * them there, but only the VM answers for them: docs/decisions/0047. A redirect that a crash
 * interrupted is made again.
 *
 * Throws `NETNS_UNUSABLE`, `INTERFACE_NOT_FOUND`, `TAP_CONFLICT`, `NETLINK_FAILED`,
 * `SYSCALL_FAILED`, `CANCELLED`. Then nothing is redirected.
 */
export async function joinNamespace(desired: JoinDesired, signal: AbortSignal): Promise<Joined> {
  using namespace = NetworkNamespace.open(desired.netns);
  using netlink = namespace.enter(() => Rtnetlink.open());
  const link = await findLink(netlink, desired);
  const taken = takenOver({
    link,
    addresses: await netlink.addresses({ index: link.index }),
    routes: await netlink.routes({ link: link.index }),
    neighbours: await netlink.neighbours({ index: link.index }),
  });
  throwIfAborted(signal, "Joining a machine to a namespace");
  await refuseOthers(netlink, desired, link);
  await dropRedirect(netlink, link.index);
  const tap = namespace.enter(() => openQuietTap(desired.tap));
  try {
    const { index } = await requireTap(netlink, desired);
    await insist(netlink, signal, [
      changeLink(index, { mtu: taken.mtu, up: true }),
      addIngress(link.index),
      addIngress(index),
      addRedirect(index, link.index),
      addRedirect(link.index, index),
      ...(link.up ? [] : [changeLink(link.index, { up: true })]),
    ]);
    return { tap, taken };
  } catch (error) {
    await dropRedirect(netlink, link.index);
    await tap.close();
    throw error;
  }
}

/**
 * Ends a redirect: the link is the namespace's own again, and the tap disappears when its last
 * descriptor is closed. Absence is success, also that of the namespace, which takes both along. A
 * redirect to another VM stays.
 */
export async function leaveNamespace(desired: JoinDesired): Promise<void> {
  const opened = openIfThere(desired.netns);
  if (opened === undefined) return;
  using namespace = opened;
  using netlink = namespace.enter(() => Rtnetlink.open());
  const link = await netlink.link(desired.link);
  if (link !== undefined && (await otherMachine(netlink, desired, link)) !== undefined) return;
  if (link !== undefined) await dropRedirect(netlink, link.index);
  // A tap without an open descriptor is gone already; a tap of a running VM receives no more
  // frames.
  const tap = await netlink.link(desired.tap);
  if (tap?.tun !== undefined) await dropRedirect(netlink, tap.index);
}

function openIfThere(path: string): NetworkNamespace | undefined {
  try {
    return NetworkNamespace.open(path);
  } catch (error) {
    if (isPodnetError(error, "NETNS_UNUSABLE") && error.details["trouble"] !== "unreadable")
      return undefined;
    throw error;
  }
}

/**
 * The tap gets no address of the namespace: the namespace would speak IPv6 to the VM from a MAC
 * that no machine owns.
 */
function openQuietTap(name: IfName): Tap {
  const tap = openTap(name);
  try {
    const sysctl = { read: readSysctl, write: writeSysctl };
    writeOptional(sysctl, `net/ipv6/conf/${name}/addr_gen_mode`, "1");
    return tap;
  } catch (error) {
    void tap.close();
    throw error;
  }
}

export async function findLink(
  netlink: Rtnetlink,
  { link: name, netns }: JoinDesired,
): Promise<Link & { readonly mac: NonNullable<Link["mac"]> }> {
  const link = await netlink.link(name);
  if (link?.mac !== undefined && !link.loopback) return { ...link, mac: link.mac };
  throw new PodnetError(
    "INTERFACE_NOT_FOUND",
    `There is no Ethernet link "${name}" in "${netns}"`,
    {
      hint: "A CNI plugin makes it before the VM starts, and it must stay while the VM runs: restart the pod when it exists",
      details: { link: name, path: netns },
    },
  );
}

/**
 * The tap of another VM to which the link is redirected. (A tap or tun without such a redirect is
 * foreign, of a VPN for example. A redirect to a deleted tap leads nowhere.)
 */
async function otherMachine(
  netlink: Rtnetlink,
  { tap }: JoinDesired,
  { index }: Link,
): Promise<Link | undefined> {
  for (const { redirectsTo } of await netlink.answers(getFilters(index), parseFilter)) {
    // (The kernel says 0 of one that is gone.)
    const target = redirectsTo ? await netlink.link(redirectsTo) : undefined;
    if (target?.tun !== undefined && target.name !== tap) return target;
  }
  return undefined;
}

/** A second machine would take the link from the first. Throws `TAP_CONFLICT`. */
async function refuseOthers(netlink: Rtnetlink, desired: JoinDesired, link: Link): Promise<void> {
  const other = await otherMachine(netlink, desired, link);
  if (other === undefined) return;
  const { netns } = desired;
  throw new PodnetError(
    "TAP_CONFLICT",
    `Network namespace "${netns}" has a machine in it already, by tap "${other.name}"`,
    { hint: "Give each machine a namespace of its own", details: { tap: other.name, path: netns } },
  );
}

export async function requireTap(
  netlink: Rtnetlink,
  { tap: name, netns }: JoinDesired,
): Promise<Link> {
  const tap = await netlink.link(name);
  if (tap?.tun !== undefined) return tap;
  throw new PodnetError("NETLINK_FAILED", `Tap "${name}" is not in "${netns}" any more`, {
    hint: "It was removed or renamed, or the path leads elsewhere by now; restart the pod",
    details: { link: name, path: netns, errno: "ENODEV" },
  });
}

/** Removes the redirect: the namespace receives the link's frames again. */
async function dropRedirect(netlink: Rtnetlink, index: number): Promise<void> {
  if ((await netlink.answer(getIngress(index), parseQdisc)) === undefined) return;
  await insist(netlink, new AbortController().signal, [deleteIngress(index)]);
}

/** Carries out requests one after the other, each again while the kernel is busy. */
export async function insist(
  netlink: Rtnetlink,
  signal: AbortSignal,
  requests: readonly Request[],
): Promise<void> {
  for (const request of requests) {
    throwIfAborted(signal, "Joining a machine to a namespace");
    for (let attempt = 1; ; attempt++) {
      const [failure] = await netlink.tryBatch([request]);
      if (failure === undefined) break;
      if (failure.details["errno"] !== "EBUSY" || attempt === attempts) throw failure;
      await delay(pauseMs * attempt);
    }
  }
}
