import type { OverlayConfig } from "../../../overlay/flannel/config.ts";
import type { Subnets } from "../../../overlay/flannel/key.ts";
import type { LeaseState } from "../../../overlay/lease-state.ts";
import { ownerOf } from "../../../overlay/owner.ts";
import { readEntry } from "../../../overlay/registry.ts";
import type { LeaseTransaction, StoredKey, StoreUpdate } from "../../../overlay/store.ts";
import { meet } from "../../../overlay/subnets.ts";
import type { FakeEtcd } from "./fake-etcd.ts";
import type { Node } from "./node.ts";

/** Most calls of one host in a minute of virtual time. */
const callsAMinute = 150;
const subnetsPart = "/subnets";

/** Something that must never be. */
export class Violation extends Error {}

function never(is: boolean, invariant: string, what: () => string): void {
  if (is) throw new Violation(`${invariant}: ${what()}`);
}

const shownTransaction = (transaction: LeaseTransaction): string =>
  JSON.stringify(transaction, (_, value: unknown) =>
    typeof value === "bigint" ? value.toString(16) : value,
  );

/** Keys as flannel reads them, of what is known of flannel alone. */
const flannelKey = /^\/net\/subnets\/(\d+\.\d+\.\d+\.\d+)-(\d+)(?:&([0-9a-f:]+)-(\d+))?$/;
const flannelValue =
  /^\{"PublicIP":"\d+\.\d+\.\d+\.\d+","PublicIPv6":(?:null|"[0-9a-f:]+")(?:,"BackendType":"[a-z-]+")?(?:,"BackendData":.+)?(?:,"BackendV6Data":.+)?\}$/;

/** What a transaction of a node does, looked at just before etcd does it. */
export function checkCommit(
  node: Node,
  transaction: LeaseTransaction,
  etcd: FakeEtcd,
  config: OverlayConfig | undefined,
): void {
  const { owner } = node.state.host;
  const fails = transaction.compares.some(
    ({ key, modRevision }) => (etcd.keys.get(key)?.modRevision ?? 0n) !== modRevision,
  );
  // Nothing is put with a grant that was ended, and so nothing of the transaction is done: that is
  // how one on its way is called back.
  const granted = etcd.grants();
  const ended = transaction.puts.some(({ grant }) => grant !== 0n && !granted.includes(grant));
  if (fails || ended) return;
  const text = (): string => `${node.name} ${shownTransaction(transaction)}`;
  const isOthers = (at: StoredKey): boolean => {
    const marked = ownerOf(at.grant);
    if (marked !== undefined) return marked !== owner;
    const entry = readEntry(at);
    if (entry.kind === "skipped") return true;
    const { publicIp: ip, publicIp6: ip6 } = entry.value;
    // (What is on its way may be of an address that the host has had until now.)
    const isOwn = node.addresses.has(ip) || (ip6 !== undefined && node.addresses.has(ip6));
    return !isOwn && at.value !== node.state.own?.text;
  };
  const touched = [...transaction.puts.map(({ write }) => write.key), ...transaction.deletes];
  for (const key of touched) {
    const there = etcd.keys.get(key);
    never(there !== undefined && isOthers(there), "others' leases are left alone", text);
    never(
      there?.grant === 0n && transaction.deletes.includes(key),
      "kept for ever",
      () => `deleted ${text()}`,
    );
  }
  for (const { write, grant } of transaction.puts) {
    const there = etcd.keys.get(write.key);
    never(there?.grant === 0n && grant !== 0n, "kept for ever", text);
    const match = flannelKey.exec(write.key);
    never(match === null || !flannelValue.test(write.value), "never written: unreadable", text);
    const dual = match?.[3] !== undefined && !write.key.includes("/0.0.0.0-0&");
    never(dual && config?.v6 === undefined, "never written: two families", text);
    const value = JSON.parse(write.value) as { PublicIP: string; PublicIPv6: string | null };
    for (const at of etcd.keys.values()) {
      if (at.key === write.key || transaction.deletes.includes(at.key)) continue;
      const seen = node.registry.get(at.key);
      // What the host has not been told of yet it cannot know.
      if (seen?.modRevision !== at.modRevision || !isOthers(at)) continue;
      const other = readEntry(at);
      const said = there === undefined ? undefined : readEntry(there);
      if (other.kind === "skipped" || other.value.publicIp !== value.PublicIP) continue;
      const already = said?.kind === "lease" && said.value.publicIp === value.PublicIP;
      never(!already, "never written: an address of others", () => `${text()} beside ${at.key}`);
    }
  }
  for (const key of transaction.deletes) {
    if (key !== node.state.own?.key) continue;
    const subnets = JSON.stringify(node.state.own.subnets);
    never(!node.emptied.has(subnets), "drained first", text);
  }
}

/** What a node knows is what etcd had then; its own later writes are known besides. */
export function checkUpdate(node: Node, { etcd }: { etcd: FakeEtcd }, update: StoreUpdate): void {
  if (update.kind !== "snapshot" && update.kind !== "changes") return;
  const { revision } = update;
  const was = etcd.stateAt(revision) ?? new Map<string, StoredKey>();
  const text = (key: string): string => `${node.name} at ${revision}: ${key}`;
  for (const at of was.values()) {
    if (!at.key.includes(subnetsPart)) continue;
    const known = node.registry.get(at.key);
    // (It may know from its own transactions that this has changed since, or is gone.)
    const later = etcd.keys.get(at.key);
    if (known === undefined) {
      never(
        later?.modRevision === at.modRevision,
        "nothing lost",
        () => `missing, ${text(at.key)}`,
      );
      continue;
    }
    never(known.modRevision < at.modRevision, "nothing lost", () => `old, ${text(at.key)}`);
  }
  for (const { key, modRevision } of node.registry)
    never(
      !was.has(key) && modRevision <= revision,
      "nothing lost",
      () => `left over, ${text(key)}`,
    );
}

