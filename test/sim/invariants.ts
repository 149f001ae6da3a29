import { readdirSync } from "node:fs";
import { ipOf } from "../../core/address.ts";
import { networkFragment } from "../../daemon/networks/network-fragment.ts";
import type { Node } from "../../daemon/node.ts";
import type { Database } from "../../daemon/store/database.ts";
import { listLeases } from "../../daemon/store/leases.ts";
import { withNic } from "../../daemon/pod/pod-plan.ts";
import type { PodRow } from "../../daemon/store/pods.ts";
import { mark, type NetworkFragment } from "../../network/desired.ts";
import { networkRules, sharedRules } from "../../network/iptables/network-rules.ts";
import { commentOf, ruleKey } from "../../network/iptables/rule.ts";
import { parseSave } from "../../network/iptables/save-format.ts";
import { variants } from "../../network/iptables/variant.ts";
import { chainNames, ruleComments } from "../../network/nftables/base.ts";
import { networkElements } from "../../network/nftables/element.ts";
import { networkMark, parseOwner } from "../../network/ownership.ts";
import type { FakeNftables } from "./kernel/nftables.ts";
import type { World } from "./world.ts";

/** What holds at any time, in the middle of everything: nobody shares an address, and the books add up. */
export function booksViolations(world: World, node: Node, db: Database): string[] {
  const found: string[] = [];
  const { name } = world.config.network;
  const held = listLeases(db, name).filter(({ freedMs }) => freedMs === undefined);
  const owners = new Map<string, string>();
  for (const row of node.records.list())
    for (const { addresses, position } of row.plan.interfaces)
      for (const prefix of addresses) {
        const other = owners.get(ipOf(prefix));
        if (other !== undefined) found.push(`${prefix} is held by ${row.id} and ${other}`);
        owners.set(ipOf(prefix), `${row.id}/${position}`);
      }
  const leases = held.map(({ address, owner }) => `${address} ${owner.id}`);
  const planned = Array.from(owners, ([ip, owner]) => `${ip} ${owner}`);
  if (leases.toSorted().join() !== planned.toSorted().join())
    found.push(`leases are ${leases.join(", ")}, plans say ${planned.join(", ")}`);
  const { size, free, used, reserved, quarantined } = node.addresses.stats(name);
  if (free + used + reserved + quarantined !== size) found.push("the pool's counts do not add up");
  if (used !== BigInt(held.length)) found.push(`the pool has ${used} used, rows ${held.length}`);
  return found;
}

/** What there is of a pod that its row does not account for. */
export interface Leftover {
  /** Undefined when nothing tells whose it is. */
  readonly pod: string | undefined;
  readonly what: string;
}

/** Links, machines, directories and neighbours of pods that do not run. */
export function leftovers(world: World, node: Node): Leftover[] {
  const found: Leftover[] = [];
  const running = new Set<string>(
    node.records
      .list()
      .filter(({ state }) => state === "running")
      .map(({ id }) => id),
  );
  const add = (pod: string | undefined, what: string): void => {
    if (pod === undefined || !running.has(pod)) found.push({ pod, what });
  };
  for (const link of world.kernel.links.all.values()) {
    const owner = parseOwner(link.alias);
    // Ours by its name until it has its mark: `pn`, the pod, and the interface's position.
    const unmarked = /^pn([a-z2-7]{12})\d$/.exec(link.name)?.[1];
    if (owner?.kind === "pod") add(owner.key, `link ${link.name} is left`);
    else if (unmarked !== undefined) add(unmarked, `tap ${link.name} is left`);
    else if (owner === undefined && ourGroups.includes(link.group))
      add(undefined, `link ${link.name} has our group and no mark`);
  }
  for (const { name, neighbours } of world.kernel.links.all.values())
    for (const [ip, mac] of neighbours)
      add(world.machines.holders.get(mac), `neighbour ${ip} of ${name} is left`);
  for (const { plan } of world.machines.all) add(plan.podId, `a machine of ${plan.podId} is left`);
  for (const name of readdirSync(world.config.podsDir)) add(name, `run directory ${name} is left`);
  return found;
}

const ourGroups: readonly number[] = [mark.linkGroup, mark.graveyardGroup];

/** What holds when nothing is under way: every pod is in a state that lasts, and what runs is whole. */
export function podViolations(world: World, node: Node): string[] {
  const found: string[] = [];
  for (const row of node.records.list()) {
    if (!["running", "stopped", "failed"].includes(row.state))
      found.push(`pod ${row.id} stays ${row.state}`);
    if (row.state === "running") found.push(...runningViolations(row, world, node));
  }
  return found;
}

