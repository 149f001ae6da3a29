import { mkdirSync, mkdtempSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import {
  ContainerState,
  NamespaceMode,
  PodSandboxState,
  ProfileType,
} from "../../../../daemon/cri/gen/cri_pb.ts";
import { putImage, putName } from "../../../../daemon/images/store.ts";
import type { Digest } from "../../../../images/archive/digest.ts";
import { until } from "../../../lab/until.ts";
import { configuration } from "../fixtures/node.ts";
import { type CriRig, startCri } from "./rig.ts";

// What kubelet does over a pod's life, call by call: written from the interface's text and from
// what kubelet sends, and not from the server.

const digest = `sha256:${"c".repeat(64)}` as Digest;

/** As much of a kubelet as keeps one pod: it knows nothing but what the runtime says. */
class Kubelet implements AsyncDisposable {
  readonly logs = mkdtempSync(join(tmpdir(), "podnet-kubelet-"));
  readonly #config = configuration({ "cri.log_path": this.logs });
  #rig: CriRig | undefined;

  async start(): Promise<this> {
    this.#rig = await startCri({
      ...this.#config,
      cri: { ...this.#config.cri, logPath: this.logs, mountPaths: [this.logs] },
    });
    return this;
  }

  get rig(): CriRig {
    if (this.#rig === undefined) throw new Error("Not started");
    return this.#rig;
  }

  get cri() {
    return this.rig.cri;
  }

  /** The image is there: a pull would need a registry. */
  putImage(): void {
    const config = {
      architecture: "amd64",
      entrypoint: ["/app"],
      command: [],
      environment: [],
      directory: "",
      user: "",
      stopSignal: "",
      exposedPorts: [],
      labels: {},
    };
    const row = { digest, type: "root", state: "ready", config, bytes: 4096 } as const;
    putImage(this.rig.node.db, { ...row, createdMs: 1, usedMs: 1 });
    putName(this.rig.node.db, "docker.io/library/app:1", digest);
    const { directory } = this.rig.config.images;
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `${digest.replace(":", "-")}.img`), Buffer.alloc(4096));
  }

  sandboxConfig(attempt: number) {
    return {
      metadata: { name: "web", uid: "uid-1", namespace: "shop", attempt },
      hostname: "web",
      logDirectory: join(this.logs, "shop_web_uid-1"),
      dnsConfig: { servers: ["10.96.0.10"], searches: ["shop.svc.cluster.local"], options: [] },
      labels: {
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": "uid-1",
      },
      annotations: { "kubernetes.io/config.source": "api" },
      linux: {
        cgroupParent: "/kubepods/pod1",
        securityContext: {
          namespaceOptions: { pid: NamespaceMode.CONTAINER },
          seccomp: { profileType: ProfileType.RUNTIME_DEFAULT },
        },
      },
    };
  }

  async runSandbox(attempt: number): Promise<string> {
    const config = this.sandboxConfig(attempt);
    return (await this.cri.runPodSandbox({ config })).podSandboxId;
  }

  async startContainer(podSandboxId: string, name: string, attempt = 0): Promise<string> {
    const { image } = await this.rig.images.imageStatus({ image: { image: "app:1" } });
    const { containerId } = await this.cri.createContainer({
      podSandboxId,
      config: {
        metadata: { name, attempt },
        image: { image: image?.id ?? "", userSpecifiedImage: "app:1" },
        envs: [{ key: "PORT", value: "80" }],
        labels: {
          "io.kubernetes.container.name": name,
          "io.kubernetes.pod.name": "web",
          "io.kubernetes.pod.namespace": "shop",
          "io.kubernetes.pod.uid": "uid-1",
        },
        annotations: {
          "io.kubernetes.container.restartCount": String(attempt),
          "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        },
        logPath: `${name}/${attempt}.log`,
        linux: {
          resources: { cpuShares: 2n, oomScoreAdj: 1000n },
          securityContext: {
            namespaceOptions: { pid: NamespaceMode.CONTAINER },
            seccomp: { profileType: ProfileType.UNCONFINED },
            maskedPaths: ["/proc/kcore"],
            readonlyPaths: ["/proc/sys"],
          },
        },
      },
      sandboxConfig: this.sandboxConfig(0),
    });
    await this.cri.startContainer({ containerId });
    return containerId;
  }

  /** What kubelet lists once a second: sandboxes and containers with their states. */
  async relist(): Promise<string[]> {
    const [{ items }, { containers }] = await Promise.all([
      this.cri.listPodSandbox({}),
      this.cri.listContainers({}),
    ]);
    const states = ["created", "running", "exited"];
    const isReady = (state: PodSandboxState): boolean => state === PodSandboxState.SANDBOX_READY;
    return [
      ...items.map(
        ({ metadata, state }) => `${metadata?.attempt} ${isReady(state) ? "ready" : "over"}`,
      ),
      ...containers.map(
        ({ metadata, state }) => `${metadata?.name}/${metadata?.attempt} ${states[state]}`,
      ),
    ].toSorted();
  }

  async status(containerId: string) {
    const { status } = await this.cri.containerStatus({ containerId });
    if (status === undefined) throw new Error("No status");
    return status;
  }

  exited(containerId: string) {
    return until("the end", async () => {
      const status = await this.status(containerId);
      return status.state === ContainerState.CONTAINER_EXITED && status;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#rig?.[Symbol.asyncDispose]();
  }
}

const codeOf = async (call: Promise<unknown>): Promise<Code | undefined> => {
  try {
    await call;
    return undefined;
  } catch (thrown) {
    return ConnectError.from(thrown).code;
  }
};

const inOrder = (t: ExecutionContext, ...times: readonly bigint[]): void => {
  for (const [i, time] of times.entries()) {
    t.true(time > 1_600_000_000_000_000_000n, "nanoseconds since 1970");
    t.true(i === 0 || time >= (times[i - 1] ?? 0n), `${times.join()} are in their order`);
  }
};

test("a pod's life as kubelet leads it", async (t) => {
  await using kubelet = await new Kubelet().start();
  const { cri, rig } = kubelet;
  const { node } = rig;
  t.is((await cri.version({ version: "0.1.0" })).runtimeName, "podnet");
  const { status } = await cri.status({});
  t.deepEqual(
    status?.conditions.map(({ type, status: is }) => `${type} ${is}`),
    ["RuntimeReady true", "NetworkReady true"],
  );
  t.deepEqual(await kubelet.relist(), []);

  // syncPod: no sandbox yet, so attempt 0; the image is looked for first.
  const podSandboxId = await kubelet.runSandbox(0);
  const { status: sandbox } = await cri.podSandboxStatus({ podSandboxId });
  t.truthy(sandbox?.network?.ip);
  t.is((await rig.images.imageStatus({ image: { image: "app:1" } })).image, undefined);
  kubelet.putImage();
  t.is((await rig.images.imageStatus({ image: { image: "app:1" } })).image?.id, digest);

  // Init containers one after the other: each has to end with 0.
  const setup = await kubelet.startContainer(podSandboxId, "setup");
  t.deepEqual(await kubelet.relist(), ["0 ready", "setup/0 running"]);
  node.containers.end(setup, { code: 1 });
  t.like(await kubelet.exited(setup), { exitCode: 1, reason: "Error" });
  const again = await kubelet.startContainer(podSandboxId, "setup", 1);
  node.containers.end(again, { code: 0 });
  const ended = await kubelet.exited(again);
  t.like(ended, { exitCode: 0, reason: "Completed" });
  inOrder(t, ended.createdAt, ended.startedAt, ended.finishedAt);

  // The pod's own containers.
  const app = await kubelet.startContainer(podSandboxId, "app");
  const side = await kubelet.startContainer(podSandboxId, "side");
  t.deepEqual(await kubelet.relist(), [
    "0 ready",
    "app/0 running",
    "setup/0 exited",
    "setup/1 exited",
    "side/0 running",
  ]);
  const running = await kubelet.status(app);
  t.is(running.finishedAt, 0n);
  t.is(running.imageRef, digest);
  t.is(running.labels["io.kubernetes.pod.uid"], "uid-1");

  // Probes: an exit code is an answer, and no error.
  node.program = (args) =>
    args[0] === "healthy"
      ? [
          { kind: "stdout", data: Buffer.from("ok") },
          { kind: "exit", code: 0 },
        ]
      : [{ kind: "exit", code: 2 }];
  const probe = await cri.execSync({ containerId: app, cmd: ["healthy"], timeout: 1n });
  t.like(probe, { exitCode: 0, stdout: new Uint8Array(Buffer.from("ok")) });
  t.is((await cri.execSync({ containerId: app, cmd: ["ill"], timeout: 1n })).exitCode, 2);

  // kubelet rotates the log while a line is being written.
  const log = join(kubelet.logs, "shop_web_uid-1/app/0.log");
  node.containers.write(app, "whole\nhalf");
  await until("the log", () => Promise.resolve(readFileSync(log, "utf8").includes("half")));
  renameSync(log, `${log}.20260101`);
  await cri.reopenContainerLog({ containerId: app });
  node.containers.write(app, " and half\nnext\n");
  await until("the new log", () => Promise.resolve(readFileSync(log, "utf8").includes("next")));
  const lines = (file: string) =>
    readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => line.replace(/^\S+ stdout /, ""));
  t.deepEqual(lines(`${log}.20260101`), ["F whole", "P half"]);
  t.deepEqual(lines(log), ["F  and half", "F next"]);

  // A container that dies is replaced, with a higher attempt; the dead one is kept for a while.
  node.containers.end(side, { signal: 11 });
  t.like(await kubelet.exited(side), { exitCode: 139, reason: "Error" });
  t.is(await codeOf(cri.execSync({ containerId: side, cmd: ["x"] })), Code.FailedPrecondition);
  const second = await kubelet.startContainer(podSandboxId, "side", 1);
  t.deepEqual((await kubelet.relist()).slice(-2), ["side/0 exited", "side/1 running"]);
  await cri.removeContainer({ containerId: side });
  t.is(await codeOf(cri.containerStatus({ containerId: side })), Code.NotFound);

  // killPod: each container has the grace period, then the sandbox is stopped, twice.
  node.containers.deafTo = 15;
  const began = performance.now();
  await Promise.all(
    [app, second].map((containerId) => cri.stopContainer({ containerId, timeout: 1n })),
  );
  t.true(performance.now() - began >= 990, "the grace period");
  t.like(await kubelet.status(app), { exitCode: 137, state: ContainerState.CONTAINER_EXITED });
  await cri.stopPodSandbox({ podSandboxId });
  await cri.stopPodSandbox({ podSandboxId });
  t.deepEqual((await kubelet.relist())[0], "0 over");
  const stopped = await cri.podSandboxStatus({ podSandboxId });
  t.is(stopped.status?.network?.ip ?? "", "");

  // Garbage collection: containers first, then their sandbox; and what is gone already.
  for (const containerId of [app, second, again, setup, setup, "never-was"])
    await cri.removeContainer({ containerId });
  for (const id of [podSandboxId, podSandboxId, "never-was"])
    await cri.removePodSandbox({ podSandboxId: id });
  await cri.stopContainer({ containerId: "never-was", timeout: 0n });
  await cri.stopPodSandbox({ podSandboxId: "never-was" });
  t.deepEqual(await kubelet.relist(), []);
  t.is(await codeOf(cri.podSandboxStatus({ podSandboxId })), Code.NotFound);
  await rig.images.removeImage({ image: { image: digest } });
  await rig.images.removeImage({ image: { image: digest } });
});

test("a sandbox whose machine ends is replaced by the next attempt, and its containers with it", async (t) => {
  await using kubelet = await new Kubelet().start();
  kubelet.putImage();
  const { cri } = kubelet;
  const first = await kubelet.runSandbox(0);
  const app = await kubelet.startContainer(first, "app");
  await cri.stopPodSandbox({ podSandboxId: first });
  t.like(await kubelet.exited(app), { exitCode: 137, reason: "Error" });
  t.is(await codeOf(kubelet.startContainer(first, "late")), Code.FailedPrecondition);
  // The attempt is another sandbox, next to the dead one.
  const second = await kubelet.runSandbox(1);
  t.not(second, first);
  await kubelet.startContainer(second, "app", 1);
  t.deepEqual(await kubelet.relist(), ["0 over", "1 ready", "app/0 exited", "app/1 running"]);
  await cri.removePodSandbox({ podSandboxId: first });
  t.deepEqual(await kubelet.relist(), ["1 ready", "app/1 running"]);
});

test("a run that fails leaves no name behind: the same attempt succeeds later", async (t) => {
  await using kubelet = await new Kubelet().start();
  const { node } = kubelet.rig;
  node.failing.add("configure");
  t.not(await codeOf(kubelet.runSandbox(0)), undefined);
  t.deepEqual(await kubelet.relist(), []);
  node.failing.clear();
  const podSandboxId = await kubelet.runSandbox(0);
  kubelet.putImage();
  for (const call of ["container create", "container start"]) {
    node.failing.add(call);
    t.not(await codeOf(kubelet.startContainer(podSandboxId, "app")), undefined, call);
    node.failing.clear();
    const { containers } = await kubelet.cri.listContainers({});
    for (const { id } of containers) await kubelet.cri.removeContainer({ containerId: id });
  }
  await kubelet.startContainer(podSandboxId, "app");
  t.deepEqual(await kubelet.relist(), ["0 ready", "app/0 running"]);
});

test("a call that kubelet gave up is waited for by its retry, and nothing is left twice", async (t) => {
  await using kubelet = await new Kubelet().start();
  const { cri, rig } = kubelet;
  const config = kubelet.sandboxConfig(0);
  const hasty = cri.runPodSandbox({ config }, { timeoutMs: 1 });
  t.is(await codeOf(hasty), Code.DeadlineExceeded);
  const podSandboxId = await kubelet.runSandbox(0);
  t.deepEqual(await kubelet.relist(), ["0 ready"]);
  t.is(rig.node.pods.list().length, 1);
  kubelet.putImage();
  // Of twenty at once, all are the same one.
  const ids = await Promise.all(Array.from({ length: 20 }, () => kubelet.runSandbox(0)));
  t.deepEqual(new Set(ids), new Set([podSandboxId]));
});

test("a program that writes without end is run to its end, and its output is cut", async (t) => {
  await using kubelet = await new Kubelet().start();
  kubelet.putImage();
  const containerId = await kubelet.startContainer(await kubelet.runSandbox(0), "app");
  const data = Buffer.alloc(1 << 20, "x");
  const flood = Array.from({ length: 20 }, () => ({ kind: "stdout", data }) as const);
  kubelet.rig.node.program = () => [...flood, { kind: "stderr", data }, { kind: "exit", code: 7 }];
  const { stdout, stderr, exitCode } = await kubelet.cri.execSync({ containerId, cmd: ["yes"] });
  t.is(exitCode, 7);
  // kubelet takes messages of 16 MiB, with all that is in them.
  t.true(stdout.length > 15 << 20 && stdout.length < 16 << 20);
  t.is(stderr.length, 0);
});

test("lists of a full node are as quick as kubelet needs them", async (t) => {
  await using kubelet = await new Kubelet().start();
  kubelet.putImage();
  const podSandboxId = await kubelet.runSandbox(0);
  for (let i = 0; i < 30; i++) await kubelet.startContainer(podSandboxId, `app-${i}`);
  const began = performance.now();
  for (let i = 0; i < 20; i++) await kubelet.relist();
  // kubelet calls a runtime unhealthy whose lists take three minutes, and lists once a second.
  t.true((performance.now() - began) / 20 < 1000);
  t.is((await kubelet.relist()).length, 31);
});
