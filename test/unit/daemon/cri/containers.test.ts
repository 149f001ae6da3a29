import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { watchEffects } from "../../../../core/effect.ts";
import { SandboxContainers } from "../../../../daemon/cri/containers/sandbox-containers.ts";
import { ContainerEvents } from "../../../../daemon/cri/container-events.ts";
import { type ContainerEventResponse, ContainerState } from "../../../../daemon/cri/gen/cri_pb.ts";
import { until } from "../../../lab/until.ts";
import { nginx } from "./rig.ts";
import { asked, digest, started } from "./container-rig.ts";

test("a container goes its way: create, start, log, end, remove", async (t) => {
  await using it = await started();
  const { rig, podSandboxId, logs } = it;
  const { cri, node } = rig;
  const asking = asked(podSandboxId, { envs: [{ key: "B", value: "asked" }], args: ["run"] });
  const { containerId } = await cri.createContainer(asking);
  t.is((await cri.createContainer(asking)).containerId, containerId, "an answer that was lost");
  await t.throwsAsync(cri.createContainer(asked(podSandboxId)), { code: Code.AlreadyExists });
  const stateOf = async () => (await cri.containerStatus({ containerId })).status;
  t.like(await stateOf(), { state: ContainerState.CONTAINER_CREATED, startedAt: 0n });
  const plan = JSON.parse(
    String(node.stored("SELECT plan FROM sandbox_containers")[0]?.["plan"]),
  ) as object;
  t.like(plan, {
    stopSignal: 2,
    digest,
    start: {
      args: ["/app", "run"],
      env: [
        { env: "A", value: "image" },
        { env: "B", value: "asked" },
      ],
      user: "web:logs",
      workdir: "/srv",
    },
  });
  await cri.startContainer({ containerId });
  t.like(await stateOf(), { state: ContainerState.CONTAINER_RUNNING });
  node.containers.write(containerId, "one\ntwo");
  const file = join(logs, "pod/app/0.log");
  await until("the log", () => Promise.resolve(readFileSync(file, "utf8").includes("two")));
  t.deepEqual(
    readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => line.replace(/^\S+ /, "")),
    ["stdout F one", "stdout P two"],
  );
  const ids = async (filter: object) =>
    (await cri.listContainers({ filter })).containers.map(({ id }) => id);
  t.deepEqual(await ids({ podSandboxId, labelSelector: { app: "one" } }), [containerId]);
  t.deepEqual(await ids({ labelSelector: { app: "two" } }), []);
  t.deepEqual(await ids({ state: { state: ContainerState.CONTAINER_EXITED } }), []);
  node.containers.end(containerId, { code: 3 });
  await until("its end", async () => (await stateOf())?.state === ContainerState.CONTAINER_EXITED);
  t.like(await stateOf(), { exitCode: 3, reason: "Error", logPath: file });
  await t.throwsAsync(cri.startContainer({ containerId }), { code: Code.FailedPrecondition });
  await t.throwsAsync(cri.execSync({ containerId, cmd: ["true"] }), {
    code: Code.FailedPrecondition,
  });
  await cri.stopContainer({ containerId });
  await cri.removeContainer({ containerId });
  await cri.removeContainer({ containerId });
  await cri.stopContainer({ containerId });
  await t.throwsAsync(cri.containerStatus({ containerId }), { code: Code.NotFound });
  t.deepEqual(node.pods.find(podSandboxId).plan.disks, [], "the image's disk is out");
});

test("kubelet's file has what a container says last, unless another file is there by then", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const file = join(it.mounts, "last");
  const mounts = [{ containerPath: "/dev/termination-log", hostPath: file }];
  for (const [message, wanted] of [
    [Buffer.from("why"), "why"],
    [undefined, "before"],
  ] as const) {
    writeFileSync(file, "before");
    const { containerId } = await cri.createContainer(
      asked(it.podSandboxId, { mounts, metadata: { name: `says-${wanted}` } }),
    );
    await cri.startContainer({ containerId });
    t.is(node.containers.messagePaths.at(-1), "/dev/termination-log");
    node.containers.end(containerId, { code: 1, ...(message && { message }) });
    await until("its end", async () => {
      const { status } = await cri.containerStatus({ containerId });
      return status?.state === ContainerState.CONTAINER_EXITED;
    });
    t.is(readFileSync(file, "utf8"), wanted);
  }
  const { containerId } = await cri.createContainer(
    asked(it.podSandboxId, { mounts, metadata: { name: "linked" } }),
  );
  await cri.startContainer({ containerId });
  const other = join(it.mounts, "other");
  writeFileSync(other, "another's");
  rmSync(file);
  symlinkSync(other, file);
  node.containers.end(containerId, { code: 1, message: Buffer.from("mine") });
  await until("its end", async () => {
    const { status } = await cri.containerStatus({ containerId });
    return status?.state === ContainerState.CONTAINER_EXITED;
  });
  t.is(readFileSync(other, "utf8"), "another's");
  t.true(it.rig.logged.some((line) => line.includes("termination message")));
});

