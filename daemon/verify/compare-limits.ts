import type { Rate } from "../../network/model/rates.ts";
import { type Check, checker } from "./check.ts";
import type { ExpectedInterface } from "./expectation.ts";
import type { HostReport } from "./source-reports.ts";

/** The queues that limit an interface, next to those that a source has seen. Pure. */
export function compareLimits(
  { tap, ifb, rates, elsewhere, foreignTap }: ExpectedInterface,
  host: HostReport,
): Check[] {
  // A foreign tap and a CNI plugin's link have no limits of podnet's.
  if (elsewhere !== undefined || foreignTap === true || ifb === undefined) return [];
  const check = checker("netlink");
  const { toGuest, fromGuest } = rates ?? {};
  const queued = (link: string): string =>
    host.queues
      .filter((each) => each.link === link)
      .map(({ bytesPerSecond, leastCost }) => rateText(bytesPerSecond, leastCost))
      .sort()
      .join(", ");
  const led = host.redirects.find(({ link }) => link === tap)?.to;
  return [
    check(`limit into ${tap}`, wanted(toGuest), queued(tap)),
    check(`limit out of ${tap}`, wanted(fromGuest), queued(ifb)),
    check(`frames out of ${tap} go by`, fromGuest === undefined ? undefined : ifb, led),
  ];
}

const wanted = ({ bitsPerSecond, packetsPerSecond }: Rate = {}): string =>
  [
    ...(bitsPerSecond === undefined ? [] : [rateText(Math.floor(bitsPerSecond / 8), 0)]),
    ...(packetsPerSecond === undefined ? [] : [rateText(packetsPerSecond, 1)]),
  ]
    .sort()
    .join(", ");

/** A bucket in which each packet costs the same counts packets. */
const rateText = (rate: number, cost: number): string =>
  cost === 0 ? `${rate} bytes a second` : `${rate / cost} packets a second`;
