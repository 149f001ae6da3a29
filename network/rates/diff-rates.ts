import { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { ObservedBucket } from "../../linux/rtnetlink/qdisc.ts";
import { redirectPriority } from "../../linux/rtnetlink/redirect.ts";
import type { Change, LinkSettings } from "../model/change.ts";
import { isOurGroup, mark, type PortDesired } from "../model/desired.ts";
import { absent } from "../model/deviation.ts";
import type { ObservedLink, ObservedPod, ObservedQueues } from "../model/observed.ts";
import { bucketText, type Rate } from "../model/rates.ts";
import { bucketsOf, foundBucket, hasBucket } from "./bucket.ts";
import { redirectRequests } from "./filters.ts";

/**
 * The changes that limit a port's rates: by the queue of the port for traffic to the guest, by a
 * link of its own for traffic from the guest. A queue that podnet has not made stays where podnet
 * has no rate to set: a plugin `bandwidth` after ours in a list limits this link. Pure. Throws
 * `NAME_IN_USE` if the name of the link is taken.
 */
export function diffRates(port: PortDesired, tap: ObservedLink, observed: ObservedPod): Change[] {
  const { rates, mtu } = port;
  return [
    ...diffQueues(port.tap, rates?.toGuest, tap.queues, mtu),
    ...diffWayOut(port, tap, port.ifb === undefined ? undefined : observed.get(port.ifb)),
  ];
}

function diffQueues(
  link: IfName,
  rate: Rate | undefined,
  { root, inner }: ObservedQueues = {},
  mtu: number,
): Change[] {
  const [first, second] = bucketsOf(rate, mtu);
  const found = (bucket: ObservedBucket | undefined): string =>
    bucket === undefined ? absent : bucketText(foundBucket(bucket));
  if (first === undefined)
    return root === undefined
      ? []
      : [{ kind: "set-rate", link, place: "root", found: found(root) }];
  const changes: Change[] = [];
  if (!hasBucket(root, first))
    changes.push({ kind: "set-rate", link, place: "root", bucket: first, found: found(root) });
  if (second === undefined && inner !== undefined)
    changes.push({ kind: "set-rate", link, place: "inner", found: found(inner) });
  if (second !== undefined && !hasBucket(inner, second))
    changes.push({ kind: "set-rate", link, place: "inner", bucket: second, found: found(inner) });
  return changes;
}

function diffWayOut(
  { ifb: name, tap: from, alias, mtu, rates }: PortDesired,
  tap: ObservedLink,
  ifb: ObservedLink | undefined,
): Change[] {
  if (name === undefined) return [];
  const rate = rates?.fromGuest;
  if (ifb === undefined)
    return rate === undefined
      ? []
      : [
          { kind: "create-ifb", name, mtu, alias },
          ...diffQueues(name, rate, {}, mtu),
          { kind: "redirect", from, to: name },
        ];
  if (!isOurs(ifb, alias)) throw taken(name);
  if (rate === undefined)
    return [
      ...(leadsTo(tap, ifb.index) ? [{ kind: "redirect", from } as const] : []),
      { kind: "delete-links", links: [name] },
    ];
  const set: LinkSettings = {
    ...(ifb.alias === alias ? {} : { alias }),
    ...(ifb.group === mark.linkGroup ? {} : { group: mark.linkGroup }),
    ...(ifb.mtu === mtu ? {} : { mtu }),
    ...(ifb.up ? {} : { up: true }),
  };
  const inPlace = redirectRequests(tap.index, ifb.index, tap.queues?.filters).length === 0;
  return [
    ...diffQueues(name, rate, ifb.queues, mtu),
    ...(Object.keys(set).length === 0 ? [] : [{ kind: "set-link", name, set } as const]),
    ...(inPlace ? [] : [{ kind: "redirect", from, to: name } as const]),
  ];
}

/** Whether podnet's filter sends frames to a link, which would drop them when it has gone. */
const leadsTo = ({ queues }: ObservedLink, index: number): boolean =>
  queues?.filters?.some(
    ({ priority, redirectsTo }) => priority === redirectPriority && redirectsTo === index,
  ) === true;

/** Ours, whole or as it was born. */
const isOurs = ({ kind, alias, group }: ObservedLink, wanted: string): boolean =>
  kind === "ifb" && (alias === wanted || (alias === undefined && isOurGroup(group)));

const taken = (link: IfName): PodnetError =>
  new PodnetError("NAME_IN_USE", `Link "${link}" is foreign, and podnet's limits need its name`, {
    hint: "Delete or rename that link, and try again",
    details: { link },
  });
