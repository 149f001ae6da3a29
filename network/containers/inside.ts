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
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { changeLink, type LinkChange } from "../../linux/rtnetlink/links/link-requests.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import { absent } from "../model/deviation.ts";
import type { AttachmentFragment } from "./desired.ts";
import type { InsideNetlink } from "./kernel.ts";
import { planRoutes } from "./routes.ts";
import type { Step } from "./step.ts";

/** A link inside, as far as its settings are an attachment's. */
export type InsideLink = Pick<Link, "index" | "mac" | "mtu" | "up">;
type Loopback = Pick<Link, "index" | "up">;

/** A namespace, as far as it is an attachment's. */
export interface ObservedInside {
  readonly loopback: Loopback;
  readonly guest: InsideLink;
  /** Of the guest's link. */
  readonly addresses: readonly LinkAddress[];
  readonly routes: readonly Route[];
}

/** Links of a namespace alongside the attachment's own. */
export interface OtherLinks {
  readonly loopback: Loopback | undefined;
  readonly macvlan: Link | undefined;
}

/** Looks for the links of a namespace that an attachment has to do with, all with one exchange. */
export async function lookInside(
  netlink: Pick<InsideNetlink, "linksNamed">,
  { guestLink, macvlan: wanted }: Pick<AttachmentFragment, "guestLink" | "macvlan">,
): Promise<OtherLinks & { readonly guest: Link | undefined }> {
  const names = [guestLink, "lo", ...(wanted === undefined ? [] : [wanted.link])];
  const [guest, loopback, macvlan] = await netlink.linksNamed(names);
  return { guest, loopback, macvlan };
}

/** LOOPBACK_IFINDEX of linux/net.h: it is the first link of every namespace. */
const loopbackIndex = 1;

/**
 * The inside right after the pair was made, with the index of its far end: all is known, but
 * whether the loopback link is up, and setting that twice costs less than a look.
 */
export const insideAsMade = (
  { mac, mtu }: Pick<AttachmentFragment, "mac" | "mtu">,
  index: number,
): OtherLinks & { readonly guest: InsideLink } => ({
  guest: { index, mac, mtu, up: false },
  loopback: { index: loopbackIndex, up: false },
  macvlan: undefined,
});

/** Looks at the state of the guest's link; a link that was just made has none. */
export async function observeInside(
  netlink: InsideNetlink,
  guest: InsideLink,
  { loopback }: OtherLinks,
  isNew: boolean,
): Promise<ObservedInside> {
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
 * The steps that bring a namespace into the desired state. Objects that other programs added stay:
 * more addresses, more routes. Addresses are usable at once, without duplicate address detection.
 * Pure.
 */
export function planInside(fragment: AttachmentFragment, observed: ObservedInside): Step[] {
  const { guestLink, addresses, later } = fragment;
  const { loopback, guest, routes } = observed;
  const mac = later?.mac ?? fragment.mac;
  const mtu = Math.min(later?.mtu ?? fragment.mtu, fragment.mtu);
  const change: LinkChange = {
    ...(guest.mac === mac ? {} : { mac }),
    ...(guest.mtu === mtu ? {} : { mtu }),
  };
  const held = observed.addresses.map(({ prefix }) => prefix);
  const wrong = (Object.entries(change) as ["mac" | "mtu", string | number][]).map(
    ([setting, value]): Step => ({
      deviation: {
        subject: `link ${guestLink} ${setting}`,
        found: String(guest[setting] ?? absent),
        wanted: String(value),
      },
      request: changeLink(guest.index, { [setting]: value }),
      // No plugin makes an MTU larger than the bridge's; one that is too large was the network's
      // before.
      ...(setting === "mtu" && guest.mtu > mtu ? {} : { part: setting }),
    }),
  );
  return [
    ...wrong,
    ...(loopback.up ? [] : [up("lo", loopback)]),
    ...addresses
      .filter((prefix) => !held.includes(prefix))
      .map((prefix) => ({
        deviation: { subject: `address of ${guestLink}`, found: absent, wanted: prefix },
        request: addAddress(guest.index, prefix, { noDad: true, ...broadcastOf(prefix) }),
        part: `address ${prefix}` as const,
      })),
    ...(guest.up ? [] : [up(guestLink, guest)]),
    ...planRoutes(fragment, guest.index, routes),
  ];
}

const up = (name: string, { index }: Pick<Link, "index">): Step => ({
  deviation: { subject: `link ${name} state`, found: "down", wanted: "up" },
  request: changeLink(index, { up: true }),
});

/**
 * The last address of an IPv4 network of more than two addresses. The kernel sets no broadcast
 * address by itself.
 */
function broadcastOf(prefix: IpPrefix): { readonly broadcast?: Ip } {
  if (familyOf(prefix) === 6 || lengthOf(prefix) > 30) return {};
  return { broadcast: ipFromBigInt(4, rangeOf(networkOf(prefix)).last) };
}
