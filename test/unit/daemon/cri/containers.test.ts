import {
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { watchEffects } from "../../../../core/effect.ts";
import { SandboxContainers } from "../../../../daemon/cri/containers/sandbox-containers.ts";
import { ContainerEvents } from "../../../../daemon/cri/container-events.ts";
import {
  type ContainerEventResponse,
  ContainerState,
  MountPropagation,
  NamespaceMode,
} from "../../../../daemon/cri/gen/cri_pb.ts";
import { putImage, putName } from "../../../../daemon/images/store.ts";
import type { Digest } from "../../../../images/archive/digest.ts";
import { until } from "../../../lab/until.ts";
import { configuration } from "../fixtures/node.ts";
import { confinement } from "../fixtures/confinement.ts";
import { type CriRig, nginx, startCri } from "./rig.ts";

const digest = `sha256:${"a".repeat(64)}` as Digest;

interface Started extends AsyncDisposable {
  readonly rig: CriRig;
  readonly logs: string;
  readonly mounts: string;
  readonly podSandboxId: string;
}

/** A sandbox that is ready, and an image that containers can be of. */
async function started(more: object = {}, prepare = (_rig: CriRig) => {}): Promise<Started> {
  const directory = mkdtempSync(join(tmpdir(), "podnet-cri-"));
  const [logs, mounts] = [join(directory, "logs"), join(directory, "kubelet")];
  for (const path of [logs, mounts]) mkdirSync(path);
  const config = configuration({ "cri.log_path": logs });
  const rig = await startCri({
    ...config,
    cri: { ...config.cri, logPath: logs, mountPaths: [mounts] },
  });
  const image = {
    architecture: "amd64",
    entrypoint: ["/app"],
    command: ["serve"],
    environment: ["A=image", "B=image"],
    directory: "srv",
    user: "web:logs",
    stopSignal: "SIGINT",
    exposedPorts: [],
    labels: {},
  };
  const row = { digest, type: "root", state: "ready", config: image, bytes: 4096 } as const;
  putImage(rig.node.db, { ...row, createdMs: 1, usedMs: 1 });
  putName(rig.node.db, "docker.io/library/app:1", digest);
  const { file } = { file: join(rig.config.images.directory, `${digest.replace(":", "-")}.img`) };
  mkdirSync(rig.config.images.directory, { recursive: true });
  writeFileSync(file, Buffer.alloc(4096));
  prepare(rig);
  const sandbox = nginx({ logDirectory: join(logs, "pod"), ...more });
  const { podSandboxId } = await rig.cri.runPodSandbox(sandbox);
  return {
    rig,
    logs,
    mounts,
    podSandboxId,
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  };
}

const asked = (podSandboxId: string, more: object = {}) => ({
  podSandboxId,
  config: {
    metadata: { name: "app", attempt: 0 },
    image: { image: "app:1" },
    logPath: "app/0.log",
    labels: { app: "one" },
    ...more,
  },
});

const context = (more: object) => ({ linux: { securityContext: more } });

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

test("an emptyDir is one that containers share, until it has something in it", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const cache = join(it.mounts, "u-1/volumes/kubernetes.io~empty-dir/cache");
  const part = join(it.mounts, "u-1/volume-subpaths/cache/app/0");
  const claim = join(it.mounts, "u-1/volumes/kubernetes.io~csi/claim/mount");
  for (const path of [cache, part, claim]) mkdirSync(path, { recursive: true });
  const named = (name: string, containerPath: string, hostPath = cache) =>
    asked(it.podSandboxId, {
      metadata: { name, attempt: 0 },
      mounts: [{ containerPath, hostPath, readonly: name === "reader" }],
    });
  await cri.createContainer(named("writer", "/a"));
  await cri.createContainer(named("reader", "/b"));
  const { volumes } = node.containers;
  t.truthy(volumes.get("/a")?.volume);
  t.is(volumes.get("/a")?.volume, volumes.get("/b")?.volume);
  // What a container writes to a volume that is empty yet would never reach it.
  for (const path of [part, claim])
    await t.throwsAsync(cri.createContainer(named("part", "/c", path)), {
      code: Code.Unimplemented,
    });
  writeFileSync(join(cache, "of-the-host"), "x");
  await t.throwsAsync(cri.createContainer(named("late", "/c")), { code: Code.Unimplemented });
});

