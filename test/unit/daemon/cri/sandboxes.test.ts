import { earlier } from "../../../../daemon/cri/serve-cri.ts";
import { openCri } from "../../../lab/cri/client.ts";
import { statSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { sizeOf } from "../../../../hypervisor/driver.ts";
import {
  ImageService,
  NamespaceMode,
  PodSandboxState,
  Protocol,
  RuntimeService,
} from "../../../../daemon/cri/gen/cri_pb.ts";
import { nginx, startCri } from "./rig.ts";

test("a sandbox goes its way: run, status, list, stop, remove", async (t) => {
  await using rig = await startCri();
  const { cri, node } = rig;
  t.is(statSync(rig.socket).mode & 0o777, 0o600, "root alone may connect");
  const before = BigInt(Date.now()) * 1_000_000n;
  const { podSandboxId } = await cri.runPodSandbox({ ...nginx(), runtimeHandler: "podnet" });
  const { status, info } = await cri.podSandboxStatus({ podSandboxId, verbose: true });
  t.like(status, {
    id: podSandboxId,
    state: PodSandboxState.SANDBOX_READY,
    labels: nginx().config.labels,
    annotations: nginx().config.annotations,
    runtimeHandler: "podnet",
  });
  t.like(status?.metadata, nginx().config.metadata);
  t.is(status?.network?.ip, "10.0.0.2");
  const { createdAt = 0n } = status ?? {};
  t.true(createdAt >= before && createdAt < before + 60_000_000_000n, "nanoseconds");
  const row = node.pods.find(podSandboxId);
  t.is(row.spec.hostname, "nginx");
  t.deepEqual(row.spec.dns, {
    servers: ["10.96.0.10"],
    search: ["default.svc"],
    options: ["ndots:5"],
  } as never);
  t.like(JSON.parse(info["info"] ?? ""), { pod: row.name, hostname: "nginx", memoryMib: 128 });
  t.deepEqual(
    (await cri.listPodSandbox({})).items.map(({ id }) => id),
    [podSandboxId],
  );

  await cri.stopPodSandbox({ podSandboxId });
  await cri.stopPodSandbox({ podSandboxId });
  const stopped = (await cri.podSandboxStatus({ podSandboxId })).status;
  t.is(stopped?.state, PodSandboxState.SANDBOX_NOTREADY);
  t.is(stopped?.network?.ip, "");
  t.is(stopped?.createdAt, createdAt);
  await cri.removePodSandbox({ podSandboxId });
  await cri.removePodSandbox({ podSandboxId });
  await cri.stopPodSandbox({ podSandboxId });
  await t.throwsAsync(cri.podSandboxStatus({ podSandboxId }), { code: Code.NotFound });
  t.deepEqual((await cri.listPodSandbox({})).items, []);
  t.deepEqual(node.pods.list(), []);
});

test("a sandbox's machine grows as far as it has room, and keeps what it has", async (t) => {
  await using rig = await startCri();
  const { cri, node } = rig;
  const annotations = { "podnet/max-vcpu": "4", "podnet/max-memory-mib": "1024" };
  const gib = 2n ** 30n;
  const linux = { resources: { memoryLimitInBytes: gib / 8n, cpuQuota: 100n, cpuPeriod: 100n } };
  const { podSandboxId } = await cri.runPodSandbox(nginx({ annotations, linux }));
  const size = () => sizeOf(node.pods.find(podSandboxId).plan.vm);
  t.deepEqual(size(), { vcpu: 1, memoryMib: 256 });
  const update = (resources: object) => cri.updatePodSandboxResources({ podSandboxId, resources });
  await update({ memoryLimitInBytes: gib / 8n + 1n, cpuQuota: 150n, cpuPeriod: 100n });
  t.deepEqual(size(), { vcpu: 2, memoryMib: 384 });
  // Nothing, the same, and less change nothing.
  for (const less of [{}, { cpuQuota: -1n, cpuPeriod: 100n }, { memoryLimitInBytes: gib / 8n }])
    await update(less);
  await cri.updatePodSandboxResources({ podSandboxId, overhead: { memoryLimitInBytes: gib } });
  t.deepEqual(size(), { vcpu: 2, memoryMib: 384 });
  for (const more of [{ memoryLimitInBytes: gib }, { cpuQuota: 401n, cpuPeriod: 100n }])
    await t.throwsAsync(update(more), { code: Code.Unimplemented, message: /has room for/ });
  t.deepEqual(size(), { vcpu: 2, memoryMib: 384 });
  await cri.stopPodSandbox({ podSandboxId });
  await t.throwsAsync(update({}), { code: Code.FailedPrecondition });
  await cri.removePodSandbox({ podSandboxId });
  await t.throwsAsync(update({}), { code: Code.NotFound });
  for (const [key, text] of [
    ["podnet/max-vcpu", "two"],
    ["podnet/max-vcpu", "-1"],
    ["podnet/max-memory-mib", "1Gi"],
    ["podnet/max-memory-mib", ""],
  ] as const)
    await t.throwsAsync(cri.runPodSandbox(nginx({ annotations: { [key]: text } })), {
      code: Code.InvalidArgument,
    });
});

test("one that is ready is removed with its machine", async (t) => {
  await using rig = await startCri();
  const { podSandboxId } = await rig.cri.runPodSandbox(nginx());
  await rig.cri.removePodSandbox({ podSandboxId });
  t.deepEqual(rig.node.pods.list(), []);
});

test("a run whose answer was lost is asked for again: the same sandbox, also at once", async (t) => {
  await using rig = await startCri();
  const runs = await Promise.all([1, 2, 3].map(() => rig.cri.runPodSandbox(nginx())));
  t.is(new Set(runs.map(({ podSandboxId }) => podSandboxId)).size, 1);
  t.is(rig.node.pods.list().length, 1);
  await t.throwsAsync(rig.cri.runPodSandbox(nginx({ hostname: "other" })), {
    code: Code.AlreadyExists,
  });
  const [podSandboxId = ""] = runs.map((run) => run.podSandboxId);
  await rig.cri.stopPodSandbox({ podSandboxId });
  await t.throwsAsync(rig.cri.runPodSandbox(nginx()), {
    code: Code.AlreadyExists,
    message: new RegExp(podSandboxId),
  });
  const metadata = { ...nginx().config.metadata, attempt: 1 };
  const next = await rig.cri.runPodSandbox(nginx({ metadata }));
  t.not(next.podSandboxId, podSandboxId);
  await rig.cri.removePodSandbox({ podSandboxId });
  t.not((await rig.cri.runPodSandbox(nginx())).podSandboxId, podSandboxId);
});

test("lists are of what the filter names, all of it", async (t) => {
  await using rig = await startCri();
  const { podSandboxId: one } = await rig.cri.runPodSandbox(nginx());
  const metadata = { name: "db", uid: "u-2", namespace: "default", attempt: 0 };
  const { podSandboxId: two } = await rig.cri.runPodSandbox(
    nginx({ metadata, labels: { app: "db" } }),
  );
  const { stats: alive } = await rig.cri.podSandboxStats({ podSandboxId: two });
  t.is(alive?.linux?.memory?.usageBytes?.value, 4096n);
  const { network } = alive?.linux ?? {};
  t.is(network?.defaultInterface?.name, "eth0");
  t.is(network?.interfaces.length, 1);
  t.is(network?.defaultInterface?.rxBytes?.value, 20n, "what the host sent, the pod received");
  t.is(network?.defaultInterface?.txBytes?.value, 10n);
  t.is(network?.defaultInterface?.rxErrors?.value, 2n);
  await rig.cri.stopPodSandbox({ podSandboxId: two });
  const ids = async (filter: object) =>
    (await rig.cri.listPodSandbox({ filter })).items.map(({ id }) => id);
  t.deepEqual(await ids({ id: one }), [one]);
  t.deepEqual(await ids({ labelSelector: { app: "db" } }), [two]);
  t.deepEqual(await ids({ labelSelector: { app: "db", tier: "back" } }), []);
  t.deepEqual(await ids({ labelSelector: { constructor: "x" } }), []);
  t.deepEqual(await ids({ state: { state: PodSandboxState.SANDBOX_READY } }), [one]);
  t.deepEqual(await ids({ state: { state: PodSandboxState.SANDBOX_NOTREADY }, id: one }), []);
  const { stats } = await rig.cri.listPodSandboxStats({ filter: { id: two } });
  t.deepEqual(
    stats.map(({ attributes }) => attributes?.metadata?.name),
    ["db"],
  );
});

test("pods that are no sandboxes are neither seen nor ended", async (t) => {
  await using rig = await startCri();
  const { id, name } = await rig.node.create();
  for (const podSandboxId of [id, name]) {
    await rig.cri.stopPodSandbox({ podSandboxId });
    await rig.cri.removePodSandbox({ podSandboxId });
    await t.throwsAsync(rig.cri.podSandboxStatus({ podSandboxId }), { code: Code.NotFound });
  }
  t.deepEqual((await rig.cri.listPodSandbox({})).items, []);
  t.is(rig.node.pods.find(id).state, "running");
});

test("ports, limits and labels reach the pod", async (t) => {
  await using rig = await startCri();
  const long = `example.org/${"x".repeat(60)}`;
  const { podSandboxId } = await rig.cri.runPodSandbox(
    nginx({
      labels: { app: "web", [long]: "1", "admin.podnet/trusted": "yes" },
      portMappings: [
        { protocol: Protocol.TCP, containerPort: 80, hostPort: 18_080, hostIp: "127.0.0.1" },
        { protocol: Protocol.TCP, containerPort: 81, hostPort: 0 },
      ],
      linux: {
        resources: { cpuPeriod: 100_000n, cpuQuota: 150_000n, memoryLimitInBytes: 64n << 20n },
        overhead: { memoryLimitInBytes: 512n << 20n },
      },
    }),
  );
  const { spec } = rig.node.pods.find(podSandboxId);
  t.deepEqual(spec.ports as unknown, [
    { hostIp: "127.0.0.1", hostPort: 18_080, podPort: 80, count: 1, protocol: "tcp" },
  ]);
  t.deepEqual(spec.resources, { vcpu: 2, memoryMib: 192 });
  t.deepEqual(spec.labels, { app: "web" });
  t.deepEqual((await rig.cri.podSandboxStatus({ podSandboxId })).status?.labels, {
    app: "web",
    [long]: "1",
    "admin.podnet/trusted": "yes",
  });
  // The host's port is free again: a test that ends may not hold it.
  await rig.cri.removePodSandbox({ podSandboxId });
});

test("what cannot be had is refused with a sentence, and leaves nothing", async (t) => {
  await using rig = await startCri();
  const of = (which: string) => ({
    linux: { securityContext: { namespaceOptions: { [which]: NamespaceMode.NODE } } },
  });
  const refusals: readonly [object, Code, RegExp][] = [
    [nginx(of("network")), Code.Unimplemented, /node's network/],
    [nginx(of("pid")), Code.Unimplemented, /node's pid/],
    [nginx(of("ipc")), Code.Unimplemented, /node's ipc/],
    [nginx({ linux: { sysctls: { "net.core.somaxconn": "9" } } }), Code.Unimplemented, /sysctls/],
    [
      nginx({ linux: { sysctls: { "net/../../etc/passwd": "9" } } }),
      Code.InvalidArgument,
      /passwd/,
    ],
    [nginx({ linux: { sysctls: { "net..x": "9" } } }), Code.InvalidArgument, /net\.\.x/],
    [nginx({ linux: { sysctls: { "kernel.x": "a\0b" } } }), Code.InvalidArgument, /kernel\.x/],
    [nginx({ windows: {} }), Code.Unimplemented, /Windows/],
    [
      nginx({ linux: { securityContext: { selinuxOptions: { type: "spc_t" } } } }),
      Code.Unimplemented,
      /spc_t/,
    ],
    [
      nginx({ linux: { securityContext: { namespaceOptions: { usernsOptions: { mode: 0 } } } } }),
      Code.Unimplemented,
      /users/,
    ],
    [{ ...nginx(), runtimeHandler: "runc" }, Code.InvalidArgument, /handler "runc"/],
    [{}, Code.InvalidArgument, /no name/],
    [{ config: { metadata: { name: "" } } }, Code.InvalidArgument, /no name/],
    [nginx({ portMappings: [{ containerPort: 70_000, hostPort: 1 }] }), Code.InvalidArgument, /70/],
    [nginx({ portMappings: [{ protocol: 9, containerPort: 1, hostPort: 1 }] }), 3, /protocol 9/],
    [nginx({ dnsConfig: { servers: ["127.0.0.1"] } }), Code.InvalidArgument, /guest itself/],
    [nginx({ hostname: "no host" }), Code.InvalidArgument, /host/],
  ];
  for (const [request, code, message] of refusals)
    await t.throwsAsync(rig.cri.runPodSandbox(request), { code, message });
  t.deepEqual(rig.node.pods.list(), []);
});

test("sysctls are set in the machine, again when an answer was lost; without them there is no sandbox", async (t) => {
  await using rig = await startCri();
  const { node, cri } = rig;
  const ran: (readonly string[])[] = [];
  node.features = ["container-processes"];
  node.program = (args) => {
    ran.push(args);
    return [{ kind: "exit", code: 0 }];
  };
  const sysctls = { "net.core.somaxconn": "1024", "net.ipv4.conf.eth0/1.rp_filter": "0" };
  const asked = nginx({ linux: { sysctls } });
  const { podSandboxId } = await cri.runPodSandbox(asked);
  const wanted = [
    "/proc/self/exe",
    "--sysctl",
    "/proc/sys/net/core/somaxconn",
    "1024",
    "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
    "0",
  ];
  t.deepEqual(ran, [wanted]);
  t.is((await cri.runPodSandbox(asked)).podSandboxId, podSandboxId);
  t.deepEqual(ran, [wanted, wanted]);
  const refused = "/proc/sys/kernel/x: No such file or directory\n";
  node.program = () => [
    { kind: "stderr", data: Buffer.from(refused) },
    { kind: "exit", code: 1 },
  ];
  const metadata = { name: "refused", uid: "u-2", namespace: "default", attempt: 0 };
  await t.throwsAsync(
    cri.runPodSandbox(nginx({ metadata, linux: { sysctls: { "kernel/x": "1" } } })),
    { code: Code.InvalidArgument, message: /refuses a sysctl: kernel\/x: No such file/ },
  );
  t.deepEqual(
    (await cri.listPodSandbox({})).items.map(({ id }) => id),
    [podSandboxId],
  );
});

test("clients of v1alpha2 are served, too", async (t) => {
  await using rig = await startCri();
  const services = { runtime: earlier(RuntimeService), images: earlier(ImageService) };
  using before = openCri(rig.socket, services);
  t.is((await before.runtime.version({})).runtimeApiVersion, "v1alpha2");
  t.is((await rig.cri.version({})).runtimeApiVersion, "v1");
  const { podSandboxId } = await before.runtime.runPodSandbox(nginx());
  const { status } = await before.runtime.podSandboxStatus({ podSandboxId });
  t.is(status?.metadata?.name, "nginx-6f.7c");
  t.deepEqual((await before.images.listImages({})).images, []);
});

test("metrics have kubelet's names, and as many values as labels", async (t) => {
  await using rig = await startCri();
  const { podSandboxId } = await rig.cri.runPodSandbox(nginx());
  const { descriptors } = await rig.cri.listMetricDescriptors({});
  const labelsOf = new Map(descriptors.map(({ name, labelKeys }) => [name, labelKeys]));
  const { podMetrics } = await rig.cri.listPodSandboxMetrics({});
  t.deepEqual(
    podMetrics.map((each) => each.podSandboxId),
    [podSandboxId],
  );
  const metrics = podMetrics.flatMap((each) => each.metrics);
  for (const { name, labelValues } of metrics)
    t.is(labelValues.length, labelsOf.get(name)?.length ?? -1, name);
  const received = metrics.find(({ name }) => name === "container_network_receive_bytes_total");
  // What the host sent into the tap.
  t.is(received?.value?.value, 20n);
  t.deepEqual(received?.labelValues, [
    "",
    podSandboxId,
    "",
    podSandboxId,
    "default",
    "nginx-6f.7c",
    "eth0",
  ]);
});

test("annotations as large as Kubernetes allows are kept", async (t) => {
  await using rig = await startCri();
  const annotations = { large: "x".repeat(256 << 10) };
  const { podSandboxId } = await rig.cri.runPodSandbox(nginx({ annotations }));
  const { status } = await rig.cri.podSandboxStatus({ podSandboxId });
  t.deepEqual(status?.annotations, annotations);
});

test("sandboxes are there after a start of podnetd, as they were", async (t) => {
  const first = await startCri();
  const { podSandboxId } = await first.cri.runPodSandbox(nginx());
  const { status: before } = await first.cri.podSandboxStatus({ podSandboxId });
  await first[Symbol.asyncDispose]();
  await using second = await startCri(first.config);
  const { status } = await second.cri.podSandboxStatus({ podSandboxId });
  t.deepEqual(status?.metadata, before?.metadata);
  t.deepEqual(status?.annotations, before?.annotations);
  t.is(status?.createdAt, before?.createdAt);
});

test("the runtime says what it is, and whether it is ready", async (t) => {
  await using rig = await startCri();
  t.like(await rig.cri.version({}), { runtimeName: "podnet", runtimeApiVersion: "v1" });
  const { status, runtimeHandlers } = await rig.cri.status({});
  t.deepEqual(
    status?.conditions.map((each) => [each.type, each.status]),
    [
      ["RuntimeReady", true],
      ["NetworkReady", true],
    ],
  );
  t.deepEqual(
    runtimeHandlers.map(({ name }) => name),
    ["", "podnet"],
  );
  const podCidr = (text: string) =>
    rig.cri.updateRuntimeConfig({ runtimeConfig: { networkConfig: { podCidr: text } } });
  for (const good of ["", "10.0.0.0/29", "10.0.0.0/24,fd00::/64"]) await podCidr(good);
  await t.throwsAsync(podCidr("10.9.0.0/24"), { code: Code.FailedPrecondition });
  await t.throwsAsync(podCidr("many"), { code: Code.InvalidArgument });
});

test("without a container lists are empty and ends are done; what podnet cannot do fails", async (t) => {
  await using rig = await startCri();
  const { cri } = rig;
  t.deepEqual((await cri.listContainers({})).containers, []);
  t.deepEqual((await cri.listContainerStats({})).stats, []);
  await cri.stopContainer({ containerId: "c" });
  await cri.removeContainer({ containerId: "c" });
  for (const call of [
    cri.containerStatus({ containerId: "c" }),
    cri.execSync({ containerId: "c" }),
    cri.startContainer({ containerId: "c" }),
    cri.createContainer({ podSandboxId: "p" }),
  ])
    await t.throwsAsync(call, { code: Code.NotFound });
  await t.throwsAsync(cri.portForward({}), { code: Code.NotFound });
  await t.throwsAsync(cri.checkpointContainer({}), {
    code: Code.Unimplemented,
    message: /podnet cannot/,
  });
});
