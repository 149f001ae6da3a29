import { mkdirSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { create } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import { systemClock } from "../../../../core/clock.ts";
import { isPodnetError, PodnetError } from "../../../../core/errors.ts";
import { parsePodId, type PodId } from "../../../../core/names.ts";
import type { Config } from "../../../../daemon/config/config.ts";
import { refuseOrphans } from "../../../../daemon/pods/lifecycle/orphans.ts";
import { PodRecords } from "../../../../daemon/pods/store/records.ts";
import type { PodRow } from "../../../../daemon/pods/store/pod-row.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };

const addressOf = ({ plan }: PodRow): string => plan.interfaces[0]?.addresses[0] ?? "";

test("nothing happens on the host before what allows to undo it is stored", async (t) => {
  using node = openNode(configuration({}));
  const seen: string[] = [];
  node.onCall = (call) => {
    const [pod] = node.stored("SELECT state, plan FROM pods");
    const [lease] = node.stored("SELECT address FROM leases WHERE freed_ms IS NULL");
    seen.push(`${call}: ${String(pod?.["state"])}`);
    t.regex(String(pod?.["plan"]), /"tap":"pn\w+"/, call);
    t.is(lease?.["address"], "10.0.0.2", call);
  };
  const { id } = await node.create();
  t.true(seen.length > 5);
  t.true(
    seen.every((line) => line.endsWith(": creating")),
    seen.join("\n"),
  );
  t.is(node.stored("SELECT state FROM pods")[0]?.["state"], "running");

  seen.length = 0;
  await node.pods.delete(id, { force: false });
  t.regex(seen[0] ?? "", /^detach pn\w+: deleting$/, "traffic is cut first");
  t.true(seen.every((line) => line.endsWith(": deleting")));
  t.deepEqual(node.stored("SELECT * FROM pods"), []);
});

test("the beginning of an id shows a pod, and does not stop, detach or delete it", async (t) => {
  using node = openNode(configuration({}));
  const { id, name } = await node.create();
  const beginning = id.slice(0, 6);
  t.is(node.pods.find(beginning).id, id);
  const refused = {
    code: "INVALID_ARGUMENT",
    field: "id_or_name",
    hint: `Write the whole id, ${id}, or the name`,
  };
  for (const end of [
    () => node.pods.delete(beginning, { force: true }),
    () => node.pods.detach(beginning, { force: true }),
    () => node.pods.stop(beginning, { force: true, timeoutMs: 1000 } as never),
  ]) {
    const error = await t.throwsAsync(end);
    t.like(error, refused);
    t.true(error?.message.includes(name));
  }
  t.is(node.pods.find(id).state, "running");
  // What is neither a name nor the beginning of an id is gone.
  const gone = node.pods.delete(id.startsWith("zzzz") ? "yyyy" : "zzzz", { force: false });
  t.false((await gone).existed);
  t.true((await node.pods.delete(id, { force: false })).existed);
});

test("a port is looked after from when its pod runs until its end begins: podnet's own work is no drift", async (t) => {
  using node = openNode(configuration({}));
  const ports = (): number =>
    node.pods.runningPorts().filter((port) => node.pods.portNow(port) !== undefined).length;
  const seen = new Set<number>();
  node.onCall = () => seen.add(ports());
  const { id } = await node.create();
  t.deepEqual([...seen], [0], "while it is made");
  t.is(ports(), 1);
  seen.clear();
  await node.pods.delete(id, { force: false });
  t.deepEqual([...seen], [0], "while it is taken down");
  await node.pods.close(0);
});

test("a plan is made without a call to the host or a row", async (t) => {
  using node = openNode(configuration({}));
  const { network } = configuration({});
  const asked = validateCreate(create(CreatePodRequestSchema), { network: network.name });
  t.is((await node.pods.plan(asked)).interfaces.length, 1);
  t.deepEqual(node.calls, []);
  for (const table of ["pods", "leases", "interfaces", "events"])
    t.deepEqual(node.stored(`SELECT * FROM ${table}`), [], table);
});

test("a store that is full refuses a create before anything happens, and goes on when it has room", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  const { page_count: pages } = node.db.get("PRAGMA page_count") ?? {};
  node.db.get(`PRAGMA max_page_count = ${String(pages)}`);
  const labels = Object.fromEntries(
    Array.from({ length: 64 }, (_, i) => [`label${i}`, "x".repeat(255)]),
  );
  const error = await t.throwsAsync(node.create({ spec: { labels } }), {
    code: "STATE_UNWRITABLE",
  });
  t.true(isPodnetError(error) && error.hint !== undefined);
  t.deepEqual(node.calls, []);
  t.deepEqual(
    node.pods.list().map((pod) => pod.id),
    [id],
  );
  t.is(node.addresses.stats("default" as never).used, 1n);
  node.db.get("PRAGMA max_page_count = 1000000");
  t.is(addressOf(await node.create({ spec: { labels } })), "10.0.0.3/29");
});