test("a container that is not there is found by none", async (t) => {
  await using it = await started();
  const { db, pods } = it.rig.node;
  await using containers = new SandboxContainers({
    isOwn: () => true,
    db,
    pods,
    clock: systemClock,
    log: { warn: () => {} },
    recordsDir: it.logs,
    logRoot: it.logs,
  });
  t.throws(() => containers.find("a".repeat(64)), { code: "CONTAINER_NOT_FOUND" });
  t.is(containers.search(""), undefined);
});

test("a container is stopped by its image's signal, then killed", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const { containerId } = await cri.createContainer(asked(it.podSandboxId));
  await cri.startContainer({ containerId });
  node.containers.deafTo = 2;
  await cri.stopContainer({ containerId, timeout: 1n });
  t.deepEqual(
    node.calls.filter((call) => call.startsWith("container signal")),
    ["container signal 2", "container signal 9"],
  );
  t.is((await cri.containerStatus({ containerId })).status?.exitCode, 137);
});

for (const at of ["container create", "container file", "plug image"])
  test(`a create that fails at ${at} leaves neither row nor disk`, async (t) => {
    await using it = await started();
    const { cri, node } = it.rig;
    writeFileSync(join(it.mounts, "conf"), "x");
    const mounts = [{ containerPath: "/conf", hostPath: join(it.mounts, "conf"), readonly: true }];
    node.failing.add(at);
    await t.throwsAsync(cri.createContainer(asked(it.podSandboxId, { mounts })));
    node.failing.clear();
    t.deepEqual((await cri.listContainers({})).containers, []);
    await until("nothing to be left", () =>
      Promise.resolve(
        node.stored("SELECT id FROM sandbox_containers").length === 0 &&
          (node.pods.find(it.podSandboxId).plan.disks ?? []).length === 0,
      ),
    );
    t.is(node.containers.all.size, 0);
    await cri.createContainer(asked(it.podSandboxId, { mounts }));
  });

test("a container that was not promised is not shown while it is taken away", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  node.failing.add("container create");
  node.failing.add("container remove");
  await t.throwsAsync(cri.createContainer(asked(it.podSandboxId)));
  t.is(node.stored("SELECT id FROM sandbox_containers").length, 1, "it is tried again");
  t.deepEqual((await cri.listContainers({})).containers, []);
  node.failing.clear();
  await until("nothing to be left", () =>
    Promise.resolve(node.stored("SELECT id FROM sandbox_containers").length === 0),
  );
});

test("a long grace period waits, and a shorter one is not held up by it", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const { containerId } = await cri.createContainer(asked(it.podSandboxId));
  await cri.startContainer({ containerId });
  node.containers.deafTo = 2;
  const signals = () => node.calls.filter((call) => call.startsWith("container signal"));
  // Longer than Node's timers go: they would end at once.
  const first = cri.stopContainer({ containerId, timeout: 10_000_000n });
  await until("its signal", () => Promise.resolve(signals().length === 1));
  const status = await cri.containerStatus({ containerId });
  t.is(status.status?.state, ContainerState.CONTAINER_RUNNING);
  await cri.stopContainer({ containerId, timeout: 0n });
  await first;
  t.deepEqual(signals(), ["container signal 2", "container signal 9"]);
});

test("a container whose log cannot be opened is not made", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const outside = join(it.logs, "../outside");
  mkdirSync(outside);
  mkdirSync(join(it.logs, "pod"));
  symlinkSync(outside, join(it.logs, "pod/link"));
  mkdirSync(join(it.logs, "pod/is-a-directory"));
  for (const [logPath, message] of [
    ["x".repeat(300), /ENAMETOOLONG/],
    ["is-a-directory", /EISDIR/],
    ["link/made/0.log", /is not in/],
  ] as const)
    await t.throwsAsync(cri.createContainer(asked(it.podSandboxId, { logPath })), { message });
  t.deepEqual(readdirSync(outside), []);
  await until("nothing to be left", () =>
    Promise.resolve(node.stored("SELECT id FROM sandbox_containers").length === 0),
  );
  t.false(node.calls.some((call) => call.startsWith("container create")));
});

test("a sandbox whose log directory is not where logs are has no containers with a log", async (t) => {
  await using it = await started();
  const { cri } = it.rig;
  const metadata = { name: "astray", uid: "u-2", namespace: "default", attempt: 0 };
  const { podSandboxId } = await cri.runPodSandbox(nginx({ metadata, logDirectory: it.mounts }));
  await t.throwsAsync(cri.createContainer(asked(podSandboxId)), { code: Code.PermissionDenied });
  t.deepEqual(readdirSync(it.mounts), []);
});

