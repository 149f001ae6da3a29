import { readdirSync } from "node:fs";
import { ipOf, type IpPrefix } from "../../core/address.ts";
import { parkedPrefix } from "../../daemon/pods/pool/markers.ts";
import { templateNicMac } from "../../hypervisor/driver.ts";
import type { Node } from "../../daemon/main/node.ts";
import type { Database } from "../../daemon/store/database.ts";
import { listLeases } from "../../daemon/ipam/store.ts";
import { portsOf } from "../../daemon/pods/interfaces/pod-ports.ts";
import { withNic } from "../../daemon/pods/store/pod-plan.ts";
import type { PodRow } from "../../daemon/pods/store/pod-row.ts";
import { ruledPart } from "../../network/containers/host-part.ts";
import {
  isOurGroup,
  mark,
  type NetworkFragment,
  type PluggedFragment,
  portGroup,
} from "../../network/model/desired.ts";
import { networkRules, sharedRules } from "../../network/firewall/iptables/network-rules.ts";
import { commentOf, type Rule, ruleKey } from "../../network/firewall/iptables/rule.ts";
import { parseSave } from "../../network/firewall/iptables/save-format.ts";
import { variants } from "../../network/model/rules.ts";
import {
  publishedTable,
  publishingElements,
} from "../../network/firewall/nftables/published-table.ts";
import { mainTable, ruleComments, type TableModel } from "../../network/firewall/nftables/base.ts";
import {
  hostGuardElements,
  shareElements,
  networkElements,
  podElements,
} from "../../network/firewall/nftables/element.ts";
import type { Element } from "../../network/model/nftables-sets.ts";
import {
  bridgeGuardElements,
  portElements,
} from "../../network/firewall/nftables/port-elements.ts";
import { machineId } from "../../network/bridge/open-host-network.ts";
import { bridgeMac } from "../../network/model/bridge-mac.ts";
import { sharingChains, sharingElements } from "../../network/firewall/nftables/shares-table.ts";
import { policyComments } from "../../network/firewall/nftables/policy-chain.ts";
import type { PolicyChain } from "../../network/model/rules.ts";
import { guardTables } from "../../network/firewall/nftables/guard-tables.ts";
import {
  attachmentMark,
  networkMark,
  parseOwner,
  podRuleMark,
  publishedMark,
} from "../../network/model/ownership.ts";
import { rateViolations } from "./container-invariants.ts";
import type { FakeNftables } from "./kernel/nftables.ts";
import type { World } from "./world.ts";

/**
 * What holds at any time, in the middle of everything: no two pods share an address, and the books
 * add up.
 */
export function booksViolations(node: Node, db: Database): string[] {
  const found: string[] = [];
  const leases: string[] = [];
  const attached = node.attachments.list();
  for (const { name } of node.networks.list()) {
    const held = listLeases(db, name).filter(({ freedMs }) => freedMs === undefined);
    // Of what is on its way out the address goes to no other yet, though its lease has ended.
    const leaving = attached
      .filter((row) => row.network === name && row.state === "deleting")
      .flatMap(({ plan }) => plan.addresses);
    leases.push(...held.map(({ address, owner }) => `${name} ${address} ${owner.id}`));
    const { size, free, used, reserved, quarantined } = node.addresses.stats(name);
    if (free + used + reserved + quarantined !== size)
      found.push(`the counts of ${name} do not add up`);
    const due = held.length + leaving.length;
    if (used !== BigInt(due)) found.push(`${name} has ${used} used, rows ${due}`);
  }
  const owners = new Map<string, string>();
  const own = (network: string, prefix: IpPrefix, owner: string): void => {
    const key = `${network} ${ipOf(prefix)}`;
    const other = owners.get(key) ?? owner;
    if (other !== owner) found.push(`${prefix} is held by ${owner} and ${other}`);
    owners.set(key, owner);
  };
  // While a change is under way what was is held, too.
  for (const row of node.records.list())
    for (const { interfaces } of [row.plan, ...(row.before === undefined ? [] : [row.before.plan])])
      for (const { addresses, position, network } of interfaces) {
        if (network === undefined) continue;
        for (const prefix of addresses) own(network, prefix, `${row.id}/${position}`);
      }
  for (const { id, network, plan, state } of attached)
    if (state !== "deleting") for (const prefix of plan.addresses) own(network, prefix, id);
  const planned = Array.from(owners, ([key, owner]) => `${key} ${owner}`);
  if (leases.toSorted().join() !== planned.toSorted().join())
    found.push(`leases are ${leases.join(", ")}, plans say ${planned.join(", ")}`);
  return found;
}

