import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/command.ts";
import { sha256File } from "./cache.ts";

/** A Debian package as the package lists describe it. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly sha256: string;
  readonly size: number;
}

const field = (record: string, name: string): string =>
  new RegExp(`^${name}: (.*)$`, "m").exec(record)?.[1] ?? "";

async function show(name: string): Promise<DebianPackage> {
  const { stdout } = await run(["apt-cache", "--no-all-versions", "show", name]);
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
async function newestKernel(meta: string): Promise<DebianPackage> {
  const { stdout } = await run(["apt-cache", "depends", meta]);
  const name = /Depends: (linux-image-[0-9][^\s]*)/.exec(stdout)?.[1];
  if (name === undefined)
    throw new PodnetError("PREFLIGHT_FAILED", `Package "${meta}" names no kernel`);
  return await show(name);
}

/** Looks packages up; a machine whose lists were never fetched gets them once. */
export async function findPackages(
  meta: string,
  names: readonly string[],
): Promise<DebianPackage[]> {
  const find = (): Promise<DebianPackage[]> =>
    Promise.all([newestKernel(meta), ...names.map((name) => show(name))]);
  try {
    return await find();
  } catch {
    try {
      await run(["apt-get", "update", "-qq"], { timeoutMs: 300_000 });
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

/** Path of the package's file in `directory`, downloaded unless it is there, its hash checked. Installs nothing. */
export async function download(wanted: DebianPackage, directory: string): Promise<string> {
  mkdirSync(directory, { recursive: true });
  const epochless = wanted.version.replaceAll(":", "%3a");
  const file = path.join(directory, `${wanted.name}_${epochless}_amd64.deb`);
  if (existsSync(file) && sha256File(file) === wanted.sha256) return file;
  rmSync(file, { force: true });
  const command = 'cd "$1" && exec apt-get -qq -o APT::Sandbox::User=root download "$2=$3"';
  try {
    await run(["sh", "-c", command, "download", directory, wanted.name, wanted.version], {
      timeoutMs: 600_000,
    });
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
