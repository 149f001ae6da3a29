import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { mark } from "../model/desired.ts";
import { attachmentIfb } from "../model/ownership.ts";
import type { AttachmentFragment } from "./desired.ts";
import type { AttachmentNetlink } from "./kernel.ts";
import { isPendingDelete, isOurs } from "./pair.ts";

/**
 * The requests that cut the traffic of an attachment's links on the host and move them to the
 * pending-delete group. Deleting one link takes the kernel 31 ms; deleting a group of two hundred
 * takes 0.9 ms per link. Foreign links with such names are left alone.
 */
export async function pendingDeletes(
  netlink: AttachmentNetlink,
  { key, hostLink, alias }: AttachmentFragment,
): Promise<Request[]> {
  const found = await netlink.linksNamed([hostLink, attachmentIfb(key)]);
  return found
    .filter((link) => link !== undefined && isOurs(link, alias) && !isPendingDelete(link))
    .flatMap((link) => pendingDelete(link as Link, alias));
}

/**
 * Sets our mark along with the group, because only marked links of the group are known to be ours.
 * A link whose creation was interrupted has no mark yet.
 */
const pendingDelete = (link: Link, alias: string): Request[] => [
  ...(link.alias === undefined ? [changeLink(link.index, { alias })] : []),
  changeLink(link.index, {
    up: false,
    group: mark.pendingDeleteGroup,
    ...(link.master === undefined ? {} : { master: 0 }),
  }),
];

/**
 * Deletes our links of the pending-delete group: all with one message, unless the group contains a
 * foreign link.
 */
export async function deletePendingGroup(netlink: AttachmentNetlink): Promise<number> {
  const group = mark.pendingDeleteGroup;
  const members = await netlink.links({ group });
  const ours = members.filter(isPendingDelete);
  if (ours.length === 0) return 0;
  if (ours.length === members.length) await netlink.deleteGroup(group);
  else for (const { index } of ours) await netlink.deleteLink(index);
  return ours.length;
}
