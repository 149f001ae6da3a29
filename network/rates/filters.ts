import type { Request } from "../../linux/rtnetlink/message.ts";
import { addIngress, getIngress, parseQdisc } from "../../linux/rtnetlink/qdisc.ts";
import {
  addRedirect,
  deleteFilters,
  getFilters,
  type IngressFilter,
  parseFilter,
  redirectPriority,
} from "../../linux/rtnetlink/redirect.ts";
import type { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";

/** The filters on what comes in by a link; undefined: it can have none. */
export async function observeFilters(
  netlink: Pick<Rtnetlink, "answer" | "answers">,
  index: number,
): Promise<readonly IngressFilter[] | undefined> {
  const ingress = await netlink.answer(getIngress(index), parseQdisc);
  return ingress === undefined ? undefined : netlink.answers(getFilters(index), parseFilter);
}

/**
 * The requests that redirect all frames that arrive by `from` to `to`; empty if that is in place.
 * Foreign filters come after ours, and stay; a foreign filter at our place is deleted. Pure.
 */
export function redirectRequests(
  from: number,
  to: number,
  filters: readonly IngressFilter[] | undefined,
): Request[] {
  if (filters === undefined) return [addIngress(from), addRedirect(from, to)];
  const [first, ...others] = filters.filter(({ priority }) => priority === redirectPriority);
  if (first?.redirectsTo === to && others.length === 0) return [];
  const inPlace = first === undefined ? [] : [deleteFilters(from, redirectPriority)];
  return [...inPlace, addRedirect(from, to)];
}
