import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Readable } from "node:stream";
import { gunzipSync } from "node:zlib";
import test from "ava";
import { run } from "../../linux/processes/command.ts";

const build = path.resolve(import.meta.dirname, "../../build");
const image = (name: string): string => path.join(build, "image", name);

interface Manifest {
  readonly packages: readonly {
    readonly name: string;
    readonly version: string;
    readonly sha256: string;
  }[];
  readonly agent: { readonly sha256: string; readonly bytes: number };
  readonly modules: Readonly<Record<"console" | "root" | "network" | "shares", readonly string[]>>;
  readonly outputs: Readonly<Record<string, { readonly sha256: string; readonly bytes: number }>>;
}
const manifest = JSON.parse(readFileSync(image("manifest.json"), "utf8")) as Manifest;
const sha256 = (file: string): string =>
  createHash("sha256").update(readFileSync(file)).digest("hex");

test("the manifest names what is there, by hash", (t) => {
  for (const [name, { sha256: wanted, bytes }] of Object.entries(manifest.outputs)) {
    t.is(sha256(image(name)), wanted, name);
    t.is(statSync(image(name)).size, bytes);
  }
  t.is(sha256(path.join(build, "agent/podnet-guest")), manifest.agent.sha256);
  t.deepEqual(
    manifest.packages.map(({ name }) => name.replace(/[0-9.-]+-cloud/, "-cloud")),
    ["linux-image-cloud-amd64", "busybox-static"],
  );
});

test("the agent is one static executable of at most 1.5 MB that needs nothing else", async (t) => {
  const agent = path.join(build, "agent/podnet-guest");
  const bytes = readFileSync(agent);
  t.true(bytes.length <= 1_500_000, `${bytes.length}`);
  // No program header of type PT_INTERP (3): no loader, no libraries.
  const headers = Number(bytes.readBigUInt64LE(32));
  const types = Array.from({ length: bytes.readUInt16LE(56) }, (_, i) =>
    bytes.readUInt32LE(headers + i * bytes.readUInt16LE(54)),
  );
  t.false(types.includes(3));
  t.false(bytes.includes(path.dirname(build)), "no path of this checkout is in it");
  const { stderr } = await run([agent, "--version"]);
  t.regex(stderr, /^podnet-guest: \d+\.\d+\.\d+\n$/);
  t.regex((await run([agent, "--what"], { okCodes: [2] })).stderr, /usage: podnet-guest/);
});

test("the same packages and agent give the same bytes, elsewhere, whenever and for whomever", async (t) => {
  const top = await mkdtemp(path.join(tmpdir(), "podnet-again-"));
  try {
    await mkdir(path.join(top, "build"));
    await symlink(path.join(build, "debs"), path.join(top, "build/debs"));
    await copyFile(path.join(build, "agent/podnet-guest"), path.join(top, "agent"));
    const builder = path.resolve(import.meta.dirname, "../../guest-init/image/build-image.ts");
    const program = `import { buildImage } from ${JSON.stringify(builder)};
      await buildImage(${JSON.stringify(top)}, ${JSON.stringify(path.join(top, "agent"))});`;
    const node = [process.execPath, "--input-type=module", "-e", program];
    await run(["sh", "-c", 'umask 077; exec "$@"', "sh", ...node], { env: { TZ: "Asia/Tokyo" } });
    const again = readFileSync(path.join(top, "build/image/manifest.json"), "utf8");
    t.deepEqual(JSON.parse(again), manifest);
    for (const [name, { sha256: wanted }] of Object.entries(manifest.outputs))
      t.is(sha256(path.join(top, "build/image", name)), wanted, name);
  } finally {
    await rm(top, { recursive: true, force: true });
  }
});

test("cpio lists the initramfs: the agent, busybox, the modules in their order", async (t) => {
  const directory = await mkdtemp(path.join(tmpdir(), "podnet-cpio-"));
  try {
    const file = path.join(directory, "initramfs");
    writeFileSync(file, gunzipSync(readFileSync(image("initramfs.gz"))));
    const listed = (await run(["sh", "-c", 'cpio -t --quiet < "$1"', "sh", file])).stdout
      .trim()
      .split("\n");
    for (const name of ["init", "bin/busybox", "bin/sh", "sbin/ip", "dev/console", "etc/passwd"])
      t.true(listed.includes(name), name);
    const { console: first, root, network, shares } = manifest.modules;
    const order = new Set([...first, ...root, ...network, ...shares]);
    t.deepEqual(
      listed.filter((name) => name.endsWith(".ko")).toSorted(),
      [...order].map((name) => `lib/modules/${name}.ko`).toSorted(),
    );
    await run([
      "sh",
      "-c",
      'cd "$1" && cpio -id --quiet "lib/*" init < initramfs',
      "sh",
      directory,
    ]);
    t.is(sha256(path.join(directory, "init")), manifest.agent.sha256);
    const list = readFileSync(path.join(directory, "lib/modules/console.list"), "utf8");
    t.is(list, manifest.modules.console.map((name) => `${name}.ko\n`).join(""));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

/**
 * QEMU as runv starts it without KVM, as far as QEMU 7.2 still knows its options; the agent's
 * channel is standard output.
 */
const likeRunv = (kernel: string): ReturnType<typeof spawn> => {
  const words = [
    "-machine pc-i440fx-2.1,accel=tcg,usb=off -cpu core2duo -m 128",
    "-no-user-config -nodefaults -no-hpet -no-reboot -display none",
    "-device virtio-serial-pci,id=virtio-serial0,bus=pci.0,addr=0x2",
    "-chardev stdio,id=charch0,signal=off",
    "-device virtserialport,bus=virtio-serial0.0,nr=1,chardev=charch0,name=sh.hyper.channel.0",
  ].flatMap((line) => line.split(" "));
  const append = "panic=1 no_timer_check iommu=off clocksource=acpi_pm notsc";
  const files = ["-kernel", image(kernel), "-initrd", image("initramfs.gz")];
  return spawn("qemu-system-x86_64", words.concat(files, "-append", append));
};

test("a machine of an old type, as runv makes it, starts the bzImage that is kept, and no vmlinux", async (t) => {
  const refused = likeRunv("vmlinux");
  const said = (async () => {
    let text = "";
    for await (const part of refused.stderr ?? []) text += String(part);
    return text;
  })();
  t.is((await once(refused, "exit"))[0], 1);
  t.regex(
    await said,
    /too old to load a ram disk/,
    "QEMU starts an ELF kernel by PVH, from 4.0 on",
  );
  const started = likeRunv("vmlinuz");
  const exited = once(started, "exit");
  try {
    const ready = (await Promise.race([
      once(started.stdout as Readable, "data"),
      exited.then(() => [Buffer.from("it has ended")]),
    ])) as [Buffer];
    t.deepEqual(ready[0].subarray(0, 8), Buffer.from([0, 0, 0, 8, 0, 0, 0, 8]), "READY");
  } finally {
    started.kill("SIGKILL");
    await exited;
  }
});
