import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { Ip } from "../../../../core/address.ts";
import { type Clock, systemClock } from "../../../../core/clock.ts";
import { watchEffects } from "../../../../core/effect.ts";
import { attachmentFragment } from "../../../../daemon/containers/attachment-fragment.ts";
import {
  type AttachmentPlan,
  attachmentPlanVersion,
} from "../../../../daemon/containers/attachment-plan.ts";
import { TeardownQueue } from "../../../../daemon/containers/teardown-queue.ts";
import { AttachmentRecords } from "../../../../daemon/containers/records.ts";
import { KeyedLock } from "../../../../daemon/reconcile/keyed-lock.ts";
import { Addresses } from "../../../../daemon/ipam/addresses.ts";
import { openLog } from "../../../../linux/log.ts";
import { configuration, openNode } from "../fixtures/node.ts";

const plan = {
  version: attachmentPlanVersion,
  id: "aaaaaaaaaaaa",
  containerId: "one",
  ifName: "eth0",
  config: "podnet",
  network: "default",
  netns: "/run/netns/one",
  bridge: "hyper0",
  mac: "0a:58:0a:00:00:02",
  mtu: 1500,
  addresses: ["10.0.0.2/29"],
  gateways: ["10.0.0.1"],
  dns: { nameservers: [], search: [], options: [] },
} as unknown as AttachmentPlan;

/**
 * A container that is attached, on a host that is played and says what was done to it, and how its
 * row stood then.
 */
function openSite() {
  const clock: Clock = systemClock;
  const node = openNode(configuration({ quarantine_s: "0" }), clock);
  const { db, journal, addresses } = node;
  const records = new AttachmentRecords({ db, journal, addresses, clock });
  const done: string[] = [];
  const failing = new Set<string>();
  /** What stands in the way of one's end. */
  const stuck = new Map<string, () => Promise<void>>();
  const does = async (what: string): Promise<void> => {
    done.push(`${what}, ${records.get(plan.id)?.state ?? "no row"}`);
    if (failing.delete(what)) throw new Error(`Injected failure: ${what}`);
  };
  const teardowns = new TeardownQueue({
    network: {
      ensure: () => Promise.reject(new Error("not asked for")),
      check: () => Promise.reject(new Error("not asked for")),
      async release([{ key }]: readonly [{ readonly key: string }]) {
        await stuck.get(key)?.();
        await does("release");
      },
      sweep: () => does("sweep"),
    } as never,
    host: {
      remove: async () => (await does("end flows"), []),
      inspectRules: async () => (await does("rules"), new Map()),
    },
    published: { release: () => void done.push("let go of ports") },
    records,
    locks: new KeyedLock<string>(),
    fragmentOf: (each) => attachmentFragment(each, [], { mtu: undefined }),
    log: openLog({ component: "cni", level: "silent" }),
    leaves: () => void done.push("no drift"),
  });
  records.claim(plan);
  records.ready(plan);
  const row = () => {
    const found = records.get(plan.id);
    if (found === undefined) throw new Error("There is no row");
    return found;
  };
  return {
    node,
    done,
    failing,
    stuck,
    records,
    teardowns,
    row,
    /** Whether an address, the container's unless given, could be given to another now. */
    isFree: (ip = "10.0.0.2") => addresses.status(plan.network, ip as Ip).kind === "free",
    [Symbol.dispose]: () => node[Symbol.dispose](),
  };
}

test("a container's row goes after its link, and its address is free before", async (t) => {
  using site = openSite();
  const { done, teardowns, records } = site;
  await teardowns.detach(site.row(), "detached");
  t.deepEqual(done, ["no drift", "let go of ports", "release, deleting"]);
  t.is(site.row().state, "deleting");
  t.false(site.isFree());
  await teardowns.sweep();
  t.deepEqual(done.slice(3), ["sweep, deleting", "rules, deleting", "end flows, deleting"]);
  t.is(records.get(plan.id), undefined);
  t.true(site.isFree());
  await teardowns.close();
});

test("a container on its way out keeps its address over a start, though its record is damaged", (t) => {
  using site = openSite();
  const { node, records, row } = site;
  records.deleting(records.readable(row()), "detached");
  node.db.run("UPDATE attachments SET plan = '{}' WHERE id = ?", plan.id);
  const started = new Addresses(node.db, node.definitions, 0, systemClock);
  t.is(started.status(plan.network, "10.0.0.2" as Ip).kind, "held");
  t.is(started.status(plan.network, "10.0.0.3" as Ip).kind, "free");
});