test("a container writes to what its sandbox's annotation names, and gets that live", async (t) => {
  const data = mkdtempSync(join(tmpdir(), "podnet-written-"));
  mkdirSync(join(data, "part"));
  chownSync(data, 4321, 4321);
  // A server that begins to listen meanwhile sets another mask for this process.
  chmodSync(data, 0o700);
  symlinkSync("/etc", join(data, "out"));
  const annotations = { "podnet/writable-paths": data };
  await using it = await started({ annotations }, ({ node }) => {
    Object.assign(node.config, { writableSharePaths: [data] });
    Object.assign(node.host, { confinement, epoch: "one" });
    const { kernel, initrd } = node.config.image;
    for (const file of [kernel, initrd]) if (file !== undefined) chmodSync(file, 0o644);
  });
  const { cri, node } = it.rig;
  const { shares } = node.pods.find(it.podSandboxId).plan.vm;
  t.deepEqual(shares, [{ tag: "share0", path: data, at: "/run/podnet-shares/0", writable: true }]);
  const named = (name: string, hostPath: string, readonly = false) =>
    asked(it.podSandboxId, {
      metadata: { name, attempt: 0 },
      mounts: [{ containerPath: `/${name}`, hostPath, readonly }],
    });
  for (const [name, path, readonly] of [
    ["all", data, false],
    ["part", join(data, "part"), false],
    ["read", join(data, "part"), true],
  ] as const)
    await cri.createContainer(named(name, path, readonly));
  const at = "/run/podnet-shares/0";
  const got = (path: string) => {
    const { share, readOnly } = node.containers.volumes.get(path) ?? {};
    return { ...share, readOnly };
  };
  t.deepEqual(got("/all"), { at, below: "", readOnly: false });
  t.deepEqual(got("/part"), { at, below: "part", readOnly: false });
  t.deepEqual(got("/read"), { at, below: "part", readOnly: true });
  for (const path of [join(data, "out"), join(data, ".."), `${data}-other`])
    await t.throwsAsync(cri.createContainer(named("out", path)));
  for (const text of ["", `${data},`, `${data}, ${data}`, "relative", `${data}/../x`])
    await t.throwsAsync(
      cri.runPodSandbox(nginx({ annotations: { "podnet/writable-paths": text }, hostname: "x" })),
      { code: Code.InvalidArgument },
      text,
    );
});

test("mounts keep owners, hide what the image has there, and come from the top down", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const conf = join(it.mounts, "conf");
  mkdirSync(join(conf, "deep"), { recursive: true });
  for (const [name, owner] of [
    ["token", 1000],
    ["deep/other", 0],
  ] as const) {
    writeFileSync(join(conf, name), name);
    chownSync(join(conf, name), owner, owner);
    chmodSync(join(conf, name), 0o640);
  }
  const below = join(it.mounts, "u-1/volumes/kubernetes.io~empty-dir/below");
  mkdirSync(below, { recursive: true });
  const mounts = [
    { containerPath: "/etc/app/deep/below/", hostPath: below },
    { containerPath: "/etc/app", hostPath: conf, readonly: true },
  ];
  await cri.createContainer(asked(it.podSandboxId, { mounts }));
  const steps = node.calls.filter((call) => /^container (file|volume)/.test(call));
  t.is(steps[0], "container volume /etc/app");
  t.is(steps.at(-1), "container volume /etc/app/deep/below");
  t.is(node.containers.volumes.get("/etc/app")?.volume, undefined, "its own");
  const owners = node.containers.files.map(({ path, uid, gid, mode }) => [path, uid, gid, mode]);
  t.deepEqual(
    owners.toSorted((a, b) => String(a[0]).localeCompare(String(b[0]))),
    [
      ["/etc/app/deep/other", 0, 0, 0o640],
      ["/etc/app/token", 1000, 1000, 0o640],
    ],
  );
});