/** What there is of a pod that its row does not account for. */
export interface Leftover {
  /** Undefined when it has no mark. */
  readonly pod: string | undefined;
  readonly link?: string;
  readonly what: string;
}

/** Links, machines, directories and neighbours of pods that do not run. */
export function leftovers(world: World, node: Node): Leftover[] {
  const found: Leftover[] = [];
  const running = new Set<string>(
    node.records
      .list()
      .filter(({ state }) => state === "running" || state === "paused")
      .map(({ id }) => id),
  );
  // (Whether these are as they should be is asked of the pool: `poolViolations`.)
  const waiting = new Set(node.pods.pool.isUsed ? world.markers() : []);
  const add = (pod: string | undefined, what: string, link?: string): void => {
    if (pod === undefined || !(running.has(pod) || waiting.has(pod)))
      found.push({ pod, what, ...(link === undefined ? {} : { link }) });
  };
  for (const link of world.kernel.links.all.values()) {
    const owner = parseOwner(link.alias);
    // Ours by its name until it has its mark: `pn`, the pod, and the interface's position.
    const unmarked = /^p[ni]([a-z2-7]{12})[0-9a-z]$/.exec(link.name)?.[1];
    if (owner?.kind === "pod") add(owner.key, `link ${link.name} is left`);
    else if (unmarked !== undefined) add(unmarked, `tap ${link.name} is left`, link.name);
    else if (owner === undefined && isOursOrPendingDelete(link.group))
      found.push({
        pod: undefined,
        link: link.name,
        what: `link ${link.name} has our group and no mark`,
      });
  }
  for (const { name, neighbours } of world.kernel.links.all.values())
    for (const [ip, mac] of neighbours)
      add(world.machines.holders.get(mac), `neighbour ${ip} of ${name} is left`);
  for (const { plan } of world.machines.all) add(plan.podId, `a machine of ${plan.podId} is left`);
  for (const name of readdirSync(world.config.podsDir))
    add(name.replace(parkedPrefix, ""), `run directory ${name} is left`);
  return found;
}

const isOursOrPendingDelete = (group: number): boolean =>
  isOurGroup(group) || group === mark.pendingDeleteGroup;

/**
 * What holds when nothing is under way: the machines that have markers are the ones that wait, and
 * lead nowhere; no guest was ever more than one pod's, and no two have one MAC.
 */
export function poolViolations(world: World, node: Node): string[] {
  const { machines, kernel } = world;
  const found = [...machines.confused];
  const marked = world.markers();
  const ready = node.pods.pool.counts().reduce((sum, each) => sum + each.ready, 0);
  if (marked.length !== ready)
    found.push(`${ready} machines wait, and ${marked.length} markers say so`);
  for (const id of marked) {
    const machine = [...machines.all].find(({ plan }) => plan.podId === id);
    if (node.records.get(id as never) !== undefined) found.push(`pod ${id} has a marker`);
    if (machine?.paused !== true) found.push(`the machine ${id} does not wait`);
    for (const { nic } of machine?.nics.values() ?? []) {
      if (nic.mac !== templateNicMac) found.push(`the machine ${id} waits with ${nic.mac}`);
      if (kernel.links.find(nic.tap)?.master !== 0) found.push(`the machine ${id} has a port`);
    }
  }
  const macs = new Map<string, string>();
  // (One that is paused sends nothing. After a reset its guest is configured when it goes on.)
  for (const { plan, nics, paused } of machines.all)
    for (const { nic } of paused ? [] : nics.values()) {
      const other = nic.mac === templateNicMac ? "a template" : macs.get(nic.mac);
      if (other !== undefined) found.push(`${plan.podId} and ${other} share ${nic.mac}`);
      macs.set(nic.mac, plan.podId);
    }
  return found;
}

