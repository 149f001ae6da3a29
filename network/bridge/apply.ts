import { throwIfAborted } from "../../core/aborting.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import { deleteQueue, setPlainQueue, setTokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import { deleteFilters, redirectPriority } from "../../linux/rtnetlink/redirect.ts";
import { plainQueueLimit } from "../rates/bucket.ts";
import { observeFilters, redirectRequests } from "../rates/filters.ts";
import { needing } from "../rates/needed.ts";
import type { Change, ChangeKind, ChangeOf, PortSettings } from "../model/change.ts";
import { fdbMaxLearned, isOurGroup, mark } from "../model/desired.ts";
import { ipForwardKey, ipv6ForwardKey, noVlanFiltering } from "./diff-network.ts";
import { setForwarding } from "./forward.ts";
import { commitTable } from "../firewall/iptables/firewall.ts";
import type { HostKernel, HostNetlink } from "../kernel/kernel.ts";
import type { Memory } from "../kernel/memory.ts";
import type { RuleTable } from "../firewall/nftables/rule-table.ts";
import { observePorts, requireLink, writeOptional } from "./observe.ts";
import { parseOwner } from "../model/ownership.ts";
import { bridgeFull } from "../model/port-limit.ts";

/** The interfaces that changes are applied with. */
export interface Kernel extends HostKernel {
  readonly memory: Memory;
  readonly ruleTable: RuleTable;
  readonly guardTables: readonly RuleTable[];
}

type Applier<Kind extends ChangeKind> = (
  change: ChangeOf<Kind>,
  kernel: Kernel,
  signal: AbortSignal,
) => Promise<void>;

/**
 * Applies one change. Setting a value that is already set and removing something absent succeed.
 */
export async function applyChange(
  change: Change,
  kernel: Kernel,
  signal: AbortSignal,
): Promise<void> {
  await (appliers[change.kind] as Applier<ChangeKind>)(change, kernel, signal);
}

export interface ApplyOptions {
  /**
   * Goes on past failures and throws them together: to take things away. Else the first one ends
   * it.
   */
  readonly keepGoing?: boolean;
  /** Gets every change that was made, also when others failed. */
  readonly done: Change[];
}

/** Does changes in order. */
export async function applyAll(
  changes: readonly Change[],
  kernel: Kernel,
  signal: AbortSignal,
  options: ApplyOptions,
): Promise<void> {
  const failures: PodnetError[] = [];
  for (const change of changes) {
    throwIfAborted(signal, "A change of the host's network");
    try {
      await applyChange(change, kernel, signal);
      options.done.push(change);
    } catch (error) {
      failures.push(toPodnetError(error));
      if (options.keepGoing !== true) break;
    }
  }
  throwFailures(failures);
}

/** Throws the first failure, with the other failures in its cause; returns if there was none. */
export function throwFailures(failures: readonly PodnetError[]): void {
  const [first, ...others] = failures;
  if (first === undefined) return;
  if (others.length === 0) throw first;
  const cause = new AggregateError([first.cause ?? first, ...others], "Several steps failed");
  throw new PodnetError(first.code, first.message, {
    ...(first.hint === undefined ? {} : { hint: first.hint }),
    ...(first.field === undefined ? {} : { field: first.field }),
    ...(first.step === undefined ? {} : { step: first.step }),
    details: { ...first.details, failures: failures.length },
    cause,
  });
}