test("a pod that cannot be taken down keeps its row and address; force lets go of both", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.failing.add("reap");
  const error = await t.throwsAsync(node.pods.delete(id, { force: false }));
  t.true(isPodnetError(error) && error.step === "vm.stop");
  t.like(node.pods.find(id), { state: "failed" });
  t.is(node.addresses.stats("default" as never).used, 1n);
  t.like(await node.pods.delete(id, { force: true }), { existed: true });
  t.deepEqual(node.pods.list(), []);
  t.is(node.addresses.stats("default" as never).used, 0n);
});

for (const what of ["a delete", "the end of podnetd"])
  test(`${what} does not wait for a guest that is being configured and does not answer`, async (t) => {
    using node = openNode(configuration({}));
    const { id } = await node.create();
    node.mute = true;
    const asked = new Promise<void>((resolve) => {
      node.onCall = (call) => {
        if (call === "configure") resolve();
      };
    });
    node.readyAgain();
    await asked;
    if (what === "a delete") await node.pods.delete(id, { force: false });
    else await node.pods.close(20);
    t.is(node.pods.list().length, what === "a delete" ? 0 : 1);
  });

test("a pod's files are written before its network, and again when its guest has booted", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  node.epoch = "one";
  const files = [
    { path: "/etc/a", content: Buffer.from("secret") },
    { path: "/srv/b", mode: 0o600, uid: 1, gid: 2 },
  ];
  const sent = (): string[] => node.calls.filter((call) => /^(?:place|configure)/.test(call));
  const { id } = await node.create({ spec: { name: "web", files } });
  const written = ["place /etc/a 6", "place /srv/b 0", "configure"];
  t.deepEqual(sent(), written);
  const again = async (): Promise<void> => {
    const configured = new Promise<void>((resolve) => {
      node.onCall = (call) => {
        if (call === "configure") resolve();
      };
    });
    node.calls.length = 0;
    node.readyAgain();
    await configured;
  };
  // This agent says who it is, and is not the one that wrote them.
  await again();
  t.deepEqual(sent(), written);
  const stored = JSON.stringify(node.stored("SELECT * FROM events"));
  t.false(stored.includes("secret") || stored.includes(Buffer.from("secret").toString("base64")));
  await node.pods.delete(id, { force: false });
});

test("a file that the guest refuses undoes the create, and the step is named", async (t) => {
  using node = openNode(configuration({}));
  node.failing.add("place /etc/a");
  const files = [{ path: "/etc/a" }];
  const refused = node.create({ spec: { name: "web", files } });
  t.like(await t.throwsAsync(refused), { step: "guest.write", message: "place /etc/a 0 fails" });
  t.deepEqual(node.pods.list(), []);
});

for (const agent of ["hyperstart", "none"])
  test(`files for a guest with ${agent} are refused before anything is made`, async (t) => {
    using node = openNode(configuration({}));
    const refused = node.create({ spec: { boot: { agent }, files: [{ path: "/etc/a" }] } });
    t.like(await t.throwsAsync(refused), { code: "UNSUPPORTED", field: "files" });
    t.deepEqual(node.calls, []);
  });

test("a freed address rests, over a restart too, unless no other is left", async (t) => {
  const config = configuration({ quarantine_s: "3600" });
  {
    using node = openNode(config);
    for (const address of ["10.0.0.2/29", "10.0.0.3/29"]) {
      const pod = await node.create();
      t.is(addressOf(pod), address);
      await node.pods.delete(pod.id, { force: false });
    }
    t.is(node.addresses.stats("default" as never).quarantined, 2n);
  }
  using node = openNode(config);
  t.is(node.addresses.stats("default" as never).quarantined, 2n);
  const given: string[] = [];
  for (let i = 0; i < 5; i++) given.push(addressOf(await node.create()).replace("/29", ""));
  t.deepEqual(
    given,
    [4, 5, 6, 2, 3].map((n) => `10.0.0.${n}`),
    "rested longest first",
  );
  const error = await t.throwsAsync(node.create(), { code: "POOL_EXHAUSTED" });
  t.true(isPodnetError(error) && error.hint !== undefined);
});