test("a mount of many files is refused before they are read", async (t) => {
  await using it = await started();
  const many = join(it.mounts, "many");
  mkdirSync(many);
  // Read whole, they would be 2 GiB.
  for (let i = 0; i < 4096; i++) {
    const file = openSync(join(many, String(i)), "w");
    ftruncateSync(file, 512 * 1024);
    closeSync(file);
  }
  const before = process.resourceUsage().maxRSS;
  const mounts = [{ containerPath: "/x", hostPath: many, readonly: true }];
  await t.throwsAsync(it.rig.cri.createContainer(asked(it.podSandboxId, { mounts })), {
    code: Code.ResourceExhausted,
  });
  t.true(process.resourceUsage().maxRSS - before < 512 * 1024, "KiB");
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

test("a container is limited when it starts, and later, and says what it uses", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const resources = {
    memoryLimitInBytes: 1n << 26n,
    cpuQuota: 50_000n,
    cpuPeriod: 100_000n,
    cpuShares: 1024n,
  };
  const { containerId } = await cri.createContainer(
    asked(it.podSandboxId, { linux: { resources } }),
  );
  await cri.updateContainerResources({ containerId, linux: { cpuShares: 2n } });
  await cri.startContainer({ containerId });
  const limits = { memoryBytes: 2 ** 26, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000 };
  t.deepEqual(node.containers.limits, [{ ...limits, cpuWeight: 1 }]);
  await cri.updateContainerResources({ containerId, linux: { memoryLimitInBytes: 1n << 27n } });
  t.deepEqual(node.containers.limits.at(-1), { memoryBytes: 2 ** 27 });
  const { stats } = await cri.containerStats({ containerId });
  t.is(stats?.cpu?.usageCoreNanoSeconds?.value, 1_500_000n);
  t.is(stats?.memory?.workingSetBytes?.value, 4096n);
  t.is((await cri.listContainerStats({})).stats.length, 1);
  const { stats: ofPod } = await cri.podSandboxStats({ podSandboxId: it.podSandboxId });
  t.is(ofPod?.linux?.containers[0]?.attributes?.id, containerId);
  t.is(ofPod?.linux?.containers[0]?.memory?.usageBytes?.value, 8192n);
  node.failing.add("container usage");
  t.is((await cri.containerStats({ containerId })).stats?.cpu, undefined, "the guest is silent");
  node.failing.clear();
  for (const lie of [{ memoryBytes: 2 ** 40 }, { workingSetBytes: 8193 }, { cpuUs: 2 ** 53 - 1 }]) {
    node.containers.lie = lie;
    const { stats: none } = await cri.containerStats({ containerId });
    t.is(none?.cpu ?? none?.memory, undefined, "no machine has as much");
    t.is(none?.attributes?.id, containerId);
  }
  node.containers.end(containerId, { signal: 9, outOfMemory: true });
  await until("its end", async () => (await cri.listContainerStats({})).stats.length === 0);
  const { status } = await cri.containerStatus({ containerId });
  t.like(status, { reason: "OOMKilled", exitCode: 137 });
  await t.throwsAsync(cri.updateContainerResources({ containerId }), {
    code: Code.FailedPrecondition,
  });
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

test("what a machine's container cannot be is refused by name, and nothing is made", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const file = join(it.mounts, "conf");
  const outside = join(it.mounts, "..", "outside");
  for (const path of [file, outside]) writeFileSync(path, "x");
  symlinkSync(outside, join(it.mounts, "link"));
  mkdirSync(join(it.mounts, "dir"));
  symlinkSync(outside, join(it.mounts, "dir/link"));
  writeFileSync(join(it.mounts, "large"), Buffer.alloc(513 * 1024));
  const mount = (more: object) => ({
    mounts: [{ containerPath: "/x", hostPath: file, readonly: true, ...more }],
  });
  const { Unimplemented, InvalidArgument, PermissionDenied, NotFound } = Code;
  for (const [more, code] of [
    [{ metadata: undefined }, InvalidArgument],
    [{ image: { image: "absent:1" } }, NotFound],
    [{ devices: [{ hostPath: "/dev/kvm" }] }, Unimplemented],
    [{ cdiDevices: [{ name: "gpu" }] }, Unimplemented],
    [context({ namespaceOptions: { pid: NamespaceMode.NODE } }), Unimplemented],
    [context({ namespaceOptions: { pid: 1, network: NamespaceMode.NODE } }), Unimplemented],
    [context({ namespaceOptions: { pid: 1, ipc: NamespaceMode.CONTAINER } }), Unimplemented],
    [context({ namespaceOptions: { pid: NamespaceMode.TARGET } }), InvalidArgument],
    [
      context({ namespaceOptions: { pid: NamespaceMode.TARGET, targetId: "none" } }),
      Code.FailedPrecondition,
    ],
    [context({ seccompProfilePath: "runtime/strict" }), InvalidArgument],
    [context({ seccomp: { profileType: 9 } }), InvalidArgument],
    [context({ seccomp: { profileType: 2, localhostRef: "relative.json" } }), InvalidArgument],
    [
      context({ seccomp: { profileType: 2, localhostRef: join(it.mounts, "none") } }),
      Code.Internal,
    ],
    [context({ seccomp: { profileType: 2, localhostRef: file } }), InvalidArgument],
    [context({ seccompProfilePath: `localhost/${file}` }), InvalidArgument],
    [context({ apparmor: { profileType: 0 } }), Unimplemented],
    [context({ apparmorProfile: "localhost/x" }), Unimplemented],
    [context({ selinuxOptions: { level: "s0:c1" } }), Unimplemented],
    [context({ namespaceOptions: { pid: 1, usernsOptions: { mode: 0 } } }), Unimplemented],
    [context({ runAsUser: { value: 7n }, supplementalGroupsPolicy: 1 }), Unimplemented],
    [{ windows: {} }, Unimplemented],
    [{ stopSignal: 10 }, Unimplemented],
    [mount({ image: { image: "data:1" } }), Unimplemented],
    [mount({ uidMappings: [{ hostId: 1, length: 1 }] }), Unimplemented],
    [{ linux: { resources: { cpusetCpus: "0-1" } } }, Unimplemented],
    [{ linux: { resources: { cpuQuota: 5n } } }, InvalidArgument],
    [context({ apparmor: { profileType: 2, localhostRef: "x" } }), Unimplemented],
    [context({ capabilities: { addAmbientCapabilities: ["KILL"] } }), Unimplemented],
    [context({ capabilities: { addCapabilities: ["FLY"] } }), InvalidArgument],
    [context({ runAsUser: { value: -1n } }), InvalidArgument],
    [context({ runAsGroup: { value: 7n } }), InvalidArgument],
    [context({ runAsUsername: "a:b:c" }), InvalidArgument],
    [context({ maskedPaths: ["/proc/../x"] }), InvalidArgument],
    [{ logPath: "../../../etc/passwd" }, PermissionDenied],
    [{ logPath: "../of-another-pod/app/0.log" }, PermissionDenied],
    [{ logPath: ".." }, PermissionDenied],
    [mount({ hostPath: outside }), PermissionDenied],
    [mount({ hostPath: join(it.mounts, "link") }), PermissionDenied],
    [mount({ hostPath: join(it.mounts, "dir") }), Unimplemented],
    [mount({ hostPath: "relative" }), InvalidArgument],
    [mount({ hostPath: join(it.mounts, "none") }), InvalidArgument],
    [mount({ hostPath: join(it.mounts, "large") }), Code.ResourceExhausted],
    [mount({ containerPath: "relative" }), InvalidArgument],
    [mount({ containerPath: "/" }), InvalidArgument],
    [mount({ readonly: false }), Unimplemented],
    [mount({ readonly: false, hostPath: join(it.mounts, "dir") }), Unimplemented],
    [mount({ propagation: MountPropagation.PROPAGATION_BIDIRECTIONAL }), Unimplemented],
  ] as const)
    await t.throwsAsync(
      cri.createContainer(asked(it.podSandboxId, more)),
      { code },
      JSON.stringify(more, (_key, value: unknown) =>
        typeof value === "bigint" ? `${value}` : value,
      ),
    );
  t.deepEqual(node.stored("SELECT id FROM sandbox_containers"), []);
  t.deepEqual(
    node.calls.filter((call) => call.startsWith("container")),
    [],
  );
});

test("containers share processes with their pod, or with one of its containers that runs", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  const processesOf = (name: string): unknown => {
    const plans = node
      .stored("SELECT plan FROM sandbox_containers")
      .map(({ plan }) => JSON.parse(String(plan)) as { metadata: object; start: object });
    return plans.find(({ metadata }) => "name" in metadata && metadata.name === name)?.start;
  };
  const make = async (name: string, namespaceOptions: object) => {
    const metadata = { name, attempt: 0 };
    const more = { metadata, ...context({ namespaceOptions }) };
    return (await cri.createContainer(asked(it.podSandboxId, more))).containerId;
  };
  const app = await make("app", { pid: NamespaceMode.CONTAINER });
  t.false("processes" in (processesOf("app") as object));
  await make("shared", { pid: NamespaceMode.POD });
  t.like(processesOf("shared"), { processes: { of: "pod" } });
  const debug = { pid: NamespaceMode.TARGET, targetId: app };
  await t.throwsAsync(make("debug", debug), { code: Code.FailedPrecondition });
  await cri.startContainer({ containerId: app });
  await make("debug", debug);
  t.like(processesOf("debug"), { processes: { of: "container", id: app } });
});

test("a profile of system calls becomes a filter; a privileged container has none", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  let attempt = 0;
  const filterOf = async (securityContext: object): Promise<string | undefined> => {
    const metadata = { name: "app", attempt: attempt++ };
    await cri.createContainer(asked(it.podSandboxId, { metadata, ...context(securityContext) }));
    const plans = node.stored("SELECT plan FROM sandbox_containers").map(
      ({ plan }) =>
        JSON.parse(String(plan)) as {
          metadata: { attempt: number };
          start: { filter?: string };
        },
    );
    return plans.find((plan) => plan.metadata.attempt === metadata.attempt)?.start.filter;
  };
  const file = join(it.mounts, "profile.json");
  writeFileSync(file, JSON.stringify({ defaultAction: "SCMP_ACT_LOG" }));
  t.is(await filterOf({}), undefined);
  t.is(await filterOf({ seccomp: { profileType: 1 } }), undefined);
  const usual = await filterOf({ seccomp: { profileType: 0 } });
  t.regex(usual ?? "", /^(?:[0-9a-f]{16})+$/);
  t.is(await filterOf({ seccompProfilePath: "runtime/default" }), usual);
  const admin = { capabilities: { addCapabilities: ["SYS_ADMIN"] } };
  t.not(await filterOf({ seccomp: { profileType: 0 }, ...admin }), usual);
  t.is(await filterOf({ seccomp: { profileType: 0 }, privileged: true }), undefined);
  const own = await filterOf({ seccomp: { profileType: 2, localhostRef: file } });
  t.regex(own ?? "", /0000fc7f$/, "SECCOMP_RET_LOG at the end");
  t.is(await filterOf({ seccompProfilePath: `localhost/${file}` }), own);
});

