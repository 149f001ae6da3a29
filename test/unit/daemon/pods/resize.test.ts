import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { withGrownSize, withGrowth } from "../../../../daemon/pods/lifecycle/resize.ts";
import { qemuArgv } from "../../../../hypervisor/argv/argv.ts";
import type { VmPlan } from "../../../../hypervisor/driver.ts";
import { raiseLimits } from "../../../../hypervisor/jail/cgroup.ts";
import { resizedJail } from "../../../../hypervisor/jail/cgroup-layout.ts";
import { until } from "../../../lab/until.ts";
import { configuration, openNode } from "../fixtures/node.ts";

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };
const roomy = { vcpu: 1, memoryMib: 128, maxVcpu: 4, maxMemoryMib: 512 };
const of = (resources: object) => ({ spec: { resources } });

type Node = ReturnType<typeof openNode>;

const vmOf = (node: Node, id: string): VmPlan => node.pods.find(id).plan.vm;

async function refusal(t: ExecutionContext, asked: Promise<unknown>, like: object): Promise<void> {
  const error = await t.throwsAsync(asked);
  t.like(error, like, error?.message);
}

const wordsOf = (plan: VmPlan): string =>
  qemuArgv(plan, { qemu: "qemu", accelerator: "tcg", tbSizeMib: 16 }).join(" ");

test("a machine grows after its row says so, memory first, and its guest switches all of it on", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  t.deepEqual(vmOf(node, id).room, { vcpu: 4, memoryMib: 512 });
  node.calls.length = 0;
  const seen: unknown[] = [];
  node.onCall = (call) => seen.push([call, vmOf(node, id).grown]);
  await node.pods.changes.resize(id, { vcpu: 2, memoryMib: 256 });
  const grown = { vcpu: 2, memoryMib: 256 };
  t.deepEqual(seen, [
    ["grow memory", grown],
    ["grow processors", grown],
    ["online", grown],
  ]);
  t.like(vmOf(node, id), { vcpu: 1, memoryMib: 128, grown });
  t.like(node.pods.find(id).spec.resources, { vcpu: 2, memoryMib: 256, maxVcpu: 4 });
  seen.length = 0;
  await node.pods.changes.resize(id, { vcpu: 2, memoryMib: 256 });
  await node.pods.changes.resize(id, {});
  t.deepEqual(seen, [], "nothing is to be done");
  const { before, after } = node.pods.changes.planResize(id, { vcpu: 3 });
  t.deepEqual(
    [before, after].map(({ plan: { vm } }) => vm.grown?.vcpu),
    [2, 3],
  );
  t.deepEqual(vmOf(node, id).grown, grown, "a plan changes nothing");
  await node.pods.close(0);
});

test("a pod that has grown starts as large, on one command line", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  t.regex(wordsOf(vmOf(node, id)), /-smp 1,maxcpus=4 -m size=128M,slots=16,maxmem=512M /);
  await node.pods.changes.resize(id, { vcpu: 4, memoryMib: 512 });
  t.regex(wordsOf(vmOf(node, id)), /-smp 1,maxcpus=4 /, "as it was started");
  await node.pods.stop(id, { force: true });
  await node.pods.start(id, { signal: never, progress });
  t.is(vmOf(node, id).grown, undefined);
  t.regex(wordsOf(vmOf(node, id)), /-smp 4,maxcpus=4 -m size=512M /, "no slot without room");
  await node.pods.close(0);
});

test("a stopped pod takes any size, and one that runs only what it has room for", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  const { changes } = node.pods;
  for (const [asked, code, field] of [
    [{ vcpu: 5 }, "UNSUPPORTED", "resources.vcpu"],
    [{ memoryMib: 640 }, "UNSUPPORTED", "resources.memory_mib"],
    [{ vcpu: 0 }, "UNSUPPORTED", "resources.vcpu"],
    [{ memoryMib: 64 }, "UNSUPPORTED", "resources.memory_mib"],
    [{ maxVcpu: 8 }, "UNSUPPORTED", "resources.max_vcpu"],
    [{ maxMemoryMib: 1024 }, "UNSUPPORTED", "resources.max_memory_mib"],
    [{ memoryMib: 200 }, "INVALID_ARGUMENT", "resources.memory_mib"],
  ] as const)
    await refusal(t, changes.resize(id, asked), { code, field });
  t.is(vmOf(node, id).grown, undefined);
  await node.pods.stop(id, { force: true });
  await refusal(t, changes.resize(id, { vcpu: 5 }), {
    code: "INVALID_ARGUMENT",
    field: "resources.max_vcpu",
  });
  await refusal(t, changes.resize(id, { memoryMib: 16 }), { code: "MEMORY_TOO_SMALL" });
  await refusal(t, changes.resize(id, { memoryMib: 64 }), { code: "MEMORY_TOO_SMALL" });
  await changes.resize(id, { vcpu: 2, memoryMib: 200, maxVcpu: 2, maxMemoryMib: 328 });
  t.like(vmOf(node, id), { vcpu: 2, memoryMib: 200, room: { vcpu: 2, memoryMib: 328 } });
  await node.pods.start(id, { signal: never, progress });
  await changes.resize(id, { memoryMib: 328 });
  t.deepEqual(vmOf(node, id).grown, { vcpu: 2, memoryMib: 328 });
  await node.pods.close(0);
});

