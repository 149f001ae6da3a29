import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";
import { eventually } from "./standin-rig.ts";

let rig: Rig;
let image: string;
let disks: string;

const mount = (...argv: readonly string[]) => execFileSync("mount", ["-n", ...argv]);

test.serial.before(async () => {
  disks = mkdtempSync(join(tmpdir(), "podnet-disks-"));
  mount("-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", disks);
  rig = await openRig(`factory = "cold"\nquarantine_s = 0\ndisks_dir = "${disks}"\n`);
  image = join(rig.directory, "large.raw");
  writeFileSync(image, "");
  truncateSync(image, 64 << 20);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  execFileSync("umount", ["-n", disks]);
});

/** Starts to write so many MiB to a disk; it ends when all is on the disk. */
const write = (disk: string, mib: number) =>
  execIn(
    rig.client,
    "full",
    "sh",
    "-c",
    `dd if=/dev/zero of=/dev/${disk} bs=1M count=${mib} conv=fsync 2>&1`,
  );

async function paused(t: ExecutionContext, why: RegExp): Promise<void> {
  await eventually(rig.client, ({ pod, text }) => pod?.name === "full" && why.test(text), 0n);
  const { pod } = await rig.client.pods.get({ idOrName: "full" });
  t.is(pod?.state, PodState.PAUSED);
  t.regex(pod?.reason ?? "", why);
}

test.serial(
  "a guest that fills its disk is paused with the reason, and goes on when there is room and it is resumed",
  async (t) => {
    t.timeout(30_000);
    const boot = { disks: [{ path: image }, { path: image, maxMib: 4 }] };
    const { pod } = await rig.client.pods.create({ spec: { name: "full", boot } });
    const own = (i: number) => statSync(join(disks, pod?.id ?? "", `${i}.qcow2`)).blocks * 512;

    const first = write("vda", 12);
    await paused(t, /disk 0 is full: make room in \S+ and resume the pod/);
    mount("-o", "remount,size=64m", disks);
    await rig.client.pods.resume({ idOrName: "full" });
    const { output, code } = await first;
    t.is(code, 0, output);
    t.true(own(0) >= 12 << 20);

    const second = write("vdb", 12);
    await paused(t, /disk 1 is full: its pod has written the 4 MiB that it may/);
    t.true(own(1) <= 4 << 20, `${own(1)} bytes`);
    const cut = t.throwsAsync(second);
    await rig.client.pods.delete({ idOrName: "full", force: true });
    await cut;
    t.deepEqual(readdirSync(disks), ["lock.db"]);
  },
);
