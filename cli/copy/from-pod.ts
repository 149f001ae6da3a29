import {
  closeSync,
  constants,
  fchmodSync,
  lstatSync,
  openSync,
  statSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import type { Output } from "../io.ts";
import { write } from "../terminal.ts";
import { usage } from "../usage.ts";
import { type Found, type Landing, landingOf } from "./endpoint.ts";
import {
  type Guest,
  type GuestPath,
  lookInGuest,
  mustRun,
  nothingThere,
  withoutTar,
} from "./in-guest.ts";
import { onFiles, Staging } from "./staging.ts";
import { Unpacking } from "./unpacking.ts";

export interface FromPod {
  readonly source: string;
  /** A path here, or where an archive's bytes go. */
  readonly target: string | Output;
  readonly followLinks: boolean;
  /** Whether links are made that lead out of what is copied. */
  readonly outsideLinks: boolean;
  /** Bytes that may come. */
  readonly limit: number;
  /** Notified of what is not copied: devices, and links that lead out. */
  readonly leftOut: (what: string, why: string) => void;
}

/** Bytes that a copy out of a guest may have unless it is asked otherwise. */
export const defaultLimit = 16 * 1024 ** 3;

/** Copies files out of a guest. They are the caller's; set-user-id bits are not kept. */
export async function copyFromPod(guest: Guest, wanted: FromPod): Promise<void> {
  const { source, target, followLinks, outsideLinks, leftOut } = wanted;
  const bounded = withLimit(wanted.limit);
  const there = await lookInGuest(guest, source, "/");
  const found = followLinks ? there.leadsTo : there.itself;
  if (found === "absent" || (followLinks && found === "link"))
    throw nothingThere(source, "in the pod");
  if (typeof target !== "string") {
    if (!there.hasTar) throw withoutTar("an archive");
    return mustRun(guest, {
      args: packThere(source, isContents(source, found), followLinks),
      output: bounded((data) => write(target, data)),
    });
  }
  if (found === "link" && !outsideLinks) throw isLink(source);
  const landing = landingOf(
    { path: source, isDirectory: found === "directory" },
    { path: target, found: fileHere(target), parent: foundHere(path.dirname(bare(target))) },
  );
  if (!there.hasTar) return copyFile(guest, source, there, landing, bounded);
  const contents = isContents(source, found);
  using unpacking = new Unpacking({
    directory: landing.directory,
    from: contents ? "." : path.posix.basename(path.posix.resolve(source)),
    to: landing.name ?? ".",
    kind: found,
    outsideLinks,
    leftOut,
  });
  await mustRun(guest, {
    args: packThere(source, contents, followLinks),
    output: bounded(async (data) => unpacking.take(data)),
  });
  unpacking.end();
}

type Take = (data: Uint8Array) => Promise<void>;

/** Ends a copy that exceeds a number of bytes. */
const withLimit =
  (limit: number) =>
  (take: Take): Take => {
    let taken = 0;
    return async (data) => {
      taken += data.length;
      if (taken > limit)
        throw new PodnetError("LIMIT_REACHED", `The guest sends more than ${limit} bytes`, {
          hint: "Nothing was kept; copy less, or raise --limit",
        });
      await take(data);
    };
  };

const isLink = (source: string): Error =>
  usage(
    `"${source}" is a link`,
    "Copy what it leads to with -L, or make the link here with --outside-links",
    "source",
  );

/** As `foundHere`, for a file to be replaced. Throws for devices and the like. */
function fileHere(target: string): Found {
  const found = foundHere(target);
  if (found !== "other") return found;
  throw usage(`"${target}" is neither file nor directory`, "Name another path", "destination");
}

const bare = (text: string): string => text.replace(/\/+\.?$/, "") || "/";
const isContents = (source: string, found: Found): boolean =>
  found === "directory" && (source.endsWith("/.") || bare(source) === "/");

function packThere(source: string, contents: boolean, followLinks: boolean): string[] {
  const whole = path.posix.resolve(source);
  const [directory, name] = contents
    ? [whole, "."]
    : [path.posix.dirname(whole), path.posix.basename(whole)];
  // Keeps tar from taking a name that begins with a dash for an option.
  const entry = name.startsWith("-") ? `./${name}` : name;
  return ["tar", followLinks ? "-chf" : "-cf", "-", "-C", directory, entry];
}

function foundHere(target: string): Found {
  try {
    const stats = statSync(target);
    return stats.isDirectory() ? "directory" : stats.isFile() ? "file" : "other";
  } catch {
    try {
      lstatSync(target);
      return "link";
    } catch {
      return "absent";
    }
  }
}

/** A single file needs no tar; its mode and time are then not transferred. */
async function copyFile(
  guest: Guest,
  source: string,
  { leadsTo }: GuestPath,
  { directory, name }: Landing,
  bounded: (take: Take) => Take,
): Promise<void> {
  if (leadsTo !== "file" || name === undefined) throw withoutTar("anything but a file");
  using staging = new Staging(directory);
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const what = `Cannot write to "${directory}"`;
  const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const fd = onFiles(what, () => openSync(path.join(staging.root, name), flags, 0o600));
  try {
    await mustRun(guest, {
      args: ["cat", "--", source],
      output: bounded(async (data) =>
        onFiles(what, () => {
          for (let at = 0; at < data.length; ) at += writeSync(fd, data, at);
        }),
      ),
    });
    onFiles(what, () => fchmodSync(fd, 0o666 & ~process.umask()));
  } finally {
    closeSync(fd);
  }
  staging.moveInto(directory);
}
