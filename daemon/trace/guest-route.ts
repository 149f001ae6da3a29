import {
  type Cidr,
  contains,
  familyOf,
  type Ip,
  ipOf,
  lengthOf,
  networkOf,
  parseCidr,
} from "../../core/address.ts";
import type { Sender, SenderInterface } from "./sender.ts";

/** The way that a guest sends a packet. */
export interface GuestRoute {
  readonly from: SenderInterface;
  /** Its source address; absent where the interface has none of the family. */
  readonly source?: Ip;
  /** Absent on link. */
  readonly gateway?: Ip;
}

interface Candidate extends GuestRoute {
  readonly length: number;
  readonly metric: number;
}

const everything = { 4: parseCidr("0.0.0.0/0"), 6: parseCidr("::/0") } as const;

/**
 * The route of a guest to an address, by the addresses and routes that podnet planned for it: the
 * longest prefix, then the lowest metric. `address` is undefined for what any default route takes.
 * Undefined where it has none. Pure.
 */
export function guestRoute(
  { interfaces, routes }: Sender,
  address: Ip | undefined,
): GuestRoute | undefined {
  const takes = (cidr: Cidr): boolean =>
    address === undefined
      ? lengthOf(cidr) === 0
      : familyOf(cidr) === familyOf(address) && contains(cidr, address);
  const candidates = interfaces.flatMap((from): Candidate[] => [
    ...from.addresses
      .filter((prefix) => from.link !== undefined && takes(networkOf(prefix)))
      .map((prefix) => ({ from, source: ipOf(prefix), length: lengthOf(prefix), metric: 0 })),
    ...from.gateways
      .filter(({ gateway }) => takes(everything[familyOf(gateway)]))
      .map(({ gateway, metric = 0 }) => ({ from, gateway, length: 0, metric })),
  ]);
  for (const { destination, gateway, interface: name, metric = 0, source } of routes) {
    const from = interfaces.find(({ guestName }) => guestName === name);
    if (from === undefined || !takes(destination)) continue;
    const length = lengthOf(destination);
    candidates.push({
      from,
      length,
      metric,
      ...(gateway === undefined ? {} : { gateway }),
      ...(source === undefined ? {} : { source }),
    });
  }
  const [best] = candidates.toSorted((a, b) => b.length - a.length || a.metric - b.metric);
  if (best === undefined) return undefined;
  const { from, gateway } = best;
  const of = address ?? gateway;
  const own = from.addresses.find((each) => of === undefined || familyOf(each) === familyOf(of));
  const source = best.source ?? (own === undefined ? undefined : ipOf(own));
  return {
    from,
    ...(source === undefined ? {} : { source }),
    ...(gateway === undefined ? {} : { gateway }),
  };
}