function runningViolations(row: PodRow, { machines, kernel }: World, node: Node): string[] {
  const found: string[] = [];
  const machine = machines.of(row.plan.vm.runDir);
  if (machine === undefined) return [`pod ${row.id} runs without a machine`];
  if (machine.record.pid !== node.records.run(row.id)?.pid)
    found.push(`pod ${row.id} is recorded with another pid`);
  const { ejected } = machine;
  const kept = withNic(row.plan.interfaces).filter(({ nic }) => !ejected.has(nic.nicId));
  for (const port of row.plan.ports.ports) {
    if (!kept.some(({ nic }) => nic.tap === port.tap)) continue;
    const link = kernel.links.find(port.tap);
    const bridge = kernel.links.find(port.bridge);
    const seen =
      link && [link.alias, link.group, link.mtu, link.up, link.isolated, link.master].join();
    const wanted = [
      port.alias,
      mark.linkGroup,
      port.mtu,
      true,
      port.isolated,
      bridge?.index,
    ].join();
    if (seen !== wanted) found.push(`port ${port.tap} is ${seen} instead of ${wanted}`);
  }
  const nics = [...machine.nics.keys()].toSorted().join();
  const planned = kept.map(({ nic }) => nic.nicId);
  if (nics !== planned.toSorted().join()) found.push(`pod ${row.id} has NICs ${nics}`);
  return found;
}

/** The network's own part: bridge, forwarding, and exactly the planned rules, each once. */
export function networkViolations({ kernel, config, variant }: World): string[] {
  const found: string[] = [];
  const fragment = networkFragment(config.network, config);
  const bridge = kernel.links.find(fragment.bridge);
  const seen =
    bridge &&
    [bridge.alias, bridge.mtu, bridge.up, ...bridge.addresses.map((held) => held.prefix)].join();
  const wanted = [networkMark(fragment.key), fragment.mtu, true, ...fragment.gateways].join();
  if (seen !== wanted) found.push(`bridge is ${seen} instead of ${wanted}`);
  if (kernel.readSysctl("net.ipv4.ip_forward") !== "1") found.push("forwarding is off");
  const rules = [...networkRules(fragment, 4), ...sharedRules(fragment.chain, 4)];
  const planned = rules.map(({ table, chain, args }) => `${table} ${chain} ${ruleKey(args)}`);
  for (const each of variants) {
    const ours = rulesOfOurs(kernel.iptables[each].save());
    const due = each === variant && config.firewall === "iptables" ? planned : [];
    if (ours.toSorted().join("\n") !== due.toSorted().join("\n"))
      found.push(
        `iptables-${each} holds of ours:\n  ${ours.join("\n  ")}\ninstead of\n  ${due.join("\n  ")}`,
      );
    // FORWARD judges what comes in before what goes out.
    const inOrder = ours.filter((rule) => rule.startsWith("filter FORWARD"));
    const order = due.filter((rule) => rule.startsWith("filter FORWARD"));
    if (found.length === 0 && inOrder.join() !== order.join())
      found.push("the rules are out of order");
  }
  return [...found, ...tableViolations(kernel.nftables, fragment, config.firewall === "nftables")];
}

/** Our table of nftables has its rules and the network's elements, those alone; or is not there. */
function tableViolations(
  nftables: FakeNftables,
  fragment: NetworkFragment,
  wanted: boolean,
): string[] {
  if (!wanted) return nftables.exists ? ["there is a table of nftables"] : [];
  const rules = chainNames.flatMap((chain) =>
    ruleComments(chain).map((comment) => `${chain} ${comment}`),
  );
  const elements = networkElements(fragment).map(
    ({ set, key, owner }) => `${set} | ${key} | ${owner}`,
  );
  const [seen, planned] = [
    [...nftables.ruleComments(), ...nftables.elements()],
    [...rules, ...elements],
  ].map((lines) => lines.toSorted().join("\n  "));
  return seen === planned ? [] : [`nftables holds\n  ${seen}\ninstead of\n  ${planned}`];
}

const rulesOfOurs = (saved: string): string[] =>
  [...parseSave(saved).values()].flatMap(({ name, rules }) =>
    rules
      .filter(({ args }) => parseOwner(commentOf(args)) !== undefined)
      .map(({ chain, args }) => `${name} ${chain} ${ruleKey(args)}`),
  );

/** What of ours is left on the host, which after `down` is nothing; but forwarding stays on if its state was lost. */
export function remains(world: World, forgetful: boolean): string[] {
  const { kernel, config } = world;
  return [
    ...[...kernel.links.all.values()]
      .filter((link) => parseOwner(link.alias) !== undefined || link.name === config.network.bridge)
      .map(({ name }) => `link ${name} is left`),
    ...variants.flatMap((variant) => {
      const saved = kernel.iptables[variant].save();
      const chain = saved.includes(config.iptablesChain)
        ? [`chain ${config.iptablesChain} is left`]
        : [];
      return [...rulesOfOurs(saved).map((rule) => `rule ${rule} is left`), ...chain];
    }),
    ...(kernel.nftables.exists ? ["a table of nftables is left"] : []),
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
  paused: ["running", "failed", "deleting"],
  stopping: ["stopped", "failed"],
  stopped: ["creating", "deleting"],
  failed: ["creating", "deleting"],
  deleting: ["gone", "failed"],
};

/** Whether one commit may lead from one state to the other. */
export const mayFollow = (before: State | "gone", after: State | "gone"): boolean =>
  before === after || following[before].includes(after);