/** Whether no machine of a pool is still to be made or ended. */
export const isPoolAtRest = ({ pods: { pool } }: Node): boolean =>
  !pool.isUsed ||
  pool.counts().every(({ ready, size }) => (pool.isDrained ? ready === 0 : ready === size));

/**
 * What holds when nothing is under way: every pod is in a state that lasts, and what runs is whole.
 */
export function podViolations(world: World, node: Node): string[] {
  const found: string[] = [];
  for (const row of node.records.list()) {
    if (!["running", "paused", "stopped", "failed"].includes(row.state))
      found.push(`pod ${row.id} stays ${row.state}`);
    if (row.before !== undefined) found.push(`a change of pod ${row.id} stays under way`);
    if (row.state === "running" || row.state === "paused")
      found.push(...runningViolations(row, world, node));
  }
  return found;
}

function runningViolations(row: PodRow, { machines, kernel }: World, node: Node): string[] {
  const found: string[] = [];
  const machine = machines.of(row.plan.vm.runDir);
  if (machine === undefined) return [`pod ${row.id} runs without a machine`];
  if (machine.paused !== (row.state === "paused"))
    found.push(`pod ${row.id} is ${row.state}, its machine ${machine.paused ? "paused" : "runs"}`);
  if (machine.record.pid !== node.records.run(row.id)?.pid)
    found.push(`pod ${row.id} is recorded with another pid`);
  const { ejected } = machine;
  const kept = withNic(row.plan.interfaces).filter(({ nic }) => !ejected.has(nic.nicId));
  for (const port of portsOf(row.plan, node.networks.list()).ports) {
    if (!kept.some(({ nic }) => nic.tap === port.tap)) continue;
    const link = kernel.links.find(port.tap);
    const bridge = kernel.links.find(port.bridge);
    const seen =
      link && [link.alias, link.group, link.mtu, link.up, link.isolated, link.master].join();
    const wanted = [
      port.alias,
      portGroup(port.bridge),
      port.mtu,
      true,
      port.isolated,
      bridge?.index,
    ].join();
    if (seen !== wanted) found.push(`port ${port.tap} is ${seen} instead of ${wanted}`);
    found.push(...rateViolations(port, kernel));
  }
  const nics = [...machine.nics.keys()].toSorted().join();
  const planned = kept.map(({ nic }) => nic.nicId);
  if (nics !== planned.toSorted().join()) found.push(`pod ${row.id} has NICs ${nics}`);
  return found;
}

/**
 * What networks and published ports are on the host: bridges, forwarding, and exactly the planned
 * rules, each once.
 */
