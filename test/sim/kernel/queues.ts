import { ourQueue, type TokenBucket } from "../../../linux/rtnetlink/qdisc.ts";
import { parseFilter } from "../../../linux/rtnetlink/redirect.ts";
import { addRedirect } from "../../../linux/rtnetlink/redirect.ts";
import { Reader } from "../../../linux/rtnetlink/reader.ts";
import {
  readTcmsg,
  TC_H_INGRESS,
  TC_H_ROOT,
  TCA_KIND,
  TCA_OPTIONS,
  tcmsg,
} from "../../../linux/rtnetlink/traffic-control.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { Errno, refuseIf } from "./errno.ts";
import type { FakeLink, FakeLinks } from "./links.ts";

// include/uapi/linux/pkt_sched.h (Linux 6.1)
const TCA_TBF_PARMS = 1;
const TCA_TBF_RATE64 = 4;
const TCA_TBF_BURST = 6;
const beyond32 = 0xffffffff;
const nanosecondsPerTick = 64;
const mostTicks = 0xffffffff;

/** RTM_NEWQDISC: a token bucket in place of what is there, or a place for filters. */
export function changeQueue(links: FakeLinks, payload: Uint8Array): void {
  const { header, attributes } = readTcmsg(payload, "a qdisc");
  const link = links.get(header.index);
  const kind = attributes.text(TCA_KIND);
  if (kind === "ingress" && header.parent === TC_H_INGRESS) {
    refuseIf(link.filters !== undefined, "EEXIST");
    link.filters = [];
    return;
  }
  const isRoot = header.parent === TC_H_ROOT;
  refuseIf(!isRoot && link.queue === undefined, "ENOENT");
  links.report({ kind: "traffic-control", index: link.index });
  if (!isRoot && kind === "bfifo") {
    link.inner = undefined;
    return;
  }
  refuseIf(kind !== "tbf", "ENOENT");
  const options = attributes.nested(TCA_OPTIONS);
  const parms = options?.get(TCA_TBF_PARMS);
  if (options === undefined || parms === undefined) throw new Errno("EINVAL");
  const reader = new Reader(parms, "a token bucket");
  const large = options.get(TCA_TBF_RATE64);
  const rate =
    large === undefined
      ? reader.u32(8)
      : Number(new DataView(large.buffer, large.byteOffset).getBigUint64(0, true));
  refuseIf(rate === 0, "EINVAL");
  const leastCost = reader.u16(6);
  link[isRoot ? "queue" : "inner"] = {
    rate,
    burst: options.u32(TCA_TBF_BURST) ?? 0,
    limit: reader.u32(24),
    ...(leastCost === 0 ? {} : { leastCost }),
  };
}

/** RTM_DELQDISC of a root queue, with what is inside. */
export function removeQueue(links: FakeLinks, payload: Uint8Array): void {
  const { header } = readTcmsg(payload, "a qdisc");
  const link = links.get(header.index);
  refuseIf(header.parent !== TC_H_ROOT || link.queue === undefined, "ENOENT");
  Object.assign(link, { queue: undefined, inner: undefined });
  links.report({ kind: "traffic-control", index: link.index });
}

/**
 * RTM_NEWTFILTER, of which podnet makes one kind, and RTM_DELTFILTER, which takes all of a link's.
 */
export function changeFilters(links: FakeLinks, payload: Uint8Array, isNew: boolean): void {
  const { header } = readTcmsg(payload, "a filter");
  const link = links.get(header.index);
  const { filters } = link;
  if (filters === undefined) throw new Errno("EINVAL");
  links.report({ kind: "traffic-control", index: link.index });
  if (!isNew) {
    // Filters of one priority, which is that of all here; none is an error then.
    refuseIf(filters.length === 0 && header.info >>> 16 !== 0, "ENOENT");
    link.filters = [];
    return;
  }
  const { redirectsTo } = parseFilter(payload) ?? {};
  if (redirectsTo === undefined || !links.all.has(redirectsTo)) throw new Errno("ENODEV");
  filters.push(redirectsTo);
}

/** RTM_GETQDISC of one queue. */
export function answerQueue(links: FakeLinks, payload: Uint8Array): Uint8Array {
  const { header } = readTcmsg(payload, "a qdisc");
  const link = links.get(header.index);
  if (header.parent === TC_H_INGRESS) {
    refuseIf(link.filters === undefined, "EINVAL");
    return tcmsg(link.index, header.handle, TC_H_INGRESS)
      .attributeText(TCA_KIND, "ingress")
      .finish();
  }
  return bucketMessage(link, header.parent === TC_H_ROOT ? link.queue : link.inner);
}

function bucketMessage({ index }: FakeLink, queue: TokenBucket | undefined): Uint8Array {
  if (queue === undefined) throw new Errno("EINVAL");
  const { rate, burst, limit, leastCost = 0 } = queue;
  const ticks = Math.min(mostTicks, Math.floor(((burst / rate) * 1e9) / nanosecondsPerTick));
  const parms = new Writer().u32(0).u16(0).u16(leastCost).u32(Math.min(rate, beyond32));
  parms.u32(0).u32(0).u32(0).u32(limit).u32(ticks).u32(0);
  const rate64 = new Uint8Array(8);
  new DataView(rate64.buffer).setBigUint64(0, BigInt(rate), true);
  return tcmsg(index, ourQueue, TC_H_ROOT)
    .attributeText(TCA_KIND, "tbf")
    .nested(TCA_OPTIONS, (options) => {
      options.attribute(TCA_TBF_PARMS, parms.finish());
      if (rate >= beyond32) options.attribute(TCA_TBF_RATE64, rate64);
    })
    .finish();
}

/**
 * RTM_GETTFILTER: none of a link that is not there, or can have none. A filter is reported as it is
 * made.
 */
export const answerFilters = (links: FakeLinks, payload: Uint8Array): Uint8Array[] => {
  const { header } = readTcmsg(payload, "filters");
  return (links.find(header.index)?.filters ?? []).map(
    (to) => addRedirect(header.index, to).payload,
  );
};
