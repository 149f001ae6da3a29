import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { isOurGroup, mark, portGroup } from "../model/desired.ts";
import { parseOwner } from "../model/ownership.ts";
import type { AttachmentFragment } from "./desired.ts";
import { type InsideLink, insideAsMade, lookInside, type OtherLinks } from "./inside.ts";
import type { AttachmentKernel, AttachmentNetlink, Inside } from "./kernel.ts";

/**
 * Both ends of an attachment, the other links inside that belong to it, and whether this call made
 * them.
 */
export interface Pair {
  readonly host: Link;
  readonly guest: InsideLink;
  readonly alongside: OtherLinks;
  readonly isNew: boolean;
}

/**
 * Finds the pair of links or makes it. If the other end of our link is not inside (its namespace or
 * the end itself has gone), the pair is made again. Throws `NAME_IN_USE` if a foreign link has one
 * of the names.
 */
export async function ensurePair(
  { netlink }: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
): Promise<Pair> {
  const { hostLink, guestLink, bridge, alias, mac, mtu } = fragment;
  const peer = { name: guestLink, mac, mtu, netnsFd: inside.fd };
  const make = (): Promise<Link> =>
    netlink.addVeth({ name: hostLink, mtu, group: portGroup(bridge), alias, peer });
  // Usually neither name exists, so creation is tried before any look.
  let made = await unlessTaken(make);
  if (made === undefined) {
    const host = await netlink.link(hostLink);
    if (host !== undefined && !isOurs(host, alias)) throw taken(hostLink, "on the host");
    const { guest, ...alongside } = await lookInside(inside.netlink, fragment);
    if (host !== undefined && !isPendingDelete(host) && guest !== undefined && areEnds(host, guest))
      return { host, guest, alongside, isNew: false };
    if (guest !== undefined) await deletePending(netlink, guest);
    // By index: the link with that name may have gone along with the other end.
    if (host !== undefined) await netlink.deleteLink(host.index);
    made = await unlessTaken(make);
    // A foreign link may have taken a name since the look.
    if (made === undefined)
      throw taken(guestLink, "in the container, or the host's end of its pair,");
  }
  const { guest, ...alongside } =
    made.link === undefined || fragment.macvlan !== undefined
      ? await lookInside(inside.netlink, fragment)
      : insideAsMade(fragment, made.link);
  if (guest !== undefined) return { host: made, guest, alongside, isNew: true };
  throw new PodnetError("NETLINK_FAILED", `Link "${guestLink}" was made and is gone again`, {
    hint: "Another program removes links there; try again",
    details: { link: guestLink, errno: "ENODEV" },
  });
}

/**
 * Deletes a released link that was not swept yet, to free its name. Any other link of that name is
 * foreign.
 */
async function deletePending(netlink: AttachmentNetlink, guest: Link): Promise<void> {
  const far = guest.link === undefined ? undefined : await netlink.link(guest.link);
  if (far === undefined || !isPendingDelete(far) || !areEnds(far, guest))
    throw taken(guest.name, "in the container");
  await netlink.deleteLink(far.index);
}

/** The host's end alone, of a pair that is the caller's. */
export async function findHostEnd(
  { netlink }: AttachmentKernel,
  { hostLink, alias }: AttachmentFragment,
): Promise<Link> {
  const host = await netlink.link(hostLink);
  if (host?.kind === "veth" && (host.alias === undefined || host.alias === alias)) return host;
  if (host !== undefined) throw taken(hostLink, "on the host");
  throw new PodnetError("INVALID_ARGUMENT", `There is no link "${hostLink}" on the host`, {
    field: "hostVeth",
    hint: "Make the pair of links first, and name the end that is on the host",
    details: { link: hostLink },
  });
}

/** Ours, whole or as it was born. */
export const isOurs = (link: Link, alias: string): boolean =>
  link.alias === alias || (link.alias === undefined && isOurGroup(link.group));

/** On its way out, whosesoever of ours it was. */
export const isPendingDelete = (link: Link): boolean =>
  link.group === mark.pendingDeleteGroup && parseOwner(link.alias) !== undefined;

/** Whether they are the two ends of one pair: each names the other, and another namespace. */
export const areEnds = (host: Link, guest: Link): boolean =>
  host.kind === "veth" &&
  guest.kind === "veth" &&
  host.link === guest.index &&
  guest.link === host.index &&
  host.linkNetnsId !== undefined &&
  guest.linkNetnsId !== undefined;

/** The link that was made; undefined if one of its names exists. */
async function unlessTaken(make: () => Promise<Link>): Promise<Link | undefined> {
  try {
    return await make();
  } catch (error) {
    if (isPodnetError(error) && error.details["errno"] === "EEXIST") return undefined;
    throw error;
  }
}

const taken = (link: string, where: string): PodnetError =>
  new PodnetError("NAME_IN_USE", `Link "${link}" ${where} is foreign`, {
    hint: "Choose another name for the interface, or delete that link",
    details: { link },
  });
