import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { Deviation } from "../model/deviation.ts";
import { type Inspection, type InspectOptions, mending } from "../bridge/inspect.ts";
import { observeFilters, redirectRequests } from "../rates/filters.ts";
import { findLink, insist, type JoinDesired, requireTap } from "./redirect.ts";

/** The deviations of a redirect, and the requests that repair them. */
interface Amends {
  readonly deviation: Deviation;
  readonly requests: readonly Request[];
}

/**
 * Looks at a join and heals it if asked to: that what comes in by link and tap leaves by the other
 * one, and that both are up. Whatever else there is in the namespace is its plugins'. Nothing is
 * made there unless the machine's tap is there. What fails is answered; throws when the signal
 * aborts.
 */
export async function inspectJoin(
  desired: JoinDesired,
  heal: InspectOptions["heal"],
  signal: AbortSignal,
): Promise<Inspection> {
  using opened = new DisposableStack();
  return await mending(heal, async () => {
    const namespace = opened.use(NetworkNamespace.open(desired.netns));
    const netlink = opened.use(namespace.enter(() => Rtnetlink.openSmall()));
    const amends = await lookAtJoin(netlink, desired);
    const requests = amends.flatMap((each) => each.requests);
    return {
      found: amends.map(({ deviation }) => deviation),
      mend: () => insist(netlink, signal, requests),
    };
  });
}

/** A description of a redirect, in the order in which it is inspected. Pure. */
export const joinText = ({ netns, link, tap }: JoinDesired): string[] => [
  `in ${netns}: links ${link} and ${tap} up`,
  `in ${netns}: ${wayOf(link)} is ${ledTo(tap)}`,
  `in ${netns}: ${wayOf(tap)} is ${ledTo(link)}`,
];

async function lookAtJoin(netlink: Rtnetlink, desired: JoinDesired): Promise<Amends[]> {
  // Without the tap, the path leads to another namespace by now, with which the VM is not
  // connected.
  const tap = await requireTap(netlink, desired);
  const link = await findLink(netlink, desired);
  const ends = [
    [link, tap],
    [tap, link],
  ] as const;
  const ways = await Promise.all(
    ends.map(async ([from, to]): Promise<Amends> => {
      const filters = await observeFilters(netlink, from.index);
      const requests = redirectRequests(from.index, to.index, filters);
      const found = filters?.length ? "led elsewhere" : "not led on";
      return {
        deviation: { subject: wayOf(from.name), found, wanted: ledTo(to.name) },
        requests,
      };
    }),
  );
  return [...ends.map(([{ up, name, index }]) => upAgain(name, index, up)), ...ways].filter(
    ({ requests }) => requests.length > 0,
  );
}

const upAgain = (name: string, index: Link["index"], up: boolean): Amends => ({
  deviation: { subject: `link ${name} state`, found: "down", wanted: "up" },
  requests: up ? [] : [changeLink(index, { up: true })],
});

const wayOf = (link: string): string => `what comes in by ${link}`;

const ledTo = (link: string): string => `led to ${link}`;
