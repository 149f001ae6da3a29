import { familyBits, type Ip, ipOf, networkOf, withLength } from "../../core/address.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { changeLink } from "../../linux/rtnetlink/link-requests.ts";
import type { AttachmentFragment, RouteDesired } from "./desired.ts";
import type { LinksBeside } from "./inside.ts";
import type { AttachmentNetlink, Inside } from "./kernel.ts";
import type { Step } from "./step.ts";

/** What a macvlan alongside an attachment's own link takes: to be up, and routes past it. */
export interface MacvlanParts {
  readonly steps: readonly Step[];
  /** By the attachment's own link. */
  readonly routes: readonly RouteDesired[];
}

/**
 * Looks for somebody's macvlan in the namespace. A macvlan and the link it is on never speak with
 * each other, so that the host's addresses there, and the services it leads to, are reached by the
 * attachment's own link. That is known only of a link of the host's own.
 */
export async function observeMacvlan(
  netlink: AttachmentNetlink,
  inside: Inside,
  { macvlan }: AttachmentFragment,
  { macvlan: link }: LinksBeside,
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
