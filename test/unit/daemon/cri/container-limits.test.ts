import { create } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { limitsOf } from "../../../../daemon/cri/containers/container-limits.ts";
import { LinuxContainerResourcesSchema } from "../../../../daemon/cri/gen/cri_pb.ts";
import {
  encodeContainerUsage,
  parseContainerUsage,
} from "../../../../guest-init/protocol/container-messages.ts";

const of = (resources: object) => limitsOf(create(LinuxContainerResourcesSchema, resources));

function refused(t: ExecutionContext, resources: object, code: string, field: string): void {
  const error = t.throws(() => of(resources), { code });
  t.like(error, { field: `config.linux.resources.${field}` });
}

test("limits of Kubernetes are those of control groups", (t) => {
  t.deepEqual(limitsOf(undefined), {});
  t.deepEqual(of({}), {});
  // What kubelet 1.30 sends on a node with huge pages.
  const usual = {
    cpuPeriod: 100_000n,
    cpuQuota: 50_000n,
    cpuShares: 512n,
    memoryLimitInBytes: 64n << 20n,
    memorySwapLimitInBytes: 64n << 20n,
    oomScoreAdj: 999n,
    hugepageLimits: [{ pageSize: "2MB", limit: 0n }],
    unified: { "memory.oom.group": "1" },
  };
  t.deepEqual(of(usual), {
    memoryBytes: 64 * 2 ** 20,
    cpuQuotaUs: 50_000,
    cpuPeriodUs: 100_000,
    cpuWeight: 20,
    killedAsOne: true,
  });
  t.deepEqual(of({ cpuQuota: 20_000n }), { cpuQuotaUs: 20_000, cpuPeriodUs: 100_000 });
  t.deepEqual(of({ cpuQuota: -1n, memoryLimitInBytes: -1n }), {
    memoryBytes: 0,
    cpuQuotaUs: 0,
    cpuPeriodUs: 100_000,
  });
  t.deepEqual(of({ memoryLimitInBytes: 2n ** 63n - 1n }), { memoryBytes: 0 });
  t.deepEqual(
    [2n, 1n, 262_144n, 10n ** 15n].map((cpuShares) => of({ cpuShares }).cpuWeight),
    [1, 1, 10_000, 10_000],
  );
  t.deepEqual(of({ unified: { "pids.max": "30" } }), { pids: 30 });
  t.deepEqual(of({ unified: { "pids.max": "max" } }), { pids: 0 });
});

test("what a machine cannot limit is refused by its field", (t) => {
  for (const [resources, field] of [
    [{ cpusetCpus: "0" }, "cpuset_cpus"],
    [{ cpusetMems: "0" }, "cpuset_mems"],
    [{ hugepageLimits: [{ pageSize: "2MB", limit: 1n }] }, "hugepage_limits"],
    [{ unified: { "memory.high": "1" } }, "unified"],
    [{ unified: { "pids.max": "0" } }, "unified"],
    [{ unified: { "memory.oom.group": "yes" } }, "unified"],
  ] as const)
    refused(t, resources, "UNSUPPORTED", field);
  for (const [resources, field] of [
    [{ cpuQuota: 999n }, "cpu_quota"],
    [{ cpuQuota: 5000n, cpuPeriod: 999n }, "cpu_period"],
    [{ cpuQuota: 5000n, cpuPeriod: -1n }, "cpu_period"],
    [{ cpuQuota: 5000n, cpuPeriod: 1_000_001n }, "cpu_period"],
  ] as const)
    refused(t, resources, "INVALID_ARGUMENT", field);
});

test("figures of a guest that are none are refused", (t) => {
  const usage = { id: "a", cpuUs: 1, memoryBytes: 2, workingSetBytes: 1, oomKills: 0 };
  t.deepEqual(parseContainerUsage(encodeContainerUsage([usage])), [usage]);
  const said = (text: string) => () => parseContainerUsage(Buffer.from(text));
  const list = JSON.stringify({ containers: [usage] });
  for (const lie of ["-1", "1.5", "1e400", "NaN", '"1"', "null", "9007199254740993"])
    t.throws(said(list.replace('"cpuUs":1', `"cpuUs":${lie}`)), { code: "AGENT_PROTOCOL" }, lie);
  t.throws(said(JSON.stringify({ containers: [usage, usage] })), { code: "AGENT_PROTOCOL" });
});
