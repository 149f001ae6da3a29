import type { Link } from "../../../linux/rtnetlink/links/link.ts";
import {
  getIngress,
  getRootQueue,
  parseQdisc,
  type Qdisc,
} from "../../../linux/rtnetlink/qdisc.ts";
import { getFilters, parseFilter } from "../../../linux/rtnetlink/redirect.ts";
import { hasBucket } from "../../../network/rates/bucket.ts";
import { bursts } from "./attachment-sequence.ts";
import type { Attaching } from "./attachment-subject.ts";

/**
 * What both kernels show of containers: queues and filters of the host's links, and what is inside.
 */
export async function observeAttaching(
  { attaching: { host, inside } }: { readonly attaching: Attaching },
  links: readonly Link[],
): Promise<string[]> {
  const nameOf = (index: number | undefined): string =>
    links.find((link) => link.index === index)?.name ?? `${index}`;
  const lines: string[] = [];
  for (const { index, name } of links) {
    const queue = await host.answer(getRootQueue(index), parseQdisc);
    if (queue?.tbf !== undefined) lines.push(`queue ${name} ${bucketText(queue)}`);
    const ingress = await host.answer(getIngress(index), parseQdisc);
    if (ingress === undefined) continue;
    const filters = await host.answers(getFilters(index), parseFilter);
    lines.push(`filters ${name} to ${filters.map((each) => nameOf(each.redirectsTo)).join()}`);
  }
  if (inside === undefined) return lines;
  const there = await inside.links();
  const insideName = (index: number | undefined): string =>
    there.find((link) => link.index === index)?.name ?? "-";
  for (const { name, link, linkNetnsId, kind } of links)
    if (kind === "veth")
      lines.push(
        `pair ${name} ${linkNetnsId === undefined ? `here ${nameOf(link)}` : `inside ${insideName(link)}`}`,
      );
  for (const { name, kind, mac, mtu, up, link } of there) {
    const known = mac === undefined || /^0[02]:00:00:00:00:0/.test(mac) ? mac : "random";
    lines.push(`inside ${[name, kind, known, mtu, up, nameOf(link)].map(String).join(" ")}`);
  }
  for (const { index, prefix } of await inside.addresses())
    if (!/^(?:fe80:|127\.|::1)/.test(prefix)) lines.push(`inside ${insideName(index)} ${prefix}`);
  // Of IPv6 those that addresses bring are not modelled.
  for (const { destination, gateway, link, protocol, metric, table } of await inside.routes())
    if (table === 254 && (protocol === 73 || (protocol === 2 && !destination.includes(":"))))
      lines.push(
        `inside route ${destination} ${gateway} ${insideName(link)} ${protocol} ${metric}`,
      );
  return lines;
}

/**
 * How long a bucket lasts is reported with the kernel's roundings: which of those that are asked
 * for it is.
 */
const bucketText = ({ tbf }: Qdisc): string => {
  const { rate = 0, limit = 0 } = tbf ?? {};
  const burst = bursts.find((each) => hasBucket(tbf, { rate, limit, burst: each }));
  return `${rate} ${limit} ${burst}`;
};