test("output that the log cannot take is lost with a warning, once", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const { containerId } = await cri.createContainer(asked(it.podSandboxId));
  await cri.startContainer({ containerId });
  using _full = { [Symbol.dispose]: () => watchEffects(undefined) };
  watchEffects({
    at: ({ what }) => {
      if (what === "write container log") throw new Error("ENOSPC: no space left on device");
    },
    atAsync: () => Promise.resolve(),
  });
  for (const word of ["one\n", "two\n"]) node.containers.write(containerId, word);
  watchEffects(undefined);
  node.containers.write(containerId, "three\n");
  const file = join(it.logs, "pod/app/0.log");
  await until("the log", () => Promise.resolve(readFileSync(file, "utf8").includes("three")));
  t.regex(readFileSync(file, "utf8"), /^\S+ stdout F three\n$/);
  t.is(it.rig.logged.filter((line) => line.includes("not in its log")).length, 1);
});

test("a program that is not there fails the start, and the container has ended", async (t) => {
  await using it = await started();
  const { cri } = it.rig;
  const { containerId } = await cri.createContainer(
    asked(it.podSandboxId, { command: ["/missing"] }),
  );
  await t.throwsAsync(cri.startContainer({ containerId }), { code: Code.FailedPrecondition });
  const { status } = await cri.containerStatus({ containerId });
  t.like(status, { state: ContainerState.CONTAINER_EXITED, exitCode: 128 });
  t.regex(status?.message ?? "", /does not exist/);
});

test("with its machine a container has ended, and with its sandbox it is gone", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const { podSandboxId } = it;
  const { containerId } = await cri.createContainer(asked(podSandboxId));
  await cri.startContainer({ containerId });
  await cri.stopPodSandbox({ podSandboxId });
  t.like((await cri.containerStatus({ containerId })).status, {
    state: ContainerState.CONTAINER_EXITED,
    exitCode: 137,
  });
  await t.throwsAsync(
    cri.createContainer(asked(podSandboxId, { metadata: { name: "b", attempt: 0 } })),
    { code: Code.FailedPrecondition },
  );
  await cri.removePodSandbox({ podSandboxId });
  t.deepEqual((await cri.listContainers({})).containers, []);
  t.deepEqual(node.stored("SELECT id FROM sandbox_containers"), []);
});

test("events say what happens to a sandbox and its containers, and how they are", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const { podSandboxId } = it;
  const seen: ContainerEventResponse[] = [];
  const stop = new AbortController();
  const following = (async () => {
    for await (const event of cri.getContainerEvents({}, { signal: stop.signal })) seen.push(event);
  })().catch(() => {});
  // When the stream is open, what happens is seen.
  let attempt = 0;
  await until("the stream", async () => {
    const metadata = { name: "probe", attempt: attempt++ };
    const { containerId } = await cri.createContainer(asked(podSandboxId, { metadata }));
    await cri.removeContainer({ containerId });
    return seen.length > 0;
  });
  const { containerId } = await cri.createContainer(asked(podSandboxId));
  await cri.startContainer({ containerId });
  node.containers.end(containerId, { code: 3 });
  const of = (id: string) =>
    seen.filter((event) => event.containerId === id).map((event) => event.containerEventType);
  await until("its end", () => Promise.resolve(of(containerId).length === 3));
  await cri.removeContainer({ containerId });
  const second = await cri.createContainer(asked(podSandboxId));
  await cri.stopPodSandbox({ podSandboxId });
  await cri.removePodSandbox({ podSandboxId });
  await until("the last", () => Promise.resolve(of(podSandboxId).length === 2));
  t.deepEqual(of(containerId), [0, 1, 2, 3]);
  t.deepEqual(of(second.containerId), [0, 2, 3]);
  t.deepEqual(of(podSandboxId), [2, 3]);
  const end = seen.filter((event) => event.containerId === containerId)[2];
  t.like(end?.containersStatuses[0], { id: containerId, exitCode: 3 });
  t.is(end?.podSandboxStatus?.id, podSandboxId);
  t.is(seen.at(-1)?.podSandboxStatus, undefined);
  stop.abort();
  await following;
});

test("who reads events too slowly has to list again", async (t) => {
  const events = new ContainerEvents({ now: () => 1 });
  const stop = new AbortController();
  const [slow, quick] = [events.follow(stop.signal), events.follow(stop.signal)];
  for (let i = 0; i <= 4096; i++) {
    events.publish("created", `${i}`, "pod");
    t.is((await quick.next()).value?.id, `${i}`);
  }
  const read = async (): Promise<void> => {
    for await (const _event of slow);
  };
  await t.throwsAsync(read(), { code: "EVENTS_LOST" });
  stop.abort();
  t.true((await quick.next()).done);
});
