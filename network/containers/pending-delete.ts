import type { Link } from "../../linux/rtnetlink/link.ts";
import { changeLink } from "../../linux/rtnetlink/link-requests.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { mark } from "../model/desired.ts";
import type { AttachmentFragment } from "./desired.ts";
import type { AttachmentNetlink } from "./kernel.ts";
import { isDoomed, isOurs } from "./pair.ts";

/**
 * What ends the traffic of an attachment's links on the host and gathers them for their end: each
 * alone takes the kernel 31 ms, a group of two hundred 0.9 ms each. Links of others by the same
 * names are left alone.
 */
export async function burials(
  netlink: AttachmentNetlink,
  { hostLink, ifb, alias }: AttachmentFragment,
): Promise<Request[]> {
  const names = ifb === undefined ? [hostLink] : [hostLink, ifb];
  const found = await Promise.all(names.map((name) => netlink.link(name)));
  return found
    .filter((link) => link !== undefined && isOurs(link, alias) && !isDoomed(link))
    .flatMap((link) => burial(link as Link, alias));
}

/**
 * In the group only what bears our mark is known for ours: one that was interrupted at its birth
 * has none yet.
 */
const burial = (link: Link, alias: string): Request[] => [
  ...(link.alias === undefined ? [changeLink(link.index, { alias })] : []),
  changeLink(link.index, {
    up: false,
    group: mark.graveyardGroup,
    ...(link.master === undefined ? {} : { master: 0 }),
  }),
];

/**
 * Ends what is in the graveyard and ours: all with one message, if nobody else's link is in that
 * group.
 */
export async function endGraveyard(netlink: AttachmentNetlink): Promise<number> {
  const group = mark.graveyardGroup;
  const buried = await netlink.links({ group });
  const doomed = buried.filter(isDoomed);
  if (doomed.length === 0) return 0;
  if (doomed.length === buried.length) await netlink.deleteGroup(group);
  else for (const { index } of doomed) await netlink.deleteLink(index);
  return doomed.length;
}
