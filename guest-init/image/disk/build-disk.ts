import {
  closeSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { PodnetError } from "../../../core/errors.ts";
import { findProgram, run } from "../../../linux/processes/command.ts";
import { BuildCache, keyOf, place, sha256File } from "../cache.ts";
import { findPackages, ownPackages, packageRecord, readJson } from "../debian.ts";
import { step } from "../report.ts";
import { extractVmlinux } from "../vmlinux.ts";
import { bootSectors } from "./mbr.ts";

const suite = "bookworm";
const diskMib = 1024;

/** A disk that can be built: below build/ and build/cache/, in this directory. */
export interface DiskKind {
  readonly directory: string;
  /** Word for make-tree. */
  readonly tree: "agent" | "cloud";
  /** Its inputs that are likely to change: a new version of one makes a new tree. */
  readonly watched: readonly string[];
  /** The agent that it has as a service. */
  readonly agent?: string;
}

const watched = ["systemd", "base-files", "libc6"] as const;
export const agentDisk = (agent: string): DiskKind => ({
  directory: "image-debian",
  tree: "agent",
  watched,
  agent,
});
/** Like Debian's cloud images: netplan, cloud-init, and no agent. */
export const cloudDisk: DiskKind = {
  directory: "image-cloud",
  tree: "cloud",
  watched: [...watched, "cloud-init", "netplan.io"],
};

const outputs = ["disk.raw", "vmlinux", "initrd.img"] as const;

/**
 * Builds a Debian: disk.raw, which boots by itself, and its kernel and initrd for those who want to
 * hand them to QEMU. With unchanged inputs it only looks. Throws `PREFLIGHT_FAILED` when
 * debootstrap is not installed.
 */
export async function buildDebianDisk(top: string, kind: DiskKind): Promise<void> {
  const { directory, agent } = kind;
  const image = path.join(top, "build", directory);
  mkdirSync(image, { recursive: true });
  const packages = await findPackages(ownPackages, "linux-image-cloud-amd64", kind.watched);
  const treeKey = keyOf(
    kind.tree,
    sha256File(path.join(import.meta.dirname, "make-tree")),
    ...packages.map(({ sha256 }) => sha256),
  );
  const agentHash = agent === undefined ? "none" : sha256File(agent);
  const key = keyOf(treeKey, agentHash, ...recipe(import.meta.dirname), ...recipe(service));
  if (isCurrent(image, key)) {
    console.log(`  Debian image is current: agent ${agentHash.slice(0, 12)}`);
    return;
  }
  const cache = new BuildCache(path.join(top, "build/cache", directory));
  const archive = await cache.file("tree.tar", treeKey, (to) =>
    step("Debian: packages", () => makeTree(top, kind, to)),
  );
  await step("Debian: disk", () => makeDisk(image, archive, agent));
  const manifest = {
    key,
    packages: packages.map(packageRecord),
    agent: { sha256: agentHash },
    outputs: Object.fromEntries(
      outputs.map((name) => [name, { bytes: statSync(path.join(image, name)).size }]),
    ),
  };
  place(path.join(image, "manifest.json"), (temporary) =>
    writeWhole(temporary, Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`), "w"),
  );
}

/** Files of an image that runs the agent as a service: they are copied over its root. */
const service = path.resolve(import.meta.dirname, "../service");

/** The builder's own code is an input like the others. */
const recipe = (directory: string): string[] =>
  globSync("**", { cwd: directory, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort()
    .flatMap((file) => [path.relative(directory, file), sha256File(file)]);

function isCurrent(image: string, key: string): boolean {
  const manifest = readJson(path.join(image, "manifest.json")) as
    | { key?: string; outputs?: Record<string, { bytes: number }> }
    | undefined;
  return (
    manifest?.key === key &&
    outputs.every((name) => {
      const file = path.join(image, name);
      return existsSync(file) && statSync(file).size === manifest.outputs?.[name]?.bytes;
    })
  );
}

/**
 * Runs one of the scripts in this directory in its own mount namespace, so that its mounts are
 * invisible elsewhere and end with it.
 */
async function alone(script: string, ...args: readonly string[]): Promise<void> {
  await run(
    [
      "unshare",
      "--mount",
      "--propagation",
      "private",
      path.join(import.meta.dirname, script),
      ...args,
    ],
    { timeoutMs: 900_000 },
  );
}

async function makeTree(top: string, { tree }: DiskKind, archive: string): Promise<void> {
  if (findProgram("debootstrap") === undefined)
    throw new PodnetError("PREFLIGHT_FAILED", "debootstrap is not installed", {
      hint: "Install it: apt-get install debootstrap",
    });
  // The mirror this machine's own packages come from.
  const { stdout } = await run(["apt-get", "indextargets", "--format", "$(RELEASE) $(SITE)"]);
  const mirror = stdout
    .split("\n")
    .find((line) => line.startsWith(`${suite} `))
    ?.split(" ")[1];
  if (mirror === undefined)
    throw new PodnetError("PREFLIGHT_FAILED", `No package source has Debian's ${suite}`, {
      hint: "Add one to /etc/apt/sources.list, and run apt-get update",
    });
  const work = mkdtempSync(path.join(path.dirname(archive), "work-"));
  try {
    const packages = path.join(top, "build/debs/archives");
    await alone("make-tree", tree, suite, mirror, packages, path.join(work, "tree.tar"));
    // 300 MB each, and of no use any more.
    for (const old of globSync("tree-*.tar", { cwd: path.dirname(archive) }))
      rmSync(path.join(path.dirname(archive), old));
    renameSync(path.join(work, "tree.tar"), archive);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function makeDisk(image: string, archive: string, agent: string | undefined): Promise<void> {
  const work = mkdtempSync(path.join(image, "work-"));
  const made = (name: string): string => path.join(work, name);
  try {
    const withAgent = agent === undefined ? [] : [agent, service];
    await alone("make-disk", archive, work, String(diskMib), ...withAgent);
    const { size } = statSync(made("disk.raw"));
    const sectors = bootSectors(
      readFileSync(made("boot.img")),
      readFileSync(made("core.img")),
      size,
    );
    writeWhole(made("disk.raw"), sectors, "r+");
    await extractVmlinux(made("vmlinuz"), made("vmlinux"));
    for (const name of outputs) renameSync(made(name), path.join(image, name));
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Writes from a file's beginning. */
function writeWhole(file: string, bytes: Buffer, flags: "w" | "r+"): void {
  const fd = openSync(file, flags);
  try {
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at, at);
  } finally {
    closeSync(fd);
  }
}
