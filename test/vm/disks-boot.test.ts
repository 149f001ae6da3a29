import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { DiskPlan, RunningVm, VmPlan } from "../../hypervisor/driver.ts";
import { lookAtDisk } from "../../hypervisor/disks/image-file.ts";
import { makeOwnFiles, removeOwnFilesOf } from "../../hypervisor/disks/copy-on-write.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { bootDisk, qcow2Of } from "../fixtures/disk-image.ts";
import { never, type Rig, rig } from "./hypervisor-rig.ts";

/** How often a machine has said something on its console, once that is `times`. */
async function heard(vm: RunningVm, words: string, times: number): Promise<number> {
  for (let attempt = 1; attempt <= 300; attempt++) {
    const found = Buffer.from(vm.consoleTail()).toString("latin1").split(words).length - 1;
    if (found >= times) return found;
    await delay(100);
  }
  return -1;
}

/** A plan without a kernel. */
function ofDisk({ plan }: Rig, disks: readonly DiskPlan[]): VmPlan {
  const { kernel, initrd, ...rest } = plan;
  void [kernel, initrd];
  return { ...rest, disks };
}

function over(it: Rig, path: string, format: DiskPlan["format"]): DiskPlan {
  const found = lookAtDisk(path, format);
  if (found.kind !== "disk") throw new Error(found.kind);
  const overlay = {
    path: join(it.directory, "overlays", "one", "0.qcow2"),
    bytes: found.bytes,
    over: found.mark,
  };
  return { path, format, readOnly: false, overlay };
}

const digest = (path: string): string =>
  createHash("sha256").update(readFileSync(path)).digest("hex");

for (const format of ["raw", "qcow2"] as const) {
  test.serial(
    `a machine boots its first disk's own bootloader, again after a reset: ${format}`,
    async (t) => {
      await using it = await rig("deaf");
      const path = join(it.directory, "disk");
      const sectors = bootDisk("podnet boots");
      writeFileSync(path, format === "raw" ? sectors : qcow2Of(sectors, 1 << 26));
      const second = join(it.directory, "second");
      writeFileSync(second, bootDisk("the wrong disk"));
      const before = digest(path);
      const plan = ofDisk(it, [
        over(it, path, format),
        { path: second, format: "raw", readOnly: true },
      ]);
      await makeOwnFiles(plan);
      const vm = await it.driver.start(plan, never);
      t.is(await heard(vm, "podnet boots", 1), 1);
      using observer = await QmpClient.open(vm.socketPath("verify"));
      await observer.execute("system_reset", {});
      t.is(await heard(vm, "podnet boots", 2), 2);
      t.is(await heard(vm, "the wrong disk", 0), 0);
      await vm.stop({ graceMs: 0 });
      t.is(digest(path), before);
      t.false(existsSync(plan.runDir));
    },
  );
}

test.serial("a machine boots a kernel without an initramfs", async (t) => {
  await using it = await rig("chatty");
  const { initrd, ...plan } = it.plan;
  t.truthy(initrd);
  const vm = await it.driver.start(plan, never);
  t.true((await heard(vm, "x", 1)) > 0);
  await vm.stop({ graceMs: 0 });
});

test.serial(
  "an image that some QEMU has open is known before another one writes to it",
  async (t) => {
    await using it = await rig("deaf");
    const path = join(it.directory, "disk");
    writeFileSync(path, Buffer.alloc(1 << 20));
    const use = (): string | undefined => {
      const found = lookAtDisk(path, "raw");
      return found.kind === "disk" ? found.usedBy : found.kind;
    };
    const disk = { path, format: "raw" } as const;
    t.is(use(), undefined);
    const shared = over(it, path, "raw");
    await makeOwnFiles({ disks: [shared] });
    const reader = await it.driver.start({ ...it.plan, disks: [shared] }, never);
    t.is(use(), "reads");
    const other = { ...it.plan, runDir: join(it.directory, "other") };
    const writes = { ...other, disks: [{ ...disk, readOnly: false }] };
    t.like(await t.throwsAsync(it.driver.start(writes, never)), { code: "IMAGE_IN_USE" });
    t.false(existsSync(other.runDir));
    await reader.stop({ graceMs: 0 });
    const writer = await it.driver.start(writes, never);
    t.is(use(), "writes");
    const reads = { ...it.plan, disks: [{ ...disk, readOnly: true }] };
    t.like(await t.throwsAsync(it.driver.start(reads, never)), { code: "IMAGE_IN_USE" });
    await writer.stop({ graceMs: 0 });
    t.is(use(), undefined);
  },
);

test.serial("no room for a pod's own file is reported as such", async (t) => {
  await using it = await rig("deaf");
  const full = join(it.directory, "overlays");
  mkdirSync(full);
  // (The mount is the sandbox's own, and ends with it.)
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=8k", "tmpfs", full]);
  try {
    const path = join(it.directory, "disk");
    writeFileSync(path, Buffer.alloc(1 << 20));
    const plan = { disks: [over(it, path, "raw")] };
    const error = await t.throwsAsync(makeOwnFiles(plan));
    t.like(error, { code: "SYSCALL_FAILED", details: { errno: "ENOSPC" } });
    t.regex((error as { hint?: string } | undefined)?.hint ?? "", /disks_dir is full/);
    await removeOwnFilesOf(plan);
  } finally {
    execFileSync("umount", [full]);
  }
});