test("a pod without room says what to do, and so does a paused one", async (t) => {
  using node = openNode(configuration({}));
  const { id, name } = await node.create();
  t.is(vmOf(node, id).room, undefined);
  await refusal(t, node.pods.changes.resize(id, { vcpu: 2 }), {
    code: "UNSUPPORTED",
    message: `Pod "${name}" runs and has room for 1, which is fixed while it runs`,
    hint: `Stop it, update it, and start it: podnet stop ${name}`,
  });
  await node.pods.pause(id);
  await refusal(t, node.pods.changes.resize(id, { vcpu: 2 }), { code: "WRONG_STATE" });
  await node.pods.close(0);
});

test("a row says what the machine has when it could not grow", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  node.failing.add("grow processors");
  await refusal(t, node.pods.changes.resize(id, { vcpu: 2, memoryMib: 256 }), {
    code: "SYSCALL_FAILED",
  });
  t.deepEqual(vmOf(node, id).grown, { vcpu: 1, memoryMib: 256 });
  t.like(node.pods.find(id).spec.resources, { vcpu: 1, memoryMib: 256 });
  node.failing.clear();
  await node.pods.changes.resize(id, { vcpu: 2 });
  t.deepEqual(vmOf(node, id).grown, { vcpu: 2, memoryMib: 256 });
  await node.pods.close(0);
});

test("a guest that cannot switch on what it has makes the pod degraded until it does", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  node.failing.add("online");
  await node.pods.changes.resize(id, { vcpu: 2 });
  t.regex(node.pods.find(id).reason ?? "", /^its guest has not switched on/);
  node.failing.clear();
  for (let i = 0; i < 200 && node.pods.find(id).reason !== undefined; i++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  t.is(node.pods.find(id).reason, undefined);
  await node.pods.close(0);
});

test("a growth that podnetd's end has cut short is completed, with the guest's part", async (t) => {
  const config = configuration({});
  let id: string;
  {
    using node = openNode(config);
    ({ id } = await node.create(of(roomy)));
    // As a kill after the row leaves it.
    for (const call of ["grow", "size"]) node.failing.add(call);
    await t.throwsAsync(node.pods.changes.resize(id, { vcpu: 2 }));
    t.deepEqual(vmOf(node, id).grown, { vcpu: 2, memoryMib: 128 });
    node.records.started(id as never, node.vm.record);
  }
  using node = openNode(config);
  await node.pods.recover("b");
  await until("its guest to be asked", () => node.calls.includes("online"));
  t.true(node.calls.indexOf("grow processors") < node.calls.indexOf("online"));
  t.is(node.pods.find(id).state, "running");
  t.false((node.pods.find(id).reason ?? "").includes("switched on"));
  await node.pods.close(0);
});

test("a guest that has not looked at what it was given is reported", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create(of(roomy));
  node.keeps = true;
  await node.pods.changes.resize(id, { vcpu: 2 });
  const texts = node.stored("SELECT data FROM events").map(({ data }) => String(data));
  t.true(texts.some((text) => text.includes("has not looked at its new processors")));
  node.keeps = false;
  await node.pods.close(0);
});

test("limits of a jail follow the size of its machine, and are raised in an order that the kernel takes", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-limits-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const files = [
    ["memory.limit_in_bytes", `${192 << 20}`],
    ["memory.memsw.limit_in_bytes", `${192 << 20}`],
    ["memory.oom.group", "1"],
    ["pids.max", "17"],
  ] as const;
  for (const [name, value] of files) writeFileSync(join(directory, name), value);
  const jail = { uid: 7, cgroups: [{ path: directory, files }] };
  const larger = resizedJail(jail, { vcpu: 2, memoryMib: 128 });
  t.deepEqual(
    larger.cgroups[0]?.files.map(([, value]) => value),
    [`${320 << 20}`, `${320 << 20}`, "1", "19"],
  );
  raiseLimits(larger.cgroups);
  t.is(readFileSync(join(directory, "memory.memsw.limit_in_bytes"), "utf8"), `${320 << 20}`);
  t.deepEqual(resizedJail(larger, { vcpu: -2, memoryMib: -128 }), jail);
});

test("growth and start are decided without the host, and count from what the machine has", async (t) => {
  using node = openNode(configuration({}));
  const row = await node.create(of(roomy));
  const once = withGrowth(row, { vcpu: 2, memoryMib: 256 });
  const twice = once && withGrowth(once, { memoryMib: 384 });
  t.deepEqual(twice?.plan.vm.grown, { vcpu: 2, memoryMib: 384 });
  const started = twice && withGrownSize(twice);
  t.like(started?.plan.vm, { vcpu: 2, memoryMib: 384, room: { vcpu: 4, memoryMib: 512 } });
  const jail = { uid: 7, cgroups: [{ path: "/x", files: [["pids.max", "17"]] as const }] };
  const jailed = { ...row, plan: { ...row.plan, vm: { ...row.plan.vm, jail } } };
  const after = withGrowth(jailed, { vcpu: 3 });
  t.deepEqual(after?.plan.vm.jail?.cgroups[0]?.files, [["pids.max", "19"]]);
  t.deepEqual(after && withGrownSize(after)?.plan.vm.jail, after?.plan.vm.jail);
  t.is(started && withGrownSize(started), undefined);
  await node.pods.close(0);
});
