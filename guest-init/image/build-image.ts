import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/processes/command.ts";
import { BuildCache, keyOf, place, sha256, sha256File } from "./cache.ts";
import { cpioArchive } from "./cpio.ts";
import {
  type Architecture,
  type DebianPackage,
  download,
  findPackages,
  foreignPackages,
  ownPackages,
  type PackageSource,
  packageRecord,
  readJson,
  unpack,
} from "./debian.ts";
import { type KernelModule, dependencies, loadOrder, moduleName } from "./kernel-modules.ts";
import { kib, step } from "./report.ts";
import { type ModuleLists, rootEntries } from "./root-files.ts";
import { extractVmlinux } from "./vmlinux.ts";

/** The differences between the architectures of guests. */
interface Target {
  /** Below build/. */
  readonly directory: string;
  readonly outputs: readonly [kernel: string, initramfs: string, ...more: string[]];
  /** Writes the kernel the way QEMU starts it. */
  kernel(packaged: string, to: string): Promise<void> | void;
}

/**
 * The kernel as Debian packs it, a bzImage: machine types before pc-i440fx-4.0, which runv uses,
 * start no other.
 */
const packagedKernel = "vmlinuz";

const targets: Readonly<Record<Architecture, Target>> = {
  amd64: {
    directory: "image",
    outputs: ["vmlinux", "initramfs.gz", packagedKernel],
    kernel: extractVmlinux,
  },
  arm64: { directory: "image-arm64", outputs: ["Image", "initramfs.gz"], kernel: copyFileSync },
};

/**
 * Needed for READY, for a root on a disk, by pods (NICs, disks, random numbers), and for shares.
 * Their dependencies are found by themselves.
 */
const wantedModules = {
  console: ["virtio_pci", "virtio_console"],
  root: ["virtio_blk", "squashfs", "overlay", "ext4"],
  network: ["virtio_net", "virtio_blk", "virtio_rng"],
  shares: ["virtiofs"],
} as const;

/**
 * Builds build/image/{vmlinux,vmlinuz,initramfs.gz,manifest.json}, or
 * build/image-arm64/{Image,initramfs.gz,manifest.json}; with unchanged inputs it only looks.
 */
export async function buildImage(
  top: string,
  agent: string,
  architecture: Architecture = "amd64",
): Promise<void> {
  const build = path.join(top, "build");
  const target = targets[architecture];
  const image = path.join(build, target.directory);
  mkdirSync(image, { recursive: true });
  const source =
    architecture === "amd64"
      ? ownPackages
      : foreignPackages(architecture, path.join(build, "apt", architecture));
  const { kernel, busybox } = await findParts(source);
  const key = keyOf(kernel.sha256, busybox.sha256, sha256File(agent), recipe());
  if (isCurrent(image, key, target.outputs)) {
    console.log(`  image is current: ${kernel.name}, agent ${sha256File(agent).slice(0, 12)}`);
    return;
  }
  const cache = new BuildCache(path.join(build, "cache/image"));
  const debs = path.join(build, "debs");
  const trees = await fetch(cache, source, debs, { kernel, busybox });
  const release = kernel.name.replace("linux-image-", "");
  const [kernelName] = target.outputs;
  const packaged = path.join(trees.kernel, `boot/vmlinuz-${release}`);
  const extracted = await cache.file(kernelName, keyOf(kernel.sha256), (to) =>
    step(`kernel: extract ${kernelName}`, () => target.kernel(packaged, to)),
  );
  place(path.join(image, kernelName), (temporary) => copyFileSync(extracted, temporary));
  if (target.outputs.includes(packagedKernel))
    place(path.join(image, packagedKernel), (temporary) => copyFileSync(packaged, temporary));
  const modules = findModules(path.join(trees.kernel, "lib/modules", release));
  await step("initramfs", () => writeInitramfs(image, agent, trees, release, modules));
  writeManifest(image, key, target.outputs, { kernel, busybox }, agent, modules);
}

/** The builder's own code is an input like the others. */
const recipe = (): string =>
  globSync("*.ts", { cwd: import.meta.dirname })
    .sort()
    .map((file) => sha256File(path.join(import.meta.dirname, file)))
    .join();

function isCurrent(image: string, key: string, outputs: Target["outputs"]): boolean {
  const manifest = readJson(path.join(image, "manifest.json")) as Partial<Manifest> | undefined;
  return (
    manifest?.key === key &&
    outputs.every((name) => {
      const file = path.join(image, name);
      return existsSync(file) && statSync(file).size === manifest.outputs?.[name]?.bytes;
    })
  );
}