for (const what of ["release", "sweep", "rules", "end flows"])
  test(`a container is not forgotten when its end fails: ${what}`, async (t) => {
    using site = openSite();
    const { teardowns, failing, records } = site;
    failing.add(what);
    const gone = teardowns.detach(site.row(), "detached").then(() => teardowns.sweep());
    await t.throwsAsync(gone, { message: `Injected failure: ${what}` });
    t.is(site.row().state, "deleting");
    t.false(site.isFree());
    // Asked again, it goes.
    await teardowns.detach(site.row(), "again");
    await teardowns.sweep();
    t.is(records.get(plan.id), undefined);
    t.true(site.isFree());
    await teardowns.close();
  });

test.serial("a claim whose commit throws and is there counts; one that is not does not", (t) => {
  for (const [side, kept] of [
    ["after", true],
    ["before", false],
  ] as const) {
    using site = openSite();
    const other = { ...plan, id: "b", containerId: "two", addresses: ["10.0.0.3/29"] } as never;
    const at = ({ what }: { readonly what: string }, now: string): void => {
      if (what === "claim attachment" && now === side) throw new Error("Injected failure");
    };
    watchEffects({ at, atAsync: async () => {} });
    try {
      if (kept) site.records.claim(other);
      else t.throws(() => site.records.claim(other));
    } finally {
      watchEffects(undefined);
    }
    t.is(site.records.get("b" as never) !== undefined, kept);
    t.is(site.isFree("10.0.0.3"), !kept);
  }
});

test("an ADD that fails leaves no row and no address", async (t) => {
  using site = openSite();
  await site.teardowns.undo(plan, new Error("why"));
  t.is(site.records.get(plan.id), undefined);
  t.true(site.isFree());
  t.deepEqual(site.done.at(-1), "end flows, deleting");
  await site.teardowns.close();
});

test.serial(
  "a container whose row cannot say yet that it ends is taken away later all the same",
  async (t) => {
    using site = openSite();
    const { teardowns, row, records } = site;
    t.teardown(() => watchEffects(undefined));
    let failures = 1;
    const at = ({ what }: { readonly what: string }, now: string): void => {
      if (what === "detaching" && now === "before" && failures-- > 0) throw new Error("No room");
    };
    watchEffects({ at, atAsync: async () => {} });
    await teardowns.undo(plan, new Error("why"));
    t.is(row().state, "ready");
    const until = performance.now() + 20_000;
    while (records.get(plan.id) !== undefined && performance.now() < until) await delay(50);
    t.is(records.get(plan.id), undefined);
    t.true(site.isFree());
    await teardowns.close();
  },
);

/** Others of that kind. */
function others(...names: readonly string[]): AttachmentPlan[] {
  return names.map((name, i) => {
    const key = name.padEnd(12, "x");
    const addresses = [`10.0.0.${i + 3}/29`];
    return { ...plan, id: key, containerId: name, addresses } as never;
  });
}

test("a container that cannot be detached holds up no sweep of others, nor waits longer than it must", async (t) => {
  using site = openSite();
  const { teardowns, records, stuck } = site;
  const left = (): string[] =>
    records
      .list()
      .map(({ containerId }) => containerId)
      .toSorted();
  const rest = others("two", "three", "four");
  for (const each of rest) {
    records.claim(each);
    records.ready(each);
  }
  const end = (name: string): Promise<void> => {
    const row = records.list().find(({ containerId }) => containerId === name);
    if (row === undefined) throw new Error(`There is no row of ${name}`);
    return teardowns.detach(row, "detached");
  };
  let tried = 0;
  stuck.set("aaaaaaaaaaaa", async () => {
    tried += 1;
    throw new Error("Injected failure: stuck");
  });
  const never = Promise.withResolvers<void>();
  // It fails first, so that the pause after a failure has begun when the others come.
  await t.throwsAsync(end("one"), { message: "Injected failure: stuck" });
  const begun = performance.now();
  await end("two");
  for (let waited = 0; left().includes("two") && waited < 150; waited++) await delay(10);
  t.deepEqual(left(), ["four", "one", "three"]);
  // Others that go ask for no more of its tries than there would be.
  t.true(tried <= 1 + (performance.now() - begun) / 2000, `${tried} tries`);
  // One that cannot even be asked about is no worse.
  stuck.set("threexxxxxxx", () => never.promise);
  const hung = end("three");
  await end("four");
  for (let waited = 0; left().includes("four") && waited < 150; waited++) await delay(10);
  t.deepEqual(left(), ["one", "three"]);
  stuck.clear();
  never.resolve();
  await hung;
  for (let waited = 0; left().length > 0 && waited < 500; waited++) await delay(10);
  t.deepEqual(left(), []);
  await teardowns.close();
});
