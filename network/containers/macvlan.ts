import { familyBits, type Ip, ipOf, networkOf, withLength } from "../../core/address.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { AttachmentFragment, RouteDesired } from "./desired.ts";
import type { OtherLinks } from "./inside.ts";
import type { AttachmentNetlink, Inside } from "./kernel.ts";
import type { Step } from "./step.ts";

/**
 * The settings of a macvlan next to an attachment's own link: it has to be up, and needs routes
 * that bypass it.
 */
export interface MacvlanParts {
  readonly steps: readonly Step[];
  /** By the attachment's own link. */
  readonly routes: readonly RouteDesired[];
}

/**
 * Looks for a foreign macvlan in the namespace. A macvlan and its parent link cannot exchange
 * packets, so the host's addresses on the parent, and the services behind it, are reached by the
 * attachment's own link. That is only known if the parent is a link of the host itself.
 */
export async function observeMacvlan(
  netlink: AttachmentNetlink,
  inside: Inside,
  { macvlan }: AttachmentFragment,
  { macvlan: link }: OtherLinks,
): Promise<MacvlanParts> {
  if (macvlan === undefined || link?.kind !== "macvlan") return { steps: [], routes: [] };
  const { gateway, serviceCidr } = macvlan;
  const parent = await parentAddresses(netlink, inside, link);
  const destinations = [
    ...parent.map((ip) => networkOf(withLength(ip, familyBits(4)))),
    ...(serviceCidr === undefined ? [] : [serviceCidr]),
  ];
  return {
    steps: link.up
      ? []
      : [
          {
            deviation: { subject: `link ${macvlan.link} state`, found: "down", wanted: "up" },
            request: changeLink(link.index, { up: true }),
          },
        ],
    routes: destinations.map((destination) => ({ destination, gateway })),
  };
}

async function parentAddresses(
  netlink: AttachmentNetlink,
  inside: Inside,
  { link: index, linkNetnsId }: Link,
): Promise<Ip[]> {
  if (index === undefined || linkNetnsId === undefined) return [];
  if ((await inside.hostId()) !== linkNetnsId) return [];
  return (await netlink.addresses({ index, family: 4 })).map(({ prefix }) => ipOf(prefix));
}
