import { existsSync, readdirSync, statSync, unlinkSync, writeFileSync } from "node:fs";
import { chmod, mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { PodnetError } from "../../core/errors.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

/** No pod of the files that share the rig. */
const subject = "layered";

let rig: Rig;
let image: string;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  image = busyboxImage(rig.directory, "layered");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const spec = (name = subject) => ({
  name,
  boot: {
    cmdline: "podnet.root=vda",
    disks: [{ path: image, readOnly: true }],
    layer: "persistent",
    layerMib: 64,
  },
});

async function shell(t: ExecutionContext, script: string, name = subject): Promise<string> {
  const { output, code } = await execIn(rig.client, name, "sh", "-c", `exec 2>&1; ${script}`);
  t.is(code, 0, `${script}: ${output}`);
  return output.trimEnd();
}

/** A share is mounted in the root that a pod has, not in the initramfs. */
async function sharedFile() {
  const hostPath = await mkdtemp("/tmp/podnet-layered-");
  await chmod(hostPath, 0o755);
  await writeFile(join(hostPath, "file"), "of the host\n");
  return { hostPath, path: "/shared" };
}

const layerOf = async (): Promise<string> => {
  const { pod } = await rig.client.pods.get({ idOrName: subject });
  return join(rig.daemon.stateDir, "disks", pod?.id ?? "", "layer.raw");
};
const own = (): string[] =>
  readdirSync(join(rig.daemon.stateDir, "disks"), { recursive: true }) as string[];

const removeLater = (t: ExecutionContext): void =>
  t.teardown(async () => {
    for (const idOrName of [subject, "other"])
      await rig.client.pods.delete({ idOrName, force: true }).catch(() => {});
  });

test.serial("a persistent layer keeps what the pod wrote until the pod is deleted", async (t) => {
  removeLater(t);
  const before = await rig.inventory();
  const { pod } = await rig.client.pods.create({ spec: spec() });
  t.is(pod?.spec?.boot?.layer, "persistent");
  await rig.client.pods.create({ spec: { ...spec("other"), shares: [await sharedFile()] } });
  t.is(await shell(t, "cat /shared/file", "other"), "of the host");
  await shell(t, "rm /bin/plain; mv /srv /moved; echo one > /etc/kept; echo x > /bin/new");
  t.regex(await shell(t, "cat /proc/mounts"), /^podnet \/ overlay rw/m);
  const file = await layerOf();
  t.is(statSync(file).size, 64 << 20);
  t.true(statSync(file).blocks * 512 < 8 << 20, "the file takes room as it is written to");
  t.is(statSync(file).mode & 0o777, 0o600);

  await rig.client.pods.stop({ idOrName: subject });
  await rig.client.pods.start({ idOrName: subject });
  const kept = "cat /etc/kept /bin/new; ls -d /bin/plain /srv /moved || true";
  const found = await shell(t, kept);
  t.regex(found, /^one\nx\n/);
  t.regex(found, /\/bin\/plain: No such file/);
  t.regex(found, /\/srv: No such file/);
  t.regex(found, /^\/moved$/m);
  t.is(
    await shell(t, "cat /bin/plain; ls /etc/kept || true", "other").then(firstLine),
    "no program",
  );

  // As after a loss of power: the file system is not left clean.
  await shell(t, "echo two > /etc/kept; sync; echo lost > /etc/lost");
  await rig.client.pods.stop({ idOrName: subject, force: true });
  await rig.restart("kill");
  await rig.client.pods.start({ idOrName: subject });
  t.is(await shell(t, "cat /etc/kept"), "two");

  // It is as large as was asked for, and the pod lives on when it is full.
  t.regex(await shell(t, "dd if=/dev/zero of=/fill bs=1M count=128 || true"), /No space left/);
  t.is(await shell(t, "rm /fill; sync; echo three > /etc/kept; cat /etc/kept"), "three");

  await rig.client.pods.delete({ idOrName: subject });
  t.false(existsSync(file));
  await rig.client.pods.delete({ idOrName: "other" });
  t.deepEqual(own(), []);
  t.deepEqual(await rig.changes(before), []);
});

const firstLine = (text: string): string => text.split("\n", 1)[0] ?? "";

test.serial("a pod whose layer is gone or damaged does not start without it", async (t) => {
  removeLater(t);
  const before = await rig.inventory();
  await rig.client.pods.create({ spec: spec() });
  await rig.client.pods.stop({ idOrName: subject });
  const file = await layerOf();
  unlinkSync(file);
  t.like(await t.throwsAsync<PodnetError>(rig.client.pods.start({ idOrName: subject })), {
    code: "IMAGE_MISSING",
    step: "vm.start",
  });
  writeFileSync(file, Buffer.alloc(64 << 20));
  const error = await t.throwsAsync<PodnetError>(rig.client.pods.start({ idOrName: subject }));
  t.is(error?.code, "QEMU_EXITED");
  t.regex(`${error?.details["console"]}`, /"vda" cannot be the root, with layer "vdb"/);
  await rig.client.pods.delete({ idOrName: subject });
  t.deepEqual(own(), []);
  t.deepEqual(await rig.changes(before), []);
});
