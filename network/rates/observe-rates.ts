import { getInnerQueue, getRootQueue, ourQueue, parseQdisc } from "../../linux/rtnetlink/qdisc.ts";
import type { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { ObservedQueues } from "../model/observed.ts";
import { observeFilters } from "./filters.ts";

type Asking = Pick<Rtnetlink, "answer" | "answers">;

/** The buckets of ours that a link has: a foreign queue counts as none. */
export async function observeQueues(netlink: Asking, index: number): Promise<ObservedQueues> {
  const root = await netlink.answer(getRootQueue(index), parseQdisc);
  if (root?.handle !== ourQueue || root.tbf === undefined) return {};
  const inner = await netlink.answer(getInnerQueue(index), parseQdisc);
  return { root: root.tbf, ...(inner?.tbf === undefined ? {} : { inner: inner.tbf }) };
}

/** The queues of a port, and what its frames pass first. */
export const observeRates = async (netlink: Asking, index: number): Promise<ObservedQueues> => ({
  ...(await observeQueues(netlink, index)),
  filters: await observeFilters(netlink, index),
});
