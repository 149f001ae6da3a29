import {
  familyOf,
  ipFromBigInt,
  type Ip,
  type IpPrefix,
  lengthOf,
  networkOf,
  rangeOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { addAddress, type LinkAddress } from "../../linux/rtnetlink/address.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { changeLink, type LinkChange } from "../../linux/rtnetlink/link-requests.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { AttachmentFragment } from "./desired.ts";
import type { InsideNetlink } from "./kernel.ts";
import { planRoutes } from "./routes.ts";
import type { Step } from "./step.ts";

/** A namespace, as far as it is an attachment's. */
export interface ObservedInside {
  readonly loopback: Link;
  readonly guest: Link;
  /** Of the guest's link. */
  readonly addresses: readonly LinkAddress[];
  readonly routes: readonly Route[];
}

/** Looks at what the guest's link has. One that was just made has nothing: only its namespace's loopback is looked at. */
export async function observeInside(
  netlink: InsideNetlink,
  guest: Link,
  isNew: boolean,
): Promise<ObservedInside> {
  const loopback = await netlink.link("lo");
  if (loopback === undefined)
    throw new PodnetError("NETNS_UNUSABLE", "The network namespace has no loopback link", {
      hint: "Make the sandbox again",
      details: { trouble: "not-a-namespace" },
    });
  if (isNew) return { loopback, guest, addresses: [], routes: [] };
  const addresses = await netlink.addresses({ index: guest.index });
  return { loopback, guest, addresses, routes: await netlink.routes({ link: guest.index }) };
}

/**
 * The steps that make a namespace what it should be. What others put there stays: more addresses, more routes. Addresses
 * are usable at once, without a search for duplicates. Pure.
 */
export function planInside(fragment: AttachmentFragment, observed: ObservedInside): Step[] {
  const { guestLink, mac, mtu, addresses } = fragment;
  const { loopback, guest, routes } = observed;
  const change: LinkChange = {
    ...(guest.mac === mac ? {} : { mac }),
    ...(guest.mtu === mtu ? {} : { mtu }),
  };
  const held = observed.addresses.map(({ prefix }) => prefix);
  const wrong = Object.entries(change).map(([name, value]) => `${name} ${value}`);
  return [
    ...(wrong.length === 0
      ? []
      : [
          {
            says: `${guestLink} has not ${wrong.join(" and ")}`,
            request: changeLink(guest.index, change),
          },
        ]),
    ...(loopback.up ? [] : [up("lo", loopback)]),
    ...addresses
      .filter((prefix) => !held.includes(prefix))
      .map((prefix) => ({
        says: `${guestLink} lacks ${prefix}`,
        request: addAddress(guest.index, prefix, { noDad: true, ...broadcastOf(prefix) }),
      })),
    ...(guest.up ? [] : [up(guestLink, guest)]),
    ...planRoutes(fragment, guest.index, routes),
  ];
}

const up = (name: string, { index }: Link): Step => ({
  says: `${name} is down`,
  request: changeLink(index, { up: true }),
});

/** Of IPv4 networks of more than two addresses: the last one. The kernel by itself gives none. */
function broadcastOf(prefix: IpPrefix): { readonly broadcast?: Ip } {
  if (familyOf(prefix) === 6 || lengthOf(prefix) > 30) return {};
  return { broadcast: ipFromBigInt(4, rangeOf(networkOf(prefix)).last) };
}
