import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/processes/command.ts";
import { sha256File } from "./cache.ts";

export type Architecture = "amd64" | "arm64";

/**
 * Where packages are looked up and downloaded from: the machine's own lists, or lists of another
 * architecture below `directory`, so that the machine's own installation knows nothing of it.
 */
export interface PackageSource {
  readonly architecture: Architecture;
  /** Words for apt-get and apt-cache. */
  readonly options: readonly string[];
}

export const ownPackages: PackageSource = { architecture: "amd64", options: [] };

/** Lists of another architecture, from the machine's own mirrors. */
export function foreignPackages(architecture: Architecture, directory: string): PackageSource {
  const lists = path.join(directory, "lists");
  const cache = path.join(directory, "cache");
  for (const one of [lists, cache]) mkdirSync(path.join(one, "partial"), { recursive: true });
  const settings = [
    `APT::Architecture=${architecture}`,
    `APT::Architectures=${architecture}`,
    `Dir::State::lists=${lists}`,
    `Dir::Cache=${cache}`,
    "Dir::State::status=/dev/null",
    "APT::Sandbox::User=root",
  ];
  return { architecture, options: settings.flatMap((setting) => ["-o", setting]) };
}

/** A Debian package as the package lists describe it. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly sha256: string;
  readonly size: number;
}

/**
 * Where apt keeps no index of its lists, as in containers, each look-up reads them all; several run
 * at once.
 */
const lookUpMs = 180_000;

const field = (record: string, name: string): string =>
  new RegExp(`^${name}: (.*)$`, "m").exec(record)?.[1] ?? "";

async function show(source: PackageSource, name: string): Promise<DebianPackage> {
  const command = ["apt-cache", ...source.options, "--no-all-versions", "show", name] as const;
  const { stdout } = await run(command, { timeoutMs: lookUpMs });
  const found = {
    name: field(stdout, "Package"),
    version: field(stdout, "Version"),
    sha256: field(stdout, "SHA256"),
    size: Number(field(stdout, "Size")),
  };
  if (found.name !== name || found.sha256 === "")
    throw new PodnetError("PREFLIGHT_FAILED", `The package lists do not describe "${name}"`);
  return found;
}

/** Newest real kernel package of a meta package such as linux-image-cloud-amd64. */
async function newestKernel(source: PackageSource, meta: string): Promise<DebianPackage> {
  const command = ["apt-cache", ...source.options, "depends", meta] as const;
  const { stdout } = await run(command, { timeoutMs: lookUpMs });
  const name = /Depends: (linux-image-[0-9][^\s]*)/.exec(stdout)?.[1];
  if (name === undefined)
    throw new PodnetError("PREFLIGHT_FAILED", `Package "${meta}" names no kernel`);
  return await show(source, name);
}

/** Looks packages up; where lists were never fetched they are, once. */
export async function findPackages(
  source: PackageSource,
  meta: string,
  names: readonly string[],
): Promise<DebianPackage[]> {
  const find = (): Promise<DebianPackage[]> =>
    Promise.all([newestKernel(source, meta), ...names.map((name) => show(source, name))]);
  try {
    return await find();
  } catch {
    try {
      await run(["apt-get", ...source.options, "update", "-qq"], { timeoutMs: 300_000 });
      return await find();
    } catch (cause) {
      throw new PodnetError(
        "PREFLIGHT_FAILED",
        "The Debian packages of the image cannot be found",
        {
          hint: "Check the network and the package sources: apt-get update",
          cause,
        },
      );
    }
  }
}

/**
 * Path of the package's file in `directory`, downloaded unless it is there, its hash checked.
 * Installs nothing.
 */
export async function download(
  { architecture, options }: PackageSource,
  wanted: DebianPackage,
  directory: string,
): Promise<string> {
  mkdirSync(directory, { recursive: true });
  const epochless = wanted.version.replaceAll(":", "%3a");
  const file = path.join(directory, `${wanted.name}_${epochless}_${architecture}.deb`);
  if (existsSync(file) && sha256File(file) === wanted.sha256) return file;
  rmSync(file, { force: true });
  const command = 'cd "$1" && shift && exec apt-get -qq -o APT::Sandbox::User=root "$@"';
  const words = [...options, "download", `${wanted.name}=${wanted.version}`];
  try {
    await run(["sh", "-c", command, "download", directory, ...words], { timeoutMs: 600_000 });
  } catch (cause) {
    throw new PodnetError("PREFLIGHT_FAILED", `Package "${wanted.name}" could not be downloaded`, {
      hint: "Check the network, the package sources (apt-get update) and the space left on the disk",
      details: cause instanceof PodnetError ? cause.details : {},
      cause,
    });
  }
  if (!existsSync(file) || sha256File(file) !== wanted.sha256)
    throw new PodnetError(
      "PREFLIGHT_FAILED",
      `The download of "${wanted.name}" is not what the lists promise`,
      {
        hint: "Run apt-get update and try again",
      },
    );
  return file;
}

/** Unpacks a package's files below `to`; its scripts do not run. */
export async function unpack(deb: string, to: string): Promise<void> {
  mkdirSync(to, { recursive: true });
  await run(["dpkg", "-x", deb, to], { timeoutMs: 300_000 });
}

/** The package's record for the manifest. */
export const packageRecord = ({
  name,
  version,
  sha256,
}: DebianPackage): Record<string, string> => ({
  name,
  version,
  sha256,
});

export const readJson = (file: string): unknown => {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as unknown;
  } catch {
    return undefined;
  }
};
