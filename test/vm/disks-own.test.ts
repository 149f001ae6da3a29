import { execFileSync } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { qcow2Of } from "../fixtures/disk-image.ts";
import { execIn, openRig } from "./daemon-rig.ts";
import { debianFile } from "./debian-rig.ts";
import { debianGuest } from "./hypervisor-rig.ts";

const mib = 2 ** 20;
/** Where the partition begins, as `scripts/build-image --debian` lays its disk out. */
const partitionAt = mib;
const partitionBytes = 31 * mib;

const grubConfig = `linux /vmlinuz console=ttyS0 quiet panic=1 no_timer_check noreplace-smp cryptomgr.notests
initrd /initrd
boot
`;

/**
 * A disk that boots by GRUB into podnet's own initramfs: boots in a fraction of what Debian takes.
 */
function ownDisk(directory: string): Buffer {
  const debian = debianFile("disk.raw");
  const tree = join(directory, "tree");
  mkdirSync(join(tree, "boot/grub"), { recursive: true });
  writeFileSync(join(tree, "boot/grub/grub.cfg"), grubConfig);
  copyFileSync(debianGuest.initrd, join(tree, "initrd"));
  const inDebian = (command: string): string =>
    execFileSync("debugfs", ["-R", command, `${debian}?offset=${partitionAt}`], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
  const [kernel = ""] = /vmlinuz-[^/\s]+/.exec(inDebian("ls -p /boot")) ?? [];
  inDebian(`dump /boot/${kernel} ${join(tree, "vmlinuz")}`);
  const partition = join(directory, "partition");
  execFileSync("mke2fs", ["-q", "-t", "ext2", "-d", tree, partition, `${partitionBytes / 1024}k`]);
  // Boot sector and GRUB's image behind it; the one partition is as long as this disk's.
  const head = Buffer.alloc(partitionAt);
  const fd = openSync(debian, "r");
  readSync(fd, head, 0, head.length, 0);
  closeSync(fd);
  head.writeUInt32LE(partitionBytes / 512, 0x1be + 12);
  return Buffer.concat([head, readFileSync(partition)]);
}

// GRUB and a kernel that unpacks itself take their time under software emulation, more on a loaded
// host.
const timeouts = "[timeouts]\ncreate_s = 240\nready_s = 200\n";

test("a disk's own bootloader, kernel and agent make a pod, again after a reset", async (t) => {
  t.timeout(280_000);
  await using rig = await openRig(`factory = "cold"\nquarantine_s = 0\n${timeouts}`);
  const { pods } = rig.client;
  const path = join(rig.directory, "own.qcow2");
  writeFileSync(path, qcow2Of(ownDisk(rig.directory), 64 * mib));
  const boot = { kernel: "none", disks: [{ path, format: "qcow2" }] };
  const { pod } = await pods.create({ spec: { name: "own", boot } });
  const [address = ""] = pod?.interfaces[0]?.addresses ?? [];
  const bare = address.slice(0, address.indexOf("/"));
  await rig.lab.host.ping(bare);
  const shell = (script: string) => execIn(rig.client, "own", "sh", "-c", script);
  const booted = "cat /proc/sys/kernel/random/boot_id";
  const first = await shell(booted);
  t.is(first.code, 0, first.output);
  t.notRegex((await shell("cat /proc/cmdline")).output, /root=/);

  const source = join(rig.directory, "run", "pods", pod?.id ?? "", "witness.sock");
  using monitor = await QmpClient.open(source);
  await monitor.execute("system_reset", {});
  let again = first.output;
  for (let attempt = 1; attempt <= 800 && again === first.output; attempt++) {
    await delay(250);
    const answer = await shell(booted).catch(() => first);
    again = answer.code === 0 ? answer.output : first.output;
  }
  t.not(again, first.output);
  await rig.lab.host.ping(bare);
  await pods.delete({ idOrName: "own" });
  t.deepEqual(await rig.changes(), []);
});
