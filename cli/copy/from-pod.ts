import { createWriteStream, lstatSync, statSync } from "node:fs";
import path from "node:path";
import { finished } from "node:stream/promises";
import type { Output } from "../io.ts";
import { write } from "../terminal.ts";
import { type Found, landingOf } from "./endpoint.ts";
import {
  type Guest,
  type GuestPath,
  lookInGuest,
  mustRun,
  nothingThere,
  withoutTar,
} from "./in-guest.ts";
import { Unpacking } from "./unpacking.ts";

export interface FromPod {
  readonly source: string;
  /** A path here, or where an archive's bytes go. */
  readonly target: string | Output;
  readonly followLinks: boolean;
  /** Told of what cannot be copied: devices and the like. */
  readonly leftOut: (what: string) => void;
}

/** Copies files out of a guest. They are the caller's; set-user-id bits are not kept. */
export async function copyFromPod(
  guest: Guest,
  { source, target, followLinks, leftOut }: FromPod,
): Promise<void> {
  const there = await lookInGuest(guest, source, "/");
  const found = followLinks ? there.leadsTo : there.itself;
  if (found === "absent" || (followLinks && found === "link")) throw nothingThere(source);
  if (typeof target !== "string") {
    if (!there.hasTar) throw withoutTar("an archive");
    return mustRun(guest, {
      args: packThere(source, isContents(source, found), followLinks),
      output: (data) => write(target, data),
    });
  }
  const landing = landingOf(
    { path: source, isDirectory: found === "directory" },
    { path: target, found: foundHere(target), parent: foundHere(path.dirname(bare(target))) },
  );
  if (!there.hasTar) return copyFile(guest, source, there, landing);
  const contents = isContents(source, found);
  const unpacking = new Unpacking({
    directory: landing.directory,
    from: contents ? "." : path.posix.basename(path.posix.resolve(source)),
    to: landing.name ?? ".",
    leftOut,
  });
  await mustRun(guest, {
    args: packThere(source, contents, followLinks),
    output: (data) => unpacking.take(data),
  });
  await unpacking.end();
}

const bare = (text: string): string => text.replace(/\/+\.?$/, "") || "/";
const isContents = (source: string, found: Found): boolean =>
  found === "directory" && (source.endsWith("/.") || bare(source) === "/");

function packThere(source: string, contents: boolean, followLinks: boolean): string[] {
  const whole = path.posix.resolve(source);
  const [directory, name] = contents
    ? [whole, "."]
    : [path.posix.dirname(whole), path.posix.basename(whole)];
  // A name that begins with a dash is no option this way.
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

/** A single file needs no tar; its mode and time are not told then. */
async function copyFile(
  guest: Guest,
  source: string,
  { leadsTo }: GuestPath,
  landing: { readonly directory: string; readonly name: string | undefined },
): Promise<void> {
  if (leadsTo !== "file" || landing.name === undefined) throw withoutTar("anything but a file");
  const file = createWriteStream(path.join(landing.directory, landing.name));
  // A file that cannot be made is told of by the first write; `finished` is asked at the end.
  const done = finished(file);
  done.catch(() => {});
  await mustRun(guest, {
    args: ["cat", "--", source],
    output: (data) => write(file, data),
  });
  file.end();
  await done;
}
