import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { parsePodId, type PodId } from "../../../../core/names.ts";
import type { VmPlan } from "../../../../hypervisor/driver.ts";
import { withRemains } from "../../../../hypervisor/process/remains.ts";

const ids = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "dddddddddddd"].map((id) =>
  parsePodId(id),
);
const [process, directory, group, nothing] = ids as [PodId, PodId, PodId, PodId];

const planIn = (top: string, podId: PodId): VmPlan => ({
  podId,
  vcpu: 1,
  memoryMib: 128,
  cmdline: "",
  disks: [],
  runDir: join(top, "pods", podId),
  jail: {
    uid: 1,
    cgroups: [{ path: join(top, "groups", podId), files: [] }],
  },
});

test("a process, a directory and a control group remain of a machine each by itself", (t) => {
  const top = mkdtempSync(join(tmpdir(), "podnet-remains-"));
  mkdirSync(join(top, "pods", directory), { recursive: true });
  mkdirSync(join(top, "groups", group), { recursive: true });
  const plans = ids.map((id) => planIn(top, id));
  const found = withRemains(plans, new Map([[process, 1]]));
  t.deepEqual([...found], [process, directory, group]);
});

test("where no directory is there nothing remains, and one that cannot be read may hold all", (t) => {
  const top = mkdtempSync(join(tmpdir(), "podnet-remains-"));
  const plan = planIn(top, nothing);
  t.deepEqual([...withRemains([plan], new Map())], []);
  // (No directory has such a name.)
  const { runDir } = plan;
  const odd = { ...plan, runDir: runDir.replace("/pods/", "/pods/odd\0/") };
  t.deepEqual([...withRemains([odd], new Map())], [nothing]);
});
