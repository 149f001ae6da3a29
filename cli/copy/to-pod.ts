import {
  createReadStream,
  lstatSync,
  readdirSync,
  realpathSync,
  statSync,
  type Stats,
} from "node:fs";
import path from "node:path";
import { WriteEntry } from "tar";
import { usage } from "../usage.ts";
import { landingOf } from "./endpoint.ts";
import { type Guest, lookInGuest, nothingThere, withoutTar } from "./in-guest.ts";
import { unpackThere, writeThere } from "./into-guest.ts";

export interface ToPod {
  /** A path here, or an archive's bytes. */
  readonly source: string | AsyncIterable<Uint8Array>;
  readonly target: string;
  /** Copies the targets of links instead of the links. */
  readonly followLinks: boolean;
}

/**
 * Copies files into a guest. Owners become root, unless the caller brought an archive of their own.
 */
export async function copyToPod(
  guest: Guest,
  { source, target, followLinks }: ToPod,
): Promise<void> {
  const whole = target.replace(/\/+\.?$/, "") || "/";
  const there = await lookInGuest(guest, target, path.posix.dirname(whole));
  if (typeof source !== "string") {
    if (there.leadsTo !== "directory") {
      throw usage(`"${target}" is no directory`, "An archive goes into a directory", "destination");
    }
    if (!there.hasTar) throw withoutTar("an archive");
    return unpackThere(guest, { directory: target, name: undefined }, source);
  }
  const stats = statOf(source, followLinks);
  const landing = landingOf(
    { path: source, isDirectory: stats.isDirectory() },
    { path: target, found: there.leadsTo, parent: there.parent },
  );
  if (there.hasTar) return unpackThere(guest, landing, pack(source, landing.name, followLinks));
  if (!stats.isFile() || landing.name === undefined) throw withoutTar("anything but a file");
  const mode = (stats.mode & 0o7777).toString(8);
  await writeThere(guest, landing, { mode, content: createReadStream(source) });
}

function statOf(source: string, followLinks: boolean): Stats {
  try {
    return followLinks ? statSync(source) : lstatSync(source);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "ENOENT")
      throw nothingThere(source, "on this host");
    throw thrown;
  }
}

/** Bytes of a file that are read at a time. */
const readBytes = 256 * 1024;
/** An archive ends with two blocks of zeros (POSIX.1-2001, pax, "ustar Interchange Format"). */
const archiveEnd = new Uint8Array(1024);

/**
 * A source as an archive: one entry of that name and all below it, or, without a name, all that is
 * in it. (Entries are written one by one. tar 7.5.23's own writer of archives has several under
 * way, and on a busy host it sometimes ends twice and throws where nothing can catch it.)
 */
export async function* pack(
  source: string,
  name: string | undefined,
  follow: boolean,
): AsyncGenerator<Uint8Array> {
  const whole = path.resolve(source);
  const cwd = name === undefined ? whole : path.dirname(whole);
  const base = path.basename(whole);
  const tops = name === undefined ? readdirSync(whole) : [base];
  const renamed = (text: string): string => {
    const bare = text.replace(/^\.\//, "");
    return name === undefined ? bare : `${name}${bare.slice(base.length)}`;
  };
  const onWriteEntry = (entry: WriteEntry): void => {
    entry.path = renamed(entry.path);
    if (entry.type === "Link" && entry.linkpath !== undefined) {
      entry.linkpath = renamed(entry.linkpath);
    }
    if (entry.stat !== undefined) Object.assign(entry.stat, { uid: 0, gid: 0 });
  };
  const all = tops.flatMap((file) => [...below(cwd, file, follow, [])]);
  // Unpacking into a directory changes its time, which not every tar restores afterwards:
  // directories follow once more, the innermost first.
  const again = all.filter(({ isDirectory }) => isDirectory).toReversed();
  const linkCache = new Map<`${number}:${number}`, string>();
  for (const { file } of [...all, ...again]) {
    const absolute = path.join(cwd, file);
    const statCache = new Map([[absolute, statOf(absolute, follow)]]);
    yield* new WriteEntry(`./${file}`, {
      cwd,
      absolute,
      maxReadSize: readBytes,
      linkCache,
      statCache,
      onWriteEntry,
    });
  }
  yield archiveEnd;
}

/**
 * A file and all that is in it, if it is a directory. A link that leads back to where it is in ends
 * there.
 */
function* below(
  cwd: string,
  file: string,
  follow: boolean,
  above: readonly string[],
): Generator<{ readonly file: string; readonly isDirectory: boolean }> {
  const whole = path.join(cwd, file);
  const isDirectory = statOf(whole, follow).isDirectory();
  const real = isDirectory && follow ? realpathSync(whole) : whole;
  if (above.includes(real)) return;
  yield { file, isDirectory };
  if (!isDirectory) return;
  for (const name of readdirSync(whole)) {
    yield* below(cwd, path.join(file, name), follow, [...above, real]);
  }
}
