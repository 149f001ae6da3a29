import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import {
  type CountedLink,
  getCounters,
  getTapCounters,
  parseCounters,
} from "../../linux/rtnetlink/counters.ts";
import type { Rtnetlink } from "../../linux/rtnetlink-socket.ts";

/** So many links are asked for one by one; more come in a list of all of them, which costs less then. */
const oneByOne = 8;

/** The counters of taps, by name. A tap that is not there, or goes meanwhile, is left out. */
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
