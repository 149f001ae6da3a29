import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { type Ip, ipOf } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { migrations } from "../../../../daemon/store/migrations.ts";
import {
  type InterfacePlan,
  parseStoredPlan,
  withNic,
} from "../../../../daemon/pods/store/pod-plan.ts";
import type { PodId } from "../../../../core/names.ts";
import { KeptPlans, plansDirectory } from "../../../../daemon/pods/store/kept-plans.ts";
import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import { guestOf } from "../../../../daemon/pods/guest/guest-of.ts";
import { answeringGateways } from "../../../../daemon/pods/interfaces/plan-answers.ts";
import { portsOf } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import { machineOf } from "../../../../daemon/pods/plan/plan-seed.ts";
import type { GuestConfig } from "../../../../guest-init/protocol/configure.ts";
import type { VmPlan } from "../../../../hypervisor/driver.ts";
import type { PodFragment } from "../../../../network/model/desired.ts";
import { attachmentIfb, attachmentMark } from "../../../../network/model/ownership.ts";
import { attachmentFragment } from "../../../../daemon/containers/attachment-fragment.ts";
import type { AttachmentFragment } from "../../../../network/containers/desired.ts";
import { listAttachments } from "../../../../daemon/containers/store.ts";
import { listNetworks } from "../../../../daemon/networks/store.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };

const fixturePath = (schema: number): string =>
  join(import.meta.dirname, `../../../fixtures/state-${schema}.sql`);
/** States of earlier podnetds, each made by the code of its time. */
const fixture = (schema: number): string => readFileSync(fixturePath(schema), "utf8");
/** Schemas a podnetd has left a state of: not every step was ever the last one. */
const left = migrations.map((_, i) => i + 1).filter((schema) => existsSync(fixturePath(schema)));

interface Left {
  /** Settings of the podnetd that left it. */
  readonly network: Readonly<Record<string, string>>;
  /** Pods in it, and addresses of the default network in use and resting. */
  readonly pods: readonly string[];
  readonly used: bigint;
  readonly quarantinedOffsets: bigint;
  /** What a recovery makes of them, and how many addresses are in use then. */
  readonly recovered: readonly string[];
  readonly usedThen: bigint;
}

/** Pods of all kinds that there were by schema 4, as it left them. */
const manyPods: Left = {
  network: { "network.cidr": "10.0.0.0/27", "network.cidr6": "fd00::/64" },
  pods: [
    "creating",
    "deleting",
    "everywhere",
    "failed",
    "paused",
    "removing",
    "running",
    "set",
    "stopped",
    "stopping",
  ],
  used: 20n,
  quarantinedOffsets: 2n,
  recovered: [
    "everywhere running",
    "failed failed",
    "paused running",
    "removing running",
    "running running",
    "set running",
    "stopped stopped",
    "stopping stopped",
  ],
  usedThen: 16n,
};

/** What is in the states, and what becomes of it. */
const states: Readonly<Record<number, Left>> = {
  1: {
    network: { "network.cidr": "10.0.0.0/28" },
    pods: [
      "creating",
      "deleting",
      "failed",
      "paused",
      "restarting",
      "running",
      "stopped",
      "stopping",
    ],
    used: 8n,
    quarantinedOffsets: 1n,
    recovered: [
      "failed failed",
      // A row says what its machine does, and the one that is played here runs.
      "paused running",
      "restarting failed",
      "running running",
      "stopped stopped",
      "stopping stopped",
    ],
    usedThen: 6n,
  },
  4: manyPods,
  // With containers as well.
  5: { ...manyPods, used: 24n, usedThen: 20n },
  // And guests of every kind, before plans held decisions alone.
  7: {
    ...manyPods,
    pods: [...manyPods.pods, "agentless", "given", "had", "hyperstart", "theirs"].toSorted(),
    used: 33n,
    usedThen: 29n,
    recovered: [
      ...manyPods.recovered,
      "agentless running",
      "given running",
      "had running",
      "hyperstart running",
      "theirs running",
    ].toSorted(),
  },
};

const stateOf = (schema: number): Left => {
  const state = states[schema];
  if (state === undefined) throw new Error(`Say what is in state-${schema}.sql`);
  return state;
};