const appliers: { readonly [Kind in ChangeKind]: Applier<Kind> } = {
  async "create-bridge"(change, { netlink, sysctl }) {
    const { name, mac, mtu, alias, settings } = change;
    // A bridge follows the smallest MTU of its ports until its own MTU has *changed* once
    // (br_mtu_auto_adjust, Linux 6.1). Setting the current value is no change, so the bridge is
    // created with an MTU one lower.
    const born = { name, mac, mtu: mtu - 1, group: mark.linkGroup, alias };
    const bridge = { fdbMaxLearned, noLinkLocalLearn: true };
    const { index } = await netlink.addBridge({ ...born, bridge });
    await netlink.changeLink(index, { mtu });
    for (const { key, value } of settings) writeOptional(sysctl, key, value);
  },

  async "set-link"(
    { name, set: { vlanFiltering, fdbMaxLearned: bound, noLinkLocalLearn, nfCall, ...set } },
    { netlink },
  ) {
    const { index } = await requireLink(netlink, name);
    if (bound !== undefined) await netlink.changeBridge(index, { fdbMaxLearned: bound });
    if (noLinkLocalLearn !== undefined) await netlink.changeBridge(index, { noLinkLocalLearn });
    if (vlanFiltering !== undefined) await filterVlans(netlink, index, name, vlanFiltering);
    if (nfCall !== undefined) await netlink.changeBridge(index, bothFamilies(nfCall));
    if (Object.keys(set).length > 0) await netlink.changeLink(index, set);
  },

  async "end-bridge-filter"({ name }, { netlink }) {
    const link = await netlink.link(name);
    if (link?.bridge !== undefined && parseOwner(link.alias)?.kind === "network")
      await netlink.changeBridge(link.index, bothFamilies(false));
  },

  async "set-adopted"({ name, up }, { netlink, memory }) {
    if (up) memory.rememberRaised(name);
    const link = await netlink.link(name);
    if (link !== undefined) await netlink.changeLink(link.index, { up });
    if (!up) memory.forgetRaised(name);
  },

  async "pin-mac"({ name, mac }, { netlink, memory }) {
    const { index } = await requireLink(netlink, name);
    // A bridge takes the MAC of its lowest port, or none without ports, until its own MAC was set
    // once, even to its current value (br_stp_recalculate_bridge_id, Linux 6.1). Otherwise the
    // host's address on the LAN would change, and pods would lose their gateway.
    await netlink.changeLink(index, { mac });
    memory.rememberPinned(index);
  },

  async "add-address"({ link, prefix }, { netlink }) {
    const { index } = await requireLink(netlink, link);
    await netlink.addAddress(index, prefix, { noDad: true });
  },

  async "remove-address"({ link, prefix }, { netlink }) {
    const bridge = await netlink.link(link);
    if (bridge !== undefined) await netlink.deleteAddress(bridge.index, prefix);
  },

  async "attach-port"({ link, bridge, master, isolated, learning, vlan }, { netlink }) {
    const settings = { ...(isolated ? { isolated } : {}), ...given({ learning, vlan }) };
    const isPlain = Object.keys(settings).length === 0;
    // The host's end gets no link-local address: the host would speak IPv6 (DAD, router
    // solicitations) to the guest from a MAC that no machine owns. Frames that the bridge forwards
    // are not affected.
    const [silent, joined] = await netlink.tryBatch([
      changeLink(link, { linkLocal: false }),
      changeLink(link, { master, ...(isPlain ? { up: true } : {}) }),
    ]);
    // br_add_if has no port number left.
    if (joined?.details["errno"] === "EXFULL")
      throw bridgeFull(bridge, await observePorts(netlink, master), 1, joined);
    if (joined !== undefined) throw joined;
    if (silent !== undefined && silent.details["errno"] !== "EAFNOSUPPORT") throw silent;
    if (isPlain) return;
    const { index } = await requireLink(netlink, link);
    await setPort(index, settings, netlink);
    await netlink.changeLink(index, { up: true });
  },

  async "set-port"({ link, set: { vlan, ...flags } }, { netlink }) {
    // (By its name: the link is not looked at once more.)
    if (Object.keys(flags).length > 0) await netlink.changeBridgePort(link, flags);
    if (vlan !== undefined)
      await setPort((await requireLink(netlink, link)).index, { vlan }, netlink);
  },

  async "detach-port"({ link }, { netlink }) {
    await netlink.leaveBridge(link);
  },

  async "forget-neighbour"({ link, ip, index }, { netlink }) {
    const seen = index ?? (await netlink.link(link))?.index;
    if (seen !== undefined) await netlink.deleteNeighbour(seen, ip);
  },

  async "create-ifb"({ name, mtu, alias }, { netlink }) {
    const link = { name, mtu, alias, group: mark.linkGroup, up: true };
    await needing("link", netlink.addIfb(link));
  },

  async "set-rate"({ link, place, bucket }, { netlink }) {
    const { index, mtu } = await requireLink(netlink, link);
    if (bucket !== undefined)
      await needing("queue", run(netlink, [setTokenBucket(index, bucket, place)]));
    else if (place === "inner") await run(netlink, [setPlainQueue(index, plainQueueLimit(mtu))]);
    else await run(netlink, [deleteQueue(index)]);
  },

  async redirect({ from, to }, { netlink }) {
    const { index } = await requireLink(netlink, from);
    if (to === undefined) return run(netlink, [deleteFilters(index, redirectPriority)]);
    const target = await requireLink(netlink, to);
    const filters = await observeFilters(netlink, index);
    await needing("redirect", run(netlink, redirectRequests(index, target.index, filters)));
  },

  "delete-links": ({ links }, { netlink }) => deleteLinks(links, netlink),

  async "set-sysctl"({ key, from, to }, { sysctl, memory, netlink }) {
    if (key === ipForwardKey || key === ipv6ForwardKey)
      await setForwarding({ key, from, to }, { sysctl, memory, netlink });
    else sysctl.write(key, to);
  },

  async iptables(change, { iptables, ip6tables, memory }, signal) {
    const { family, variant, table, chain } = change;
    const chains = memory.chains(family);
    if (change.makesChain) chains.remember(variant, table, chain);
    await commitTable(family === 4 ? iptables : ip6tables, variant, change, signal);
    for (const line of change.lines)
      if (line.startsWith("-X ")) chains.forget(variant, table, line.slice(3));
  },

  nftables: (change, { ruleTable, guardTables }) => {
    const guard = guardTables.find(({ model }) => model.name === change.table);
    return (guard ?? ruleTable).commit(change);
  },
};

