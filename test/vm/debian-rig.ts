import { constants, copyFileSync, existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ExecutionContext } from "ava";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

const image = resolve(import.meta.dirname, "../../build/image-debian");

/** A file of `scripts/build-image --debian`. */
export function debianFile(name: "vmlinux" | "initrd.img" | "disk.raw"): string {
  const file = join(image, name);
  if (existsSync(file)) return file;
  throw new Error(`There is no ${file}: run scripts/build-image --debian`);
}

/** How long a boot may take, milliseconds: on two processors that are busy with other tests. */
export const bootMs = 240_000;

/**
 * systemd takes its seconds to come up and to go down, more under software emulation on a loaded
 * host.
 */
export const timeouts = "[timeouts]\ncreate_s = 240\nready_s = 200\nstop_s = 60\n";

/** A dual-stack network, the kind these pods are on. */
const dual = { name: "dual", subnets: [{ cidr: "10.20.0.0/24" }, { cidr: "fd00:20::/64" }] };

/** What no test here needs, and takes systemd up to a second each under software emulation. */
const spared = [
  ...["configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop"].map(
    (module) => `modprobe@${module}.service`,
  ),
  ...["dev-hugepages", "dev-mqueue", "sys-kernel-debug", "sys-kernel-tracing"].map(
    (what) => `${what}.mount`,
  ),
  ...["fsck-root", "journal-flush", "logind", "random-seed", "update-utmp", "user-sessions"].map(
    (what) => `systemd-${what}.service`,
  ),
  ...["e2scrub_all", "fstrim"].map((what) => `${what}.timer`),
  "kmod-static-nodes.service",
  "getty.target",
];

/** Its kernel need not guard itself against Spectre: a boot takes an eighth less without. */
const unguarded = "mitigations=off";

/**
 * A rig with one pod, `deb`, of the Debian image; it writes to a copy of its image, whose path is
 * `disk`.
 */
export async function openDebianRig(): Promise<Rig & { readonly disk: string }> {
  await using stack = new AsyncDisposableStack();
  const rig = stack.use(await openRig(`factory = "cold"\n${timeouts}`));
  const disk = join(rig.directory, "disk.raw");
  copyFileSync(debianFile("disk.raw"), disk, constants.COPYFILE_FICLONE);
  await rig.client.networks.create({ spec: dual });
  const boot = {
    kernel: debianFile("vmlinux"),
    initrd: debianFile("initrd.img"),
    cmdline: ["root=/dev/vda1 ro", unguarded, ...spared.map((unit) => `systemd.mask=${unit}`)].join(
      " ",
    ),
    disks: [{ path: disk, format: "raw", writeThrough: true }],
  };
  const interfaces = [{ network: "dual" }];
  await rig.client.pods.create({
    spec: { name: "deb", boot, interfaces, resources: { memoryMib: 512 } },
  });
  const held = stack.move();
  return Object.assign(rig, { disk, [Symbol.asyncDispose]: () => held.disposeAsync() });
}

/**
 * Runs a script in `deb`; its output, without the last line's end. Fails the test unless it ends
 * well.
 */
export async function shell(t: ExecutionContext, rig: Rig, script: string): Promise<string> {
  const { output, code } = await execIn(rig.client, "deb", "sh", "-c", `exec 2>&1; ${script}`);
  t.is(code, 0, `${script}: ${output}`);
  return output.trimEnd();
}

/**
 * What a script prints in `deb` once it prints something and ends well: its agent may be away
 * meanwhile.
 */
export async function eventually(rig: Rig, script: string): Promise<string> {
  let last = "";
  for (let attempt = 1; attempt <= 240; attempt++) {
    const { output, code } = await execIn(rig.client, "deb", "sh", "-c", script).catch(
      (thrown: unknown) => ({ output: String(thrown), code: -1 }),
    );
    last = output.trimEnd();
    if (code === 0 && last !== "") return last;
    await delay(500);
  }
  throw new Error(`${script} in the pod: ${last}`);
}

/** Whether the file system in the disk's first partition was unmounted, by ext4's superblock. */
export function isClean(disk: string): boolean {
  const superblock = readFileSync(disk).subarray(2 ** 20 + 1024, 2 ** 20 + 2048);
  const [state, incompatible] = [superblock.readUInt16LE(0x3a), superblock.readUInt32LE(0x60)];
  // 1: "cleanly unmounted". 4: "needs recovery".
  return state === 1 && (incompatible & 4) === 0;
}