/** The packages an image is made of. */
interface Parts {
  readonly kernel: DebianPackage;
  readonly busybox: DebianPackage;
}

async function findParts(source: PackageSource): Promise<Parts> {
  const meta = `linux-image-cloud-${source.architecture}`;
  const [kernel, busybox] = await findPackages(source, meta, ["busybox-static"]);
  return { kernel, busybox } as Parts;
}

interface Trees {
  readonly kernel: string;
  readonly busybox: string;
  /** A busybox that runs on the build host: it prints the names of its applets. */
  readonly runnable: string;
}

async function fetch(
  cache: BuildCache,
  source: PackageSource,
  debs: string,
  { kernel, busybox }: Parts,
): Promise<Trees> {
  const tree = (from: PackageSource, wanted: DebianPackage): Promise<string> =>
    cache.file(wanted.name, keyOf(wanted.sha256), async (to) => {
      const deb = await step(`${wanted.name}: download`, () => download(from, wanted, debs));
      await step(`${wanted.name}: unpack`, () => unpack(deb, to));
    });
  const runnable = source === ownPackages ? busybox : (await findParts(ownPackages)).busybox;
  return {
    kernel: await tree(source, kernel),
    busybox: await tree(source, busybox),
    runnable: await tree(ownPackages, runnable),
  };
}

function findModules(directory: string): ModuleLists {
  const all = new Map<string, KernelModule>();
  for (const file of globSync("kernel/**/*.ko", { cwd: directory })) {
    const name = moduleName(file);
    all.set(name, { name, file, needs: dependencies(readFileSync(path.join(directory, file))) });
  }
  const builtin = new Set(
    readFileSync(path.join(directory, "modules.builtin"), "utf8").split("\n").map(moduleName),
  );
  const console = loadOrder(wantedModules.console, all, builtin);
  return {
    console,
    root: loadOrder(wantedModules.root, all, builtin, console),
    network: loadOrder(wantedModules.network, all, builtin, console),
    shares: loadOrder(wantedModules.shares, all, builtin, console),
  };
}

async function writeInitramfs(
  image: string,
  agent: string,
  trees: Trees,
  release: string,
  modules: ModuleLists,
): Promise<void> {
  const busybox = path.join(trees.busybox, "bin/busybox");
  const { stdout } = await run([path.join(trees.runnable, "bin/busybox"), "--list-full"]);
  const archive = cpioArchive(
    rootEntries({
      agent,
      busybox,
      applets: stdout.split("\n").filter((line) => line !== ""),
      moduleRoot: path.join(trees.kernel, "lib/modules", release),
      modules,
    }),
  );
  place(path.join(image, "initramfs.gz"), (temporary) =>
    writeFileSync(temporary, gzipSync(archive, { level: 9 })),
  );
}

interface Manifest {
  readonly key: string;
  readonly packages: readonly Record<string, string>[];
  readonly agent: { readonly sha256: string; readonly bytes: number };
  readonly modules: Readonly<Record<keyof ModuleLists, readonly string[]>>;
  readonly outputs: Readonly<Record<string, { readonly sha256: string; readonly bytes: number }>>;
}

const fileRecord = (file: string): { sha256: string; bytes: number } => ({
  sha256: sha256(readFileSync(file)),
  bytes: statSync(file).size,
});

function writeManifest(
  image: string,
  key: string,
  outputs: Target["outputs"],
  packages: Parts,
  agent: string,
  modules: ModuleLists,
): void {
  const manifest: Manifest = {
    key,
    packages: [packageRecord(packages.kernel), packageRecord(packages.busybox)],
    agent: fileRecord(agent),
    modules: {
      console: modules.console.map(({ name }) => name),
      root: modules.root.map(({ name }) => name),
      network: modules.network.map(({ name }) => name),
      shares: modules.shares.map(({ name }) => name),
    },
    outputs: Object.fromEntries(outputs.map((name) => [name, fileRecord(path.join(image, name))])),
  };
  place(path.join(image, "manifest.json"), (temporary) =>
    writeFileSync(temporary, `${JSON.stringify(manifest, null, 2)}\n`),
  );
  for (const [name, { bytes }] of Object.entries(manifest.outputs))
    console.log(`  ${name}: ${kib(bytes)}`);
}

/** Turns what a full disk throws into an error with advice. */
export function spaceError(thrown: unknown): unknown {
  const code = (thrown as { code?: unknown } | null)?.code;
  return code === "ENOSPC" || code === "EROFS"
    ? new PodnetError("PREFLIGHT_FAILED", "The image cannot be written: no space below build/", {
        hint: "Make room for 500 MB, or remove build/cache",
        cause: thrown,
      })
    : thrown;
}