test("an address asked for by name does not move the search on", async (t) => {
  using node = openNode(configuration({}));
  const given: string[] = [];
  for (const address of ["", "10.0.0.5", "", "", ""]) {
    const pod = await node.create({ spec: { interfaces: [{ address }] } });
    given.push(addressOf(pod).replace("/29", ""));
  }
  t.deepEqual(
    given,
    [2, 5, 3, 4, 6].map((n) => `10.0.0.${n}`),
  );
});

test("the store forgets addresses that have rested", async (t) => {
  using node = openNode(configuration({ quarantine_s: "0", "network.cidr": "fd00:1::/64" }));
  for (let i = 0; i < 5; i++) await node.pods.delete((await node.create()).id, { force: false });
  t.true(node.stored("SELECT * FROM leases").length < 5);
});

test("a plan that a newer podnetd stored is refused, not guessed at", async (t) => {
  using node = openNode(configuration({}));
  await node.create();
  node.db.run("UPDATE pods SET plan = json_set(plan, '$.version', 3)");
  const error = t.throws(() => node.pods.list(), { code: "STATE_NEWER", message: /version 3/ });
  t.true(isPodnetError(error) && error.hint !== undefined);
});

test("a pod that does not exist is answered with the nearest name there is", async (t) => {
  using node = openNode(configuration({}));
  const hintFor = (name: string) =>
    (t.throws(() => node.pods.find(name)) as Error & { hint?: string }).hint;
  t.is(hintFor("wbe"), "See podnet list");
  for (const name of ["web", "db", "a-much-longer-name"]) await node.create({ spec: { name } });
  t.is(hintFor("wbe"), 'Did you mean "web"? See podnet list');
  t.is(hintFor("a-much-longr-name"), 'Did you mean "a-much-longer-name"? See podnet list');
  t.is(hintFor("shop"), "See podnet list");
});

test("a create asked for again after a restart is the one that was made", async (t) => {
  const config = configuration({});
  let id: string;
  {
    using node = openNode(config);
    ({ id } = await node.create({ requestId: "r1" }));
  }
  using node = openNode(config);
  t.is((await node.create({ requestId: "r1" })).id, id as never);
  t.deepEqual(node.calls, []);
  const other = node.create({ requestId: "r1", spec: { name: "other" } });
  await t.throwsAsync(other, { code: "REQUEST_CONFLICT", message: /r1/ });
  await node.pods.delete(id, { force: false });
  await t.throwsAsync(node.create({ requestId: "r1" }), { code: "POD_NOT_FOUND" });
});

/** A node whose pod has a machine, left by one daemon and taken over by the next. */
async function leftRunning(config: Config): Promise<void> {
  using node = openNode(config);
  const { id } = await node.create();
  const { record } = await node.host.driver.start(node.pods.find(id).plan.vm, never);
  new PodRecords({ ...node, clock: systemClock, published: node.host.published }).started(
    id,
    record,
  );
  await node.pods.close(0);
}

/** Waits until the only pod is like that. */
async function becomes(node: Node, like: (pod: PodRow) => boolean): Promise<PodRow> {
  for (let i = 0; i < 400; i++) {
    const [pod] = node.pods.list();
    if (pod !== undefined && like(pod)) return pod;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(JSON.stringify(node.pods.list()[0]));
}

test("a machine that cannot be given its ports yet is watched, and its pod says so until it can", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.failing.add("ensure");
  await node.pods.recover("b");
  const [pod] = node.pods.list();
  t.like(pod, { state: "running" });
  t.regex(pod?.reason ?? "", /ports are not as planned: ensure fails/);
  t.not(node.pods.live(pod?.id as never), undefined, "it is ours");
  node.failing.clear();
  await becomes(node, ({ reason }) => reason === undefined);
  await node.pods.close(0);
});

