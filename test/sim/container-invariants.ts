import { readdirSync } from "node:fs";
import { portsToHold } from "../../daemon/containers/attachment-plan.ts";
import type { Node } from "../../daemon/main/node.ts";
import { portsOf } from "../../daemon/published/wanted-port.ts";
import type { AttachmentRow } from "../../daemon/containers/attachment-rows.ts";
import { bucketsOf } from "../../network/rates/bucket.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import type { Rate } from "../../network/model/rates.ts";
import { partOf } from "../../network/containers/routes.ts";
import type { TokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import { mark, type PortDesired, portGroup } from "../../network/model/desired.ts";
import { attachmentIfb } from "../../network/model/ownership.ts";
import type { ContainerBook } from "./container-book.ts";
import { askCni } from "./container-call.ts";
import type { HostSockets } from "./host-sockets.ts";
import type { World } from "./world.ts";

/**
 * What holds once a DEL is answered: its links carry nothing, whether they are there or not, and no
 * rule is left of what it published. (The rules for what others translate to its addresses go with
 * its links, which are down, before the addresses are free.)
 */
export function silenceViolations({ kernel }: World, fragment: AttachmentFragment): string[] {
  const found: string[] = [];
  for (const name of [fragment.hostLink, attachmentIfb(fragment.key)]) {
    const link = kernel.links.find(name);
    if (
      link !== undefined &&
      (link.up || link.master !== 0 || link.group !== mark.pendingDeleteGroup)
    )
      found.push(`after its DEL link ${name} is up=${link.up} master=${link.master}`);
  }
  if (fragment.published === undefined) return found;
  const rules = [kernel.iptables, kernel.ip6tables].flatMap(({ nft, legacy }) => [
    ...nft.save().split("\n"),
    ...legacy.save().split("\n"),
  ]);
  for (const line of [...rules, ...(kernel.nftables.exists ? kernel.nftables.elements() : [])])
    if (line.includes(fragment.alias)) found.push(`after its DEL there is: ${line}`);
  return found;
}

/**
 * What holds when nothing is under way: each attachment lasts, is whole, and none that was answered
 * is lost.
 */
export function attachmentViolations(world: World, node: Node, book: ContainerBook): string[] {
  const found: string[] = [];
  const rows = node.attachments.list();
  const promised = new Set(Array.from(book.promised.values(), ({ id }) => id));
  for (const row of rows) {
    if (row.state !== "ready") found.push(`attachment ${row.id} stays ${row.state}`);
    else found.push(...wholeViolations(world, node, row, promised.has(row.id), book));
    if (book.ended.has(row.id)) found.push(`attachment ${row.id} had its DEL and is there`);
  }
  for (const { name, id } of book.promised.values())
    if (!rows.some((row) => row.id === id))
      found.push(`attachment ${id} of ${name.containerId} ${name.ifName} is lost`);
  return found;
}

/**
 * The links of one that is ready, both ends and its rates; of one whose namespace has gone there is
 * nothing to say.
 */
function wholeViolations(
  { kernel, containers }: World,
  node: Node,
  row: AttachmentRow,
  isPromised: boolean,
  { withoutRoutes }: Pick<ContainerBook, "withoutRoutes">,
): string[] {
  const { containerId, plan } = row;
  const inside = containers.insideOf(containerId);
  if (inside === undefined) return [];
  const fragment = node.attachments.fragmentOf(plan);
  const { hostLink, guestLink, alias, bridge, mtu, mac, isolated, addresses, routes } = fragment;
  const host = kernel.links.find(hostLink);
  const guest = inside.links.find(guestLink);
  // Another namespace by its path: nothing is made there, and nothing says that it has ended.
  if (host === undefined && guest === undefined && !isPromised) return [];
  const found: string[] = [];
  const compare = (what: string, seen: unknown, wanted: unknown): void => {
    const [is, should] = [JSON.stringify(seen), JSON.stringify(wanted)];
    if (is !== should) found.push(`${what} of ${row.id} is ${is} instead of ${should}`);
  };
  if (host === undefined || guest === undefined || kernel.links.peerOf(host) !== guest)
    return [`${hostLink} and ${guestLink} of ${row.id} are not one pair`];
  const master = kernel.links.find(bridge)?.index;
  compare(
    hostLink,
    [host.alias, host.group, host.mtu, host.up, host.isolated, host.master],
    [alias, portGroup(bridge), mtu, true, isolated, master],
  );
  compare(guestLink, [guest.mac, guest.mtu, guest.up], [mac, mtu, true]);
  compare(
    "addresses",
    guest.addresses.map(({ prefix }) => prefix).toSorted(),
    addresses.toSorted(),
  );
  const ways = (all: readonly { destination: string; gateway?: string }[]): string[] =>
    all.map(({ destination, gateway }) => `${destination} ${gateway}`).toSorted();
  if (guest.routes.length > 0 || !withoutRoutes.has(row.id))
    compare("routes", ways(guest.routes), ways(routes));
  else compare("routes that are left", plan.later?.left, routes.map(partOf));
  if (inside.links.find("lo")?.up !== true) found.push(`lo of ${row.id} is down`);
  return [...found, ...hostPart(fragment).ports.flatMap((port) => rateViolations(port, kernel))];
}

/** The limits of a port: its queue, and the link for what its guest sends. */
export function rateViolations(
  { tap, ifb, alias, mtu, rates }: PortDesired,
  { links }: Pick<World["kernel"], "links">,
): string[] {
  const host = links.find(tap);
  const out = ifb === undefined ? undefined : links.find(ifb);
  if (host === undefined || ifb === undefined) return [];
  const found: string[] = [];
  const compare = (what: string, seen: unknown, wanted: unknown): void => {
    const [is, should] = [JSON.stringify(seen), JSON.stringify(wanted)];
    if (is !== should) found.push(`${what} of ${tap} is ${is} instead of ${should}`);
  };
  const buckets = (rate: Rate | undefined): readonly (TokenBucket | undefined)[] => {
    const [first, second] = bucketsOf(rate, mtu);
    return [first, second];
  };
  compare("rate in", [host.queue, host.inner], buckets(rates?.toGuest));
  if (rates?.fromGuest === undefined)
    return out === undefined ? found : [...found, `link ${ifb} is left`];
  if (out === undefined) return [...found, `link ${ifb} is missing`];
  compare(ifb, [out.alias, out.group, out.up, out.mtu], [alias, mark.linkGroup, true, mtu]);
  compare("rate out", [out.queue, out.inner], buckets(rates.fromGuest));
  compare("filters", host.filters, [out.index]);
  return found;
}

/**
 * Links of attachments that no row accounts for; unmarked ones too, but for those whose row was
 * lost with the state.
 */
export function attachmentLeftovers({ kernel }: World, node: Node, lost: boolean): string[] {
  const due = new Set(
    node.attachments.list().flatMap(({ plan }) => {
      const { hostLink } = node.attachments.fragmentOf(plan);
      return [hostLink, attachmentIfb(plan.id)];
    }),
  );
  return Array.from(kernel.links.all.values())
    .filter(
      ({ name, alias, kind }) =>
        (kind === "veth" || kind === "ifb") &&
        /^p[ci][a-z2-7]{12}$/.test(name) &&
        !due.has(name as never) &&
        !(lost && alias === undefined),
    )
    .map(({ name }) => `link ${name} is left of a container`);
}

/** Host ports are bound for all that are attached or run, and for none without a row. */
export function socketViolations(sockets: HostSockets, node: Node): string[] {
  const keys = (all: readonly Parameters<typeof portsOf>[0][]): string[] =>
    all.flatMap((published) => portsOf(published).map(({ key }) => key));
  const pods = node.records.list();
  const run = pods.filter(({ state }) => state === "running" || state === "paused");
  const containers = node.attachments.list().map(({ plan }) => portsToHold(plan) ?? []);
  const due = keys([...run.map(({ plan }) => plan.published ?? []), ...containers]);
  // A pod that has failed may keep its own.
  const allowed = keys([...pods.map(({ plan }) => plan.published ?? []), ...containers]);
  const held = sockets.names();
  return [
    ...due.filter((key) => !held.includes(key)).map((key) => `host port ${key} is not held`),
    ...held.filter((key) => !allowed.includes(key)).map((key) => `host port ${key} is held still`),
  ];
}

/** Nothing that plugins wrote down is left undone. */
export const pendingViolations = ({ config }: World): string[] =>
  readdirSync(config.cni.pendingDir).map((name) => `DEL ${name} is left written down`);

/** Every runtime that was answered finds all as in its answer. */
export async function checkViolations(
  { containers }: World,
  node: Parameters<typeof askCni>[0],
  book: ContainerBook,
): Promise<string[]> {
  const found: string[] = [];
  for (const { name, checkWith } of book.promised.values()) {
    const netns = containers.pathOf(name.containerId);
    const configuration = checkWith as Parameters<typeof askCni>[1]["configuration"];
    await askCni(node, { command: "CHECK", name, netns, configuration }).catch((thrown: unknown) =>
      found.push(`CHECK of ${name.containerId} ${name.ifName}: ${String(thrown)}`),
    );
  }
  return found;
}
