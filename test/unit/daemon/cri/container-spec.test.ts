import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { MountPropagation, NamespaceMode } from "../../../../daemon/cri/gen/cri_pb.ts";
import { until } from "../../../lab/until.ts";
import { asked, context, started } from "./container-rig.ts";

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