test("a machine that cannot be reached yet is tried again, and not called failed while it may run", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.failing.add("reattach");
  await node.pods.recover("b");
  const [pod] = node.pods.list();
  t.like(pod, { state: "running" });
  t.regex(pod?.reason ?? "", /cannot take it over yet: reattach fails/);
  const error = t.throws(() => node.pods.running(pod?.id ?? ""), { code: "WRONG_STATE" });
  t.regex(error.message, /runs, but podnetd cannot take it over yet/);
  node.failing.clear();
  await becomes(node, ({ reason }) => reason === undefined);
  t.not(node.pods.live(pod?.id as never), undefined);
  await node.pods.close(0);
});

test("a pod that is not taken over yet can be deleted", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.failing.add("reattach");
  await node.pods.recover("b");
  const [pod] = node.pods.list();
  t.like(await node.pods.delete(pod?.id ?? "", { force: false }), { existed: true });
  t.true(node.calls.includes("reap"));
  t.deepEqual(node.pods.list(), []);
  await node.pods.close(0);
});

test("a delete that cannot be finished after a restart is tried again until nothing is left", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.db.run("UPDATE pods SET state = 'deleting'");
  node.failing.add("reap");
  await node.pods.recover("b");
  t.like(node.pods.list()[0], { state: "deleting" });
  t.regex(node.pods.list()[0]?.reason ?? "", /reap fails/);
  node.failing.clear();
  for (let i = 0; i < 400 && node.pods.list().length > 0; i++)
    await new Promise((resolve) => setTimeout(resolve, 10));
  t.deepEqual(node.pods.list(), []);
  await node.pods.close(0);
});

for (const [was, end] of [
  ["stopping", "stopped"],
  ["stopped", "stopped"],
  ["failed", "failed"],
] as const)
  test(`what is left of a ${was} pod after a restart is undone however often it takes`, async (t) => {
    const config = configuration({});
    await leftRunning(config);
    using node = openNode(config);
    const failure =
      was === "failed" ? { code: "QEMU_EXITED", message: "it ended", details: {} } : undefined;
    const stored = failure === undefined ? null : JSON.stringify(failure);
    node.db.run("UPDATE pods SET state = ?, failure = ?", was, stored);
    node.failing.add("reap");
    await node.pods.recover("b");
    t.like(node.pods.list()[0], { state: was });
    t.regex(node.pods.list()[0]?.reason ?? "", /cannot undo what is left of it yet: reap fails/);
    node.failing.clear();
    node.calls.length = 0;
    const pod = await becomes(
      node,
      ({ state, reason }) => state === end && reason === failure?.message,
    );
    t.deepEqual(node.calls.slice(-2), ["reap", "remove"]);
    t.deepEqual(pod.failure?.message, failure?.message);
    await node.pods.close(0);
  });

test("a machine that ended while unwatched is called so when nothing of it is left", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.failing.add("remove");
  await node.pods.recover("another boot");
  t.like(node.pods.list()[0], { state: "running" });
  t.regex(node.pods.list()[0]?.reason ?? "", /remove fails/);
  node.failing.clear();
  await becomes(
    node,
    ({ state, failure }) => state === "failed" && failure?.code === "HOST_RESTARTED",
  );
  await node.pods.close(0);
});

test("a create that was cut short is undone at the next start", async (t) => {
  const config = configuration({});
  await leftRunning(config);
  using node = openNode(config);
  node.db.run("UPDATE pods SET state = 'creating', established = 0");
  await node.pods.recover("b");
  t.deepEqual(node.pods.list(), []);
  const [detach, ...others] = node.calls;
  t.regex(detach ?? "", /^detach pn/);
  t.deepEqual(others, ["reap", "remove"]);
  await node.pods.close(0);
});