/** Sends requests in order; they may depend on each other. Throws the first refusal. */
async function run(netlink: HostNetlink, requests: readonly Request[]): Promise<void> {
  const outcomes = await netlink.tryBatch(requests);
  throwFailures(outcomes.filter((outcome) => outcome !== undefined));
}

/** Settings of a port, before it carries frames when it is new. */
async function setPort(
  index: number,
  { vlan, ...flags }: PortSettings,
  netlink: HostNetlink,
): Promise<void> {
  if (Object.keys(flags).length > 0) await netlink.changeBridgePort(index, flags);
  if (vlan !== undefined) await netlink.setPortVlan(index, vlan);
}

const given = ({
  learning,
  vlan,
}: {
  learning: boolean | undefined;
  vlan: number | undefined;
}): PortSettings => ({
  ...(learning === undefined ? {} : { learning }),
  ...(vlan === undefined ? {} : { vlan }),
});

/**
 * Deletes links that bear our mark. Each deletion makes the kernel wait for 16-30 ms, and deleting
 * a group costs little more than deleting one link. So several links are moved into the
 * pending-delete group, which one message deletes if a listing shows that it contains only them.
 */
async function deleteLinks(names: readonly IfName[], netlink: HostNetlink): Promise<void> {
  let owned: number[] = [];
  for (const name of names) {
    const link = await netlink.link(name);
    // A foreign link may have taken the name since the last look.
    if (link !== undefined && isMarked(link)) owned.push(link.index);
  }
  if (owned.length > 1) {
    const group = mark.pendingDeleteGroup;
    // A tap disappears with its QEMU at any time. A tap that cannot be moved must not hold up the
    // other links; it is handled below.
    await netlink.setGroup(owned, group);
    const members = await netlink.links({ group });
    // (A container's link that waits there for its end gets it.)
    if (members.every((link) => owned.includes(link.index) || isMarked(link))) {
      await netlink.deleteGroup(group);
      owned = owned.filter((each) => !members.some(({ index }) => index === each));
    }
  }
  for (const index of owned) await netlink.deleteLink(index);
}

const isMarked = (link: { readonly alias?: string | undefined; readonly group: number }): boolean =>
  parseOwner(link.alias) !== undefined || (link.alias === undefined && isOurGroup(link.group));

const bothFamilies = (on: boolean) => ({ nfCallIptables: on, nfCallIp6tables: on });

async function filterVlans(
  netlink: HostNetlink,
  index: number,
  name: IfName,
  vlanFiltering: boolean,
): Promise<void> {
  try {
    await netlink.changeBridge(index, { vlanFiltering });
  } catch (cause) {
    if (!isPodnetError(cause) || cause.details["errno"] !== "EOPNOTSUPP") throw cause;
    throw noVlanFiltering(name, cause);
  }
}
