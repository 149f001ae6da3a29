import { type SoughtProgram, parsePreload } from "../../protocol/main-process.ts";
import { readText } from "../files.ts";
import { searchPath } from "../processes.ts";
import { type Reply, done } from "../reply.ts";
import { SysError, openFlag, sys } from "../sys.ts";
import { type Piece, linksOf, scriptOf } from "./linked.ts";

/** Files that are read, and the part of the memory that they may take. */
const most = { files: 64, share: 4 } as const;
const regular = 0o100000;
const typeMask = 0o170000;
const buffer = new Uint8Array(64 * 1024);

/** PRELOAD. */
export function preloadProgram(payload: Uint8Array): Reply {
  preload(parsePreload(payload));
  return done;
}

/**
 * Reads the files that starting a program will read, and runs nothing: the words of its command
 * line that are files, the interpreters of scripts, the program loader, and the libraries that it
 * loads. The kernel keeps what was read, at most a quarter of the memory; clones of this guest have
 * it from their start. Files that are missing are left out.
 */
function preload(sought: SoughtProgram): void {
  let left = memoryBytes() / most.share;
  const waiting = sought.args.flatMap((word) => namedBy(word, sought));
  const seen = new Set<string>();
  for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
    if (seen.has(path) || seen.size >= most.files || left <= 0) continue;
    seen.add(path);
    try {
      left -= readThrough(path, left, (read) => waiting.push(...neededBy(path, read, sought)));
    } catch (thrown) {
      if (!(thrown instanceof SysError)) throw thrown;
    }
  }
}

/** The first file that a word of a command line names, as execvp(3) and shells look for it. */
function namedBy(word: string, { path = searchPath, workdir }: SoughtProgram): readonly string[] {
  if (word === "" || word.startsWith("-")) return [];
  if (word.startsWith("/")) return firstFile([word]);
  const directories = word.includes("/") ? [] : path.split(":").filter((each) => each !== "");
  return firstFile([...directories, workdir].map((directory) => `${directory}/${word}`));
}

function firstFile(paths: readonly string[]): readonly string[] {
  const found = paths.find((path) => ((sys.mode(path) ?? 0) & typeMask) === regular);
  return found === undefined ? [] : [found];
}

/** What the kernel and the program loader will read after this file. */
function neededBy(path: string, read: Piece, sought: SoughtProgram): readonly string[] {
  const script = scriptOf(read);
  if (script !== undefined) return script.flatMap((word) => namedBy(word, sought));
  const linked = linksOf(path, read);
  if (linked === undefined) return [];
  const { interpreter, libraries, directories } = linked;
  return [
    ...(interpreter === undefined ? [] : firstFile([interpreter])),
    ...libraries.flatMap((name) => firstFile(directories.map((each) => `${each}/${name}`))),
  ];
}

/** Reads a file to its end or a limit, then lets `look` read parts. Answers how many bytes. */
function readThrough(path: string, limit: number, look: (read: Piece) => void): number {
  const fd = sys.open(path, openFlag.read | openFlag.nonBlock);
  try {
    let total = 0;
    for (let count = -1; count !== 0 && total < limit; total += count)
      count = sys.read(fd, buffer) ?? 0;
    look((at, length) => {
      const piece = new Uint8Array(length);
      return piece.subarray(0, sys.readAt(fd, piece, at));
    });
    return total;
  } finally {
    sys.close(fd);
  }
}

function memoryBytes(): number {
  const [, kib = "0"] = /^MemTotal:\s+(\d+) kB/.exec(readText("/proc/meminfo") ?? "") ?? [];
  return Number(kib) * 1024;
}