/** After each step. */
export function checkStep(node: Node, before: LeaseState, now: number): void {
  const was = before.own;
  const is = node.state.own;
  if (was !== undefined && was.key !== is?.key)
    never(
      !node.emptied.has(JSON.stringify(was.subnets)),
      "the same subnets",
      () => `${node.name} had ${was.key} and has ${is?.key}`,
    );
  const recent = node.calls.filter((at) => at > now - 60_000);
  node.calls.splice(0, node.calls.length, ...recent);
  never(recent.length > callsAMinute, "no haste", () => `${node.name}: ${recent.length} calls`);
}

/** Of every two hosts whose leases both last. */
export function checkApart(nodes: readonly Node[], etcd: FakeEtcd): void {
  const held = nodes.flatMap((node) => {
    const own = node.state.own;
    const holds = own !== undefined && etcd.keys.get(own.key)?.grant === own.grant;
    return holds ? [{ node, subnets: own.subnets, key: own.key }] : [];
  });
  for (const [i, a] of held.entries())
    for (const b of held.slice(i + 1)) {
      const both = a.key === b.key || sameExactly(a.subnets, b.subnets);
      // A lost key that is made again guards itself alone: who made it too late learns so
      // afterwards, and says so.
      const created = (key: string): bigint => etcd.keys.get(key)?.createRevision ?? 0n;
      const younger = created(a.key) < created(b.key) ? b : a;
      if (a.key !== b.key && younger.node.state.own?.regained === true) continue;
      never(both, "one subnet, one host", () => `${a.node.name} and ${b.node.name}: ${a.key}`);
    }
}

const sameExactly = (a: Subnets, b: Subnets): boolean => meet(a, b);

/** When all has been quiet for long. */
export function checkQuiet(node: Node, nodes: readonly Node[], etcd: FakeEtcd): void {
  const { state, registry, name } = node;
  const { own, host, wish } = state;
  const text = (): string => `${name} ${JSON.stringify(state.troubles)}`;
  const marked = [...etcd.keys.values()].filter(({ grant }) => ownerOf(grant) === host.owner);
  never(state.staleSince !== undefined, "nothing lost", () => `stale, ${text()}`);
  const known = [...registry].map(({ key, modRevision }) => `${key} ${modRevision}`).sort();
  const there = [...etcd.keys.values()]
    .filter(({ key }) => key.includes(subnetsPart))
    .map(({ key, modRevision }) => `${key} ${modRevision}`)
    .sort();
  never(
    known.join() !== there.join(),
    "nothing lost",
    () => `${name} knows\n${known.join("\n")}\nnot\n${there.join("\n")}`,
  );
  const leases = [...registry].filter(({ kind }) => kind === "lease").length;
  const others = [...registry].filter(({ key }) => key !== own?.key).length;
  const { peers } = node;
  const passed = Object.values(peers.passedOver).reduce((sum, count) => sum + count, 0);
  never(
    peers.size + passed !== others || leases < peers.size,
    "nothing lost",
    () => `${name} has ${peers.size} peers and ${passed} passed over of ${others}`,
  );
  if (wish === "leave") {
    never(own !== undefined || marked.length > 0, "one key", () => `left, yet ${text()}`);
    return;
  }
  never(own === undefined, "one key", () => `none, ${text()}`);
  const taken = state.troubles.some(({ kind }) => kind === "taken");
  const created = (key: string | undefined): bigint | undefined =>
    etcd.keys.get(key ?? "")?.createRevision;
  const since = created(own?.key);
  const isFirst = (other: Node): boolean => {
    const before = created(other.state.own?.key);
    return since !== undefined && before !== undefined && before < since;
  };
  const told = nodes.every(
    (other) => other === node || !livesIn(other, own?.subnets) || !isFirst(other),
  );
  never(!told && !taken, "one subnet, one host", () => `not told of, ${text()}`);
  // While it was away another host has come to live in its subnets, or in a part of them, and
  // stays: it says so, and waits.
  if (taken && nodes.some((other) => other !== node && livesIn(other, own?.subnets))) return;
  const at = etcd.keys.get(own?.key ?? "");
  never(at === undefined, "one key", () => `gone, ${text()}`);
  if (at === undefined) return;
  never(
    at.grant !== 0n && ownerOf(at.grant) !== host.owner,
    "one key",
    () => `not its own, ${text()}`,
  );
  never(marked.length > 1, "one key", () => `${marked.length} of them, ${text()}`);
  const entry = readEntry(at);
  const says = entry.kind === "lease" ? entry.value : undefined;
  const address =
    state.config?.v4 === undefined
      ? says?.publicIp6 === host.publicIp6
      : says?.publicIp === host.publicIp;
  never(!address, "one key", () => `says ${at.value}, ${text()}`);
  never(state.troubles.length > 0, "one key", text);
}

const livesIn = ({ state: { own } }: Node, subnets: Subnets | undefined): boolean =>
  own !== undefined && subnets !== undefined && meet(own.subnets, subnets);