test("capabilities are the usual ones, with what is added and without what is dropped", async (t) => {
  await using it = await started();
  const { cri, node } = it.rig;
  let attempt = 0;
  const given = async (securityContext: object): Promise<unknown> => {
    const metadata = { name: "app", attempt: attempt++ };
    await cri.createContainer(asked(it.podSandboxId, { metadata, ...context(securityContext) }));
    const rows = node.stored("SELECT plan FROM sandbox_containers");
    const plans = rows.map(
      ({ plan }) =>
        JSON.parse(String(plan)) as {
          metadata: { attempt: number };
          start: { capabilities?: number[] };
        },
    );
    return plans.find((plan) => plan.metadata.attempt === metadata.attempt)?.start.capabilities;
  };
  const usual = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];
  t.deepEqual(await given({}), usual);
  t.deepEqual(await given({ capabilities: { dropCapabilities: ["ALL"] } }), []);
  const all = { dropCapabilities: ["ALL"], addCapabilities: ["NET_BIND_SERVICE"] };
  t.deepEqual(await given({ capabilities: all }), [10]);
  const some = { dropCapabilities: ["CAP_KILL"], addCapabilities: ["net_admin"] };
  t.deepEqual(
    await given({ capabilities: some }),
    [...usual.filter((each) => each !== 5), 12].toSorted((a, b) => a - b),
  );
  t.is(await given({ privileged: true }), undefined, "all");
});