/** Today's podnetd on a state that one of then has left. */
function openLeft(schema: number): Node {
  const config = configuration({ ...stateOf(schema).network, quarantine_s: "3600" });
  const raw = new DatabaseSync(join(config.stateDir, "state.db"));
  raw.exec(fixture(schema));
  const { last } = raw.prepare("SELECT max(freed_ms) AS last FROM leases").get() as {
    last: number;
  };
  raw.close();
  // As if it were a second later: what rested then rests still.
  return openNode(config, { ...systemClock, now: () => last + 1000 });
}

/** Tables and indexes as they are made, but for how that is written. */
const schemaOf = (node: Node): string[] =>
  node.db
    .all("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    .map(({ sql }) => String(sql).replaceAll(/\s+/g, " "));

for (const schema of left) {
  test(`a state of schema ${schema} becomes what one made today is`, (t) => {
    using old = openLeft(schema);
    using fresh = openNode(configuration({}));
    t.deepEqual(schemaOf(old), schemaOf(fresh));
  });

  test(`a state of schema ${schema} is brought up to date, and every plan in it is read`, (t) => {
    using node = openLeft(schema);
    t.is(node.db.get("PRAGMA user_version")?.["user_version"], migrations.length);
    t.deepEqual(
      node.pods
        .list()
        .map(({ name }) => String(name))
        .toSorted(),
      stateOf(schema).pods,
    );
    for (const { plan } of node.db.all("SELECT plan FROM pods"))
      t.notThrows(() => parseStoredPlan(String(plan)));
    for (const row of node.pods.list())
      if (row.before !== undefined) t.is(row.before.plan.podId, row.id);
    const { used, quarantined } = node.addresses.stats("default" as never);
    t.deepEqual([used, quarantined], [stateOf(schema).used, stateOf(schema).quarantinedOffsets]);
  });

  test(`the pods of a state of schema ${schema} are recovered: what ran runs, what was half done is undone`, async (t) => {
    using node = openLeft(schema);
    await node.pods.recover("b");
    t.deepEqual(
      node.pods
        .list()
        .map(({ name, state }) => `${name} ${state}`)
        .toSorted(),
      stateOf(schema).recovered,
    );
    const { id } = node.pods.find("running");
    t.not(node.pods.live(id), undefined);
    t.is(node.addresses.stats("default" as never).used, stateOf(schema).usedThen);
    // By its plan of then a pod of then is started and deleted.
    t.is((await node.pods.start("stopped", { signal: never, progress })).state, "running");
    for (const { name } of node.pods.list())
      t.true((await node.pods.delete(name, { force: false })).existed);
    t.deepEqual(node.pods.list(), []);
    t.is((await node.create({ spec: { name: "new" } })).state, "running");
    await node.pods.close(0);
  });
}

/**
 * Plans as podnetd wrote them before they held decisions alone, by the pod's name; what a pod goes
 * back to by `NAME before`.
 */
function derivedThen(schema: number): Map<string, Derived> {
  const raw = new DatabaseSync(":memory:");
  using _raw = { [Symbol.dispose]: () => raw.close() };
  raw.exec(fixture(schema));
  const plans = raw.prepare(
    `SELECT name, plan FROM pods
     UNION ALL SELECT name || ' before', before -> '$.plan' FROM pods WHERE before IS NOT NULL`,
  );
  return new Map(
    plans.all().map(({ name, plan }) => [String(name), JSON.parse(String(plan)) as Derived]),
  );
}

interface Derived {
  readonly ports: PodFragment;
  readonly guest: GuestConfig;
  readonly vm: VmPlan;
}

test("what plans of schema 7 said of ports, guest and seed disk follows from what is left of them", (t) => {
  using node = openLeft(7);
  const then = derivedThen(7);
  for (const row of node.pods.list())
    for (const [name, pod] of [
      [String(row.name), row] as const,
      ...(row.before === undefined ? [] : [[`${row.name} before`, row.before] as const]),
    ]) {
      const { ports, guest, vm } = then.get(name) ?? {};
      // (The guard, limits and shares are of later.)
      const has = portsOf(pod.plan, node.definitions);
      const before = has.ports.map(
        ({ guard: _guard, ifb: _ifb, sharing: _sharing, ...port }) => port,
      );
      t.deepEqual({ ...has, ports: before }, ports, name);
      t.deepEqual(guestConfigOf(pod), guest, name);
      // podnetd stored what holds a machine, and who answers its guest, until both were derived.
      const { held: _stored, ...decided } = pod.plan.vm as VmPlan;
      t.deepEqual(machineOf({ ...pod, plan: { ...pod.plan, vm: decided } }), vm, name);
      for (const each of withNic(pod.plan.interfaces)) {
        const { answeredBy } = each as { readonly answeredBy?: readonly Ip[] };
        const [answers] = guestOf(pod.plan).steps.plugged(each);
        t.deepEqual(answers && answeringGateways(each, node.definitions), answeredBy, name);
      }
      then.delete(name);
    }
  t.deepEqual([...then.keys()], []);
  const stored = node.db.all("SELECT plan, before -> '$.plan' AS before FROM pods");
  const texts = stored.flatMap(({ plan, before }) => [plan, before ?? "{}"].map(String));
  for (const text of texts)
    for (const key of ["argv", "ports", "guest"]) t.false(key in JSON.parse(text), key);
});

test("a plan of schema 7 that is kept alongside the state is read as decisions", (t) => {
  using node = openLeft(7);
  const config = configuration({});
  const raw = new DatabaseSync(":memory:");
  using _raw = { [Symbol.dispose]: () => raw.close() };
  raw.exec(fixture(7));
  const row = raw.prepare("SELECT id, plan, spec FROM pods WHERE name = 'everywhere'").get() ?? {};
  const directory = plansDirectory(config);
  mkdirSync(directory, { recursive: true });
  const [plan, spec] = [row["plan"], row["spec"]].map((each) => JSON.parse(String(each)) as object);
  const file = { version: 1, stateDir: config.stateDir, left: false, networks: [], spec, plan };
  writeFileSync(join(directory, `${String(row["id"])}.json`), JSON.stringify(file));
  const kept = new KeptPlans(config).get(String(row["id"]) as PodId);
  t.deepEqual(kept?.plan, node.pods.find("everywhere").plan);
});

/** The limits, and the link of the way out, as a container's part said them. */
const asThen = ({ rates, awaitsPlugins, ...fragment }: AttachmentFragment) => ({
  ...fragment,
  ...(awaitsPlugins === undefined ? {} : { settling: awaitsPlugins }),
  ...(rates === undefined ? {} : { bandwidth: rates }),
  ...(rates?.fromGuest === undefined ? {} : { ifb: attachmentIfb(fragment.key) }),
});

for (const schema of [5, 7])
  test(`a container's part of the host in schema ${schema} follows from what is left of its plan`, (t) => {
    using node = openLeft(schema);
    const raw = new DatabaseSync(":memory:");
    using _raw = { [Symbol.dispose]: () => raw.close() };
    raw.exec(fixture(schema));
    const then = new Map(
      raw
        .prepare("SELECT id, plan -> '$.fragment' AS fragment FROM attachments")
        .all()
        .map(({ id, fragment }) => [String(id), JSON.parse(String(fragment)) as unknown]),
    );
    const rows = listAttachments(node.db);
    t.is(rows.length, then.size);
    for (const { id, plan, containerId } of rows) {
      t.deepEqual(
        asThen(attachmentFragment(plan, node.definitions, { mtu: undefined })),
        then.get(id) as ReturnType<typeof asThen>,
        containerId,
      );
      t.false("fragment" in plan);
    }
  });

test("whatever a container's plan of schema 8 had of its part of the host is still known", (t) => {
  const config = configuration({ ...stateOf(7).network, quarantine_s: "3600" });
  const raw = new DatabaseSync(join(config.stateDir, "state.db"));
  raw.exec(fixture(7));
  const { id } =
    raw.prepare("SELECT id FROM attachments WHERE container_id = 'attached'").get() ?? {};
  const fragment = {
    kind: "attachment",
    key: String(id),
    netns: "/run/netns/attached",
    hostLink: "veth9",
    guestLink: "eth0",
    madeByCaller: true,
    bridge: "hyper0",
    mac: "0a:58:0a:00:00:0f",
    mtu: 1400,
    addresses: ["10.0.0.15/27", "fd00::e/64"],
    routes: [
      { destination: "0.0.0.0/0", gateway: "10.0.0.1" },
      { destination: "::/0", gateway: "fd00::1" },
    ],
    alias: attachmentMark(String(id)),
    isolated: false,
    bandwidth: { toGuest: { bitsPerSecond: 1, burstBits: 2 } },
    macvlan: { link: "macvlan0", gateway: "10.0.0.1", serviceCidr: "172.30.0.0/16" },
    published: [],
    loopback: [{ protocol: "tcp", hostIp: "127.0.0.1", hostPort: 80, toPort: 32_768 }],
    settling: true,
    later: { mac: "02:00:00:00:00:09", left: ["mtu"] },
  };
  raw
    .prepare(
      `UPDATE attachments
       SET plan = json_set(plan, '$.fragment', json(?), '$.published', json('[]'))
       WHERE container_id = 'attached'`,
    )
    .run(JSON.stringify(fragment));
  raw.close();
  using node = openNode(config);
  const [row] = listAttachments(node.db).filter(({ containerId }) => containerId === "attached");
  const { plan } = row ?? {};
  t.deepEqual(
    plan && asThen(attachmentFragment(plan, node.definitions, config.cni)),
    fragment as unknown as ReturnType<typeof asThen>,
  );
});

test("a plan that makes no sense stays as it is when plans become decisions, and its pod alone is refused", (t) => {
  const config = configuration({ ...stateOf(7).network, quarantine_s: "3600" });
  const raw = new DatabaseSync(join(config.stateDir, "state.db"));
  raw.exec(fixture(7));
  const damaged = "json_set(plan, '$.guest.routes', 7)";
  raw.exec(`UPDATE pods SET plan = ${damaged} WHERE name = 'stopped'`);
  raw.close();
  using node = openNode(config);
  t.throws(() => node.pods.find("stopped"), { code: "STATE_CORRUPT", message: /version 1/ });
  t.is(node.pods.list().length, stateOf(7).pods.length - 1);
});

test("the state of schema 4 has in it whatever a state can have", (t) => {
  using node = openLeft(4);
  t.deepEqual(
    listNetworks(node.db).map(({ definition, state, before }) =>
      [definition.name, state, before?.subnets[0]?.gateway ?? "-"].join(" "),
    ),
    [
      "apart ready -",
      "blue ready -",
      "changing updating 10.79.0.1/24",
      "default ready -",
      "unmade deleting -",
    ],
  );
  const interfacesOf = (name: string): readonly InterfacePlan[] =>
    node.pods.find(name).plan.interfaces;
  t.deepEqual(
    interfacesOf("everywhere").map(({ guestName, network, bridge }) =>
      [guestName, network ?? "-", bridge ?? "-"].join(" "),
    ),
    [
      "eth0 default hyper0",
      "blue0 blue pn-blue",
      "eth2 apart pn-apart",
      "eth3 - br9",
      "eth4 - -",
      "lo - -",
    ],
  );
  t.is(node.db.get("SELECT count(*) AS n FROM interfaces WHERE tap = 'kept0'")?.["n"], 1);
  t.deepEqual(
    interfacesOf("removing").map(({ leaving }) => leaving === true),
    [false, true],
  );
  const set = node.pods.find("set");
  t.true(set.plan.interfaces[1]?.addresses.includes("10.77.0.80/24" as never));
  t.false(set.before?.plan.interfaces[1]?.addresses.includes("10.77.0.80/24" as never));
  t.is(node.pods.find("paused").state, "paused");
  t.is(node.db.get("SELECT count(*) AS n FROM ports")?.["n"], 5);
});

test("the containers of a state of schema 5 are read: their plans, addresses and host ports", (t) => {
  using node = openLeft(5);
  const rows = listAttachments(node.db);
  t.deepEqual(
    rows.map(({ containerId, state, network }) => `${containerId} ${state} ${network}`).toSorted(),
    ["attached ready default", "attaching adding default", "detaching deleting blue"],
  );
  for (const { id, plan } of rows) {
    t.is(plan.id, id);
    // Of the one on its way out, too: its link may be there still.
    for (const address of plan.addresses)
      t.is(node.addresses.status(plan.network, ipOf(address)).kind, "held", address);
  }
  const [attached] = rows.filter(({ state }) => state === "ready");
  t.deepEqual(
    attached?.plan.published?.map(({ hostPort, podPort }) => [hostPort, podPort]),
    [[18200, 80]],
  );
  t.truthy(attached?.plan.bandwidth?.fromGuest);
  t.is(attached?.plan.mtu, 1400);
  const held = "SELECT DISTINCT host_port FROM ports WHERE attachment_id IS NOT NULL ORDER BY 1";
  t.deepEqual(
    node.db.all(held).map(({ host_port }) => host_port),
    [18200, 18201],
  );
});