export function networkViolations(
  { kernel, config, variant }: World,
  node: Node,
  /** Marks of pods and networks of which something may be left. */
  passed: ReadonlySet<string> = new Set(),
): string[] {
  const found: string[] = [];
  const fragments = node.networks.fragments();
  for (const fragment of fragments) {
    const bridge = kernel.links.find(fragment.bridge);
    const seen =
      bridge &&
      [
        bridge.alias,
        bridge.mtu,
        bridge.up,
        ...bridge.addresses.map((held) => held.prefix).toSorted(),
      ].join();
    const wanted = [
      networkMark(fragment.key),
      fragment.mtu,
      true,
      ...fragment.gateways.toSorted(),
    ].join();
    if (seen !== wanted) found.push(`bridge ${fragment.bridge} is ${seen} instead of ${wanted}`);
  }
  if (kernel.readSysctl("net.ipv4.ip_forward") !== "1") found.push("forwarding is off");
  const halves = node.attachments.list().filter(({ state }) => state !== "ready");
  // A pod on its way has its port's elements before the port, and keeps them until it has left.
  const onTheirWay = node.records
    .list()
    .filter(({ state }) => state === "creating" || state === "stopping" || state === "deleting");
  const skipped = [
    ...passed,
    ...halves.map(({ id }) => attachmentMark(id)),
    ...onTheirWay.map(({ id }) => podRuleMark(id)),
  ];
  const published = publishedNow(node).filter((each) => !passed.has(publishedMark(each)));
  const isPassed = (line: string): boolean => skipped.some((owner) => line.includes(owner));
  for (const family of [4, 6] as const) {
    const rules = fragments.flatMap((fragment) => networkRules(fragment, family));
    // Once it is there for a family, the way into the chain stays until podnet goes down.
    const shared = sharedRules(config.iptablesChain, family);
    if (family === 4) rules.push(...shared);
    const tables = family === 4 ? kernel.iptables : kernel.ip6tables;
    const text = ({ table, chain, args }: Rule): string => `${table} ${chain} ${ruleKey(args)}`;
    const passable = family === 4 ? [] : shared.map(text);
    const due = config.firewall === "iptables" ? rules.map(text) : [];
    // Of IPv6 the host says by nothing of its own which variant it uses: all are in one of them.
    const held = variants.map((each) =>
      rulesOfOurs(tables[each].save()).filter((rule) => !isPassed(rule)),
    );
    const used =
      family === 4
        ? variants.indexOf(variant)
        : Math.max(
            0,
            held.findIndex(({ length }) => length > 0),
          );
    for (const [at, ours] of held.entries()) {
      const [is, should] = [ours, at === used ? due : []].map((list) =>
        list
          .filter((rule) => !passable.includes(rule))
          .toSorted()
          .join("\n  "),
      );
      if (is !== should)
        found.push(
          `iptables-${variants[at]} (IPv${family}) holds of ours:\n  ${is}\ninstead of\n  ${should}`,
        );
    }
    if (fragments.length > 1 || found.length > 0) continue;
    // FORWARD judges what comes in before what goes out.
    const [inOrder, order] = [held[used] ?? [], due].map((list) =>
      list.filter((rule) => rule.startsWith("filter FORWARD")).join(),
    );
    if (inOrder !== order) found.push("the rules are out of order");
  }
  const wanted = config.firewall === "nftables";
  return [
    ...found,
    ...tableViolations(kernel.nftables, { fragments, published, isPassed }, wanted),
  ];
}

/**
 * Our table of nftables has its rules and the elements of networks and published ports, those
 * alone; or is not there.
 */
function tableViolations(
  nftables: FakeNftables,
  due: {
    readonly fragments: readonly NetworkFragment[];
    readonly published: readonly PluggedFragment[];
    isPassed(line: string): boolean;
  },
  wanted: boolean,
): string[] {
  const { fragments, published, isPassed } = due;
  const held = (
    model: TableModel,
    planned: readonly Element[],
    chains: readonly PolicyChain[] = [],
  ): string[] => {
    const rules = [
      ...Object.keys(model.chains).flatMap((chain) =>
        ruleComments(chain, model).map((comment) => `${chain} ${comment}`),
      ),
      ...chains.flatMap((chain) =>
        policyComments(chain.name, chain.rules.length).map((comment) => `${chain.name} ${comment}`),
      ),
    ];
    const elements = planned.map(({ set, key, owner, value }) =>
      [set, key, owner, ...(value === undefined ? [] : [value])].join(" | "),
    );
    const { name } = model;
    const all = nftables.elements(name);
    const ours = all.filter((line) => !isPassed(line));
    // What may be left may lead to a chain, which goes with it.
    const left = all.filter(isPassed).map((line) => /\| jump (\w+)$/.exec(line)?.[1]);
    const isLeft = (rule: string): boolean => {
      const [chain] = rule.split(" ");
      return left.includes(chain) && !chains.some((wanted) => wanted.name === chain);
    };
    const [seen, should] = [
      [...nftables.ruleComments(name).filter((rule) => !isLeft(rule)), ...ours],
      [...rules, ...elements],
    ].map((lines) => lines.toSorted().join("\n  "));
    return seen === should ? [] : [`${name} holds\n  ${seen}\ninstead of\n  ${should}`];
  };
  const [bridgeGuard, hostGuard, shares] = guardTables;
  const guards = [
    ...held(bridgeGuard, [
      ...fragments.flatMap((network) =>
        bridgeGuardElements(network, bridgeMac(machineId(), network.bridge)),
      ),
      ...published.flatMap(portElements),
    ]),
    ...held(hostGuard, fragments.flatMap(hostGuardElements)),
    ...held(
      shares,
      [...fragments.flatMap(shareElements), ...published.flatMap(sharingElements)],
      published.flatMap(sharingChains),
    ),
  ];
  const ofPods = published.flatMap(podElements);
  const [model, other, ofNetworks] = wanted
    ? [mainTable, publishedTable, networkElements]
    : [publishedTable, mainTable, publishingElements];
  const left = nftables.names.includes(other.name) ? [`${other.name} is there`] : [];
  return [...guards, ...held(model, [...fragments.flatMap(ofNetworks), ...ofPods]), ...left];
}