test("a machine that runs without a row is evidence of a lost one: it refuses the start, and nothing ends it", async (t) => {
  const config = configuration({});
  const [lost, ended, left, template] = ["a", "b", "c", "d"].map((each) =>
    parsePodId(each.repeat(12)),
  ) as [PodId, PodId, PodId, PodId];
  using node = openNode(config);
  const { id, plan, spec } = await node.create();
  const of = (podId: PodId) => ({
    plan: {
      ...plan,
      podId,
      vm: { ...plan.vm, podId, runDir: join(config.podsDir, podId) },
    },
    spec,
    networks: [],
  });
  for (const name of [lost, ended, left, `template-${template}`, id, "no machine's name"])
    mkdirSync(join(config.podsDir, name), { recursive: true });
  node.kept.put(of(lost));
  node.kept.put(of(left), true);
  for (const [i, each] of [lost, left, template, id].entries()) node.running.set(each, 100 + i);
  const { kept, host } = node;
  const look = (): void =>
    refuseOrphans(node.db, { podsDir: config.podsDir, driver: host.driver, kept });
  const error = t.throws(look, { code: "STATE_CORRUPT", instanceOf: PodnetError });
  t.is(
    error?.message,
    `The state knows nothing of machines that run: "${plan.name}" (${lost}) of the state in "${config.stateDir}", pid 100, ${config.podsDir}/${lost}`,
  );
  t.regex(error?.hint ?? "", /podnetd state adopt.*podnetd state remove/);
  t.like(error?.details, { pods: lost, pids: "100" });
  const reaped: string[] = [];
  host.driver.reap = (_record, vm) => Promise.resolve(void reaped.push(vm.podId));
  await node.pods.recover("b");
  t.deepEqual(
    reaped.toSorted(),
    [ended, id, left, template].map(String).toSorted(),
    "what ended, a delete by force's, a template's, and its own, which has another boot",
  );
  t.truthy(kept.get(lost), "what brings it back stays with it");
  node.running.delete(lost);
  t.notThrows(look);
  await node.pods.close(0);
});

test("a pod that runs is kept alongside its row as it is now, until it is gone", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  const { id, name } = await node.create({ spec: { labels: { a: "b" } } });
  t.like(node.kept.get(id), {
    stateDir: config.stateDir,
    left: false,
    spec: { labels: { a: "b" } },
  });
  t.deepEqual(node.kept.get(id)?.plan, node.pods.find(name).plan);
  await node.pods.delete(name, { force: false });
  t.is(node.kept.get(id), undefined);
  const { id: second } = await node.create();
  node.failing.add("reap");
  await node.pods.delete(second, { force: true });
  t.true(node.kept.get(second)?.left, "a machine that may run on is left over");
});

test("pods are taken over sixteen at a time at most", async (t) => {
  const config = configuration({ "network.cidr": "10.0.0.0/24" });
  {
    using node = openNode(config);
    for (let i = 0; i < 40; i++) await node.create();
    await node.pods.close(0);
  }
  using node = openNode(config);
  node.db.run("UPDATE pods SET state = 'deleting'");
  let now = 0;
  let most = 0;
  node.onCall = (call) => {
    if (call.startsWith("detach")) most = Math.max(most, ++now);
    if (call === "remove") now--;
  };
  await node.pods.recover("b");
  t.deepEqual(node.pods.list(), []);
  t.is(most, 16);
});

test("a start that waits for another is refused when the daemon ends meanwhile", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.db.run("UPDATE pods SET state = 'failed'");
  node.mute = true;
  const start = () => node.pods.start(id, { signal: never, progress });
  const both = Promise.allSettled([start(), start()]);
  await node.pods.close(1);
  const codes = (await both).map((each) => each.status === "rejected" && each.reason.code);
  t.deepEqual(codes, ["CANCELLED", "CANCELLED"]);
});

test("a delete that is written and cannot be flushed leaves the pod as it was", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  const failing = new PodnetError("STATE_UNWRITABLE", "The disk fails");
  Object.assign(node.db, { flushed: () => Promise.reject(failing) });
  for (const [state, reason] of [
    ["running", null],
    ["stopped", "its time was over"],
  ]) {
    node.db.run("UPDATE pods SET state = ?, reason = ?", state as string, reason as string | null);
    await t.throwsAsync(node.pods.delete(id, { force: false }), { code: "STATE_UNWRITABLE" });
    const row = node.pods.find(id);
    t.deepEqual([row.state, row.reason], [state, reason ?? undefined]);
  }
  Reflect.deleteProperty(node.db, "flushed");
  await node.pods.delete(id, { force: false });
  t.deepEqual(node.pods.list(), []);
  await node.pods.close(1000);
});

test("a pod whose delete cannot be written down runs on, and is followed as before", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.db.get("PRAGMA query_only = ON");
  await t.throwsAsync(node.pods.delete(id, { force: false }), { code: "STATE_UNWRITABLE" });
  node.db.get("PRAGMA query_only = OFF");
  t.is(node.pods.find(id).state, "running");
  const { promise: configured, resolve } = Promise.withResolvers<void>();
  node.onCall = (call) => {
    if (call === "configure") resolve();
  };
  await new Promise((turn) => setImmediate(turn));
  node.readyAgain();
  await configured;
  await node.pods.close(1000);
});
