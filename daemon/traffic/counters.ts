import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import {
  type CountedLink,
  getCounters,
  getTapCounters,
  parseCounters,
} from "../../linux/rtnetlink/counters.ts";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { plannedKind } from "../pods/interfaces/kinds/kind-of.ts";
import { type InterfacePlan, withNic } from "../pods/store/pod-plan.ts";

/**
 * So many links are asked for one by one; more come in a list of all of them, which costs less
 * then.
 */
const oneByOne = 8;

/** A tap, and where it is. */
export interface PlacedTap {
  readonly tap: IfName;
  /** Path of its network namespace; absent: podnetd's own. */
  readonly netns?: string;
}

/** Where the taps of interfaces are. Pure. */
export const tapsOf = (interfaces: readonly InterfacePlan[]): PlacedTap[] =>
  withNic(interfaces).map((each) => {
    const { replaced } = plannedKind(each);
    return { tap: each.nic.tap, ...(replaced && { netns: replaced.netns }) };
  });

/**
 * The counters of taps, by name, wherever they are. One that is not there, or goes meanwhile, is
 * left out.
 */
export async function placedCounters(
  netlink: Pick<Rtnetlink, "answers">,
  taps: readonly PlacedTap[],
): Promise<ReadonlyMap<string, CountedLink>> {
  const own = taps.flatMap(({ tap, netns }) => (netns === undefined ? [tap] : []));
  const counted = new Map(await tapCounters(netlink, own));
  // One after the other: each has a socket of its own meanwhile.
  for (const { tap, netns } of taps)
    for (const link of netns === undefined ? [] : await countersThere(netns, tap))
      counted.set(tap, link);
  return counted;
}

/** The counters of a tap in a namespace; nothing where podnetd cannot look. */
async function countersThere(netns: string, tap: IfName): Promise<readonly CountedLink[]> {
  try {
    using namespace = NetworkNamespace.open(netns);
    using netlink = namespace.enter(() => Rtnetlink.openSmall());
    return await countersOf(netlink, tap);
  } catch (error) {
    if (isPodnetError(error, "NETNS_UNUSABLE", "SYSCALL_FAILED")) return [];
    throw error;
  }
}

/**
 * The counters of taps of podnetd's own namespace, by name. A tap that is not there, or goes
 * meanwhile, is left out.
 */
export async function tapCounters(
  netlink: Pick<Rtnetlink, "answers">,
  taps: readonly IfName[],
): Promise<ReadonlyMap<string, CountedLink>> {
  const found =
    taps.length > oneByOne
      ? await netlink.answers(getTapCounters(), parseCounters)
      : (await Promise.all(taps.map((tap) => countersOf(netlink, tap)))).flat();
  const wanted = new Set<string>(taps);
  return new Map(found.filter(({ name }) => wanted.has(name)).map((link) => [link.name, link]));
}

async function countersOf(
  netlink: Pick<Rtnetlink, "answers">,
  tap: IfName,
): Promise<readonly CountedLink[]> {
  try {
    return await netlink.answers(getCounters(tap), parseCounters);
  } catch (error) {
    if (isPodnetError(error, "NETLINK_FAILED") && error.details["errno"] === "ENODEV") return [];
    throw error;
  }
}