/** Pods and containers whose published ports are on the host. */
const publishedNow = (node: Node): readonly PluggedFragment[] => [
  ...node.records
    .list()
    .filter(({ state }) => state === "running" || state === "paused")
    .map(({ plan }) => portsOf(plan, node.networks.list())),
  ...node.attachments
    .list()
    .filter(({ state }) => state === "ready")
    .map(({ plan }) => ruledPart(node.attachments.fragmentOf(plan))),
];

const rulesOfOurs = (saved: string): string[] =>
  [...parseSave(saved).values()].flatMap(({ name, rules }) =>
    rules
      .filter(({ args }) => parseOwner(commentOf(args)) !== undefined)
      .map(({ chain, args }) => `${name} ${chain} ${ruleKey(args)}`),
  );

/**
 * What of ours is left on the host, which after `down` is nothing; but forwarding stays on if its
 * state was lost.
 */
export function remains(world: World, forgetful: boolean): string[] {
  const { kernel, config } = world;
  return [
    ...[...kernel.links.all.values()]
      .filter(
        (link) =>
          parseOwner(link.alias) !== undefined ||
          link.name === config.network.bridge ||
          (link.kind === "bridge" && link.name.startsWith("pn-")),
      )
      .map(({ name }) => `link ${name} is left`),
    ...variants.flatMap((variant) => {
      const saved = `${kernel.iptables[variant].save()}${kernel.ip6tables[variant].save()}`;
      const chain = saved.includes(config.iptablesChain)
        ? [`chain ${config.iptablesChain} is left`]
        : [];
      return [...rulesOfOurs(saved).map((rule) => `rule ${rule} is left`), ...chain];
    }),
    ...kernel.nftables.names.map((name) => `table ${name} is left`),
    ...(forgetful || kernel.readSysctl("net.ipv4.ip_forward") === "0"
      ? []
      : ["forwarding is left on"]),
    ...readdirSync(config.podsDir).map((name) => `directory ${name} is left`),
    ...[...world.machines.all].map(({ plan }) => `a machine of ${plan.podId} is left`),
  ];
}

type State = PodRow["state"];

/** What may follow each state; `gone` stands for a row that is not there. */
const following: Readonly<Record<State | "gone", readonly (State | "gone")[]>> = {
  gone: ["creating"],
  creating: ["running", "failed", "gone", "deleting"],
  running: ["failed", "stopped", "deleting", "stopping", "paused"],
  paused: ["running", "failed", "deleting", "stopping", "stopped"],
  stopping: ["stopped", "failed"],
  stopped: ["creating", "deleting"],
  failed: ["creating", "deleting", "stopping"],
  deleting: ["gone", "failed"],
};

/** Whether one commit may lead from one state to the other. */
export const mayFollow = (before: State | "gone", after: State | "gone"): boolean =>
  before === after || following[before].includes(after);
