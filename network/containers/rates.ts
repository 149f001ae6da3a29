import type { IfName } from "../../core/names.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { changeLink } from "../../linux/rtnetlink/link-requests.ts";
import {
  getRootQueue,
  parseQdisc,
  type Qdisc,
  setTokenBucket,
  type TokenBucket,
} from "../../linux/rtnetlink/qdisc.ts";
import type { IngressFilter } from "../../linux/rtnetlink/redirect.ts";
import { absent, type Deviation } from "../model/deviation.ts";
import { observeFilters, redirectRequests } from "../tc-redirect/filters.ts";
import { atOnce, bucketOf, hasBucket } from "./bandwidth.ts";
import type { AttachmentFragment, RateLimit } from "./desired.ts";
import type { AttachmentNetlink } from "./kernel.ts";
import type { Step } from "./step.ts";

/**
 * The objects that limit an attachment's rates: on the host's end for traffic into the container,
 * on a separate link for traffic out of it.
 */
export interface ObservedRates {
  readonly queue: Qdisc | undefined;
  /** The filters of the host's end; undefined if it can have none. */
  readonly filters: readonly IngressFilter[] | undefined;
  readonly ifb: { readonly link: Link; readonly queue: Qdisc | undefined } | undefined;
}

/** The link that the way out needs, if it has a limit. */
export const wantedIfb = ({ ifb, bandwidth }: AttachmentFragment): IfName | undefined =>
  bandwidth?.fromGuest === undefined ? undefined : ifb;

export async function observeRates(
  netlink: AttachmentNetlink,
  fragment: AttachmentFragment,
  host: Link,
): Promise<ObservedRates> {
  const queueOf = ({ index }: Link): Promise<Qdisc | undefined> =>
    netlink.answer(getRootQueue(index), parseQdisc);
  const name = wantedIfb(fragment);
  const link = name === undefined ? undefined : await netlink.link(name);
  return {
    queue: await queueOf(host),
    filters: await observeFilters(netlink, host.index),
    ifb: link === undefined ? undefined : { link, queue: await queueOf(link) },
  };
}

/**
 * The steps from the observed to the desired rates, once there is a link for traffic out of the
 * container. If podnet has no rate to set, existing limits are foreign: a plugin `bandwidth` after
 * ours in the list limits this link. Pure.
 */
export function planRates(
  fragment: AttachmentFragment,
  host: Link,
  observed: ObservedRates,
): Step[] {
  const { bandwidth, mtu } = fragment;
  const wanted = (limit: RateLimit | undefined): TokenBucket | undefined =>
    limit === undefined ? undefined : bucketOf(limit, mtu);
  return [
    ...planQueue(host, wanted(bandwidth?.toGuest), observed.queue),
    ...planWayOut(host, wanted(bandwidth?.fromGuest), observed, wantedIfb(fragment), mtu),
  ];
}

function planQueue(
  { index, name }: Link,
  wanted: TokenBucket | undefined,
  found: Qdisc | undefined,
): Step[] {
  const rate = (is: Qdisc | undefined, should: TokenBucket): Deviation => ({
    subject: `rate of ${name}`,
    found: is?.tbf === undefined ? absent : rateText(is.tbf.rate, atOnce(is.tbf)),
    wanted: rateText(should.rate, should.burst),
  });
  return wanted === undefined || hasBucket(found?.tbf, wanted)
    ? []
    : [{ deviation: rate(found, wanted), request: setTokenBucket(index, wanted) }];
}

function planWayOut(
  host: Link,
  wanted: TokenBucket | undefined,
  { filters, ifb }: ObservedRates,
  name: IfName | undefined,
  mtu: number,
): Step[] {
  if (wanted === undefined || name === undefined || ifb === undefined) return [];
  const { link, queue } = ifb;
  return [
    ...planQueue(link, wanted, queue),
    ...(link.up && link.mtu === mtu
      ? []
      : [
          {
            deviation: {
              subject: `link ${name}`,
              found: `${link.up ? "up" : "down"} mtu ${link.mtu}`,
              wanted: `up mtu ${mtu}`,
            },
            request: changeLink(link.index, { mtu, up: true }),
          },
        ]),
    ...redirectRequests(host.index, link.index, filters).map((request) => ({
      deviation: wayOut(host, "otherwise", `by ${name}`),
      request,
    })),
  ];
}

const wayOut = ({ name }: Link, found: string, wanted: string): Deviation => ({
  subject: `way out by ${name}`,
  found,
  wanted,
});

const rateText = (rate: number, burst: number): string =>
  `${rate} bytes a second, ${burst} at once`;
