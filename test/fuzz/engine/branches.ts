import { readFileSync } from "node:fs";
import path from "node:path";
import { type Block, type CoveredFunction, type Snapshot, top } from "./coverage.ts";
import type { Target } from "./target.ts";

interface Known {
  readonly name: string;
  readonly file: string;
  readonly start: number;
  /** One byte a character: has it run? */
  readonly hit: Uint8Array;
  /** All of it has run. */
  whole: boolean;
  /**
   * Every block ever reported, by where it stands; V8 leaves out one that runs as often as what is
   * around it.
   */
  readonly blocks: Map<number, readonly [number, number]>;
}

type Counted = Pick<Target, "files" | "only" | "except">;
type Parts = ReadonlyMap<string, readonly Block[]>;

/**
 * Where the named functions stand. Throws when there is none of a name, or a file was not loaded
 * under coverage.
 */
function partsOf(files: readonly string[], names: readonly string[], loaded: Snapshot): Parts {
  const parts = new Map<string, Block[]>();
  const missing = new Set(names);
  for (const file of files) {
    const functions = loaded.get(file);
    if (functions === undefined) throw new Error(`"${file}" was not loaded under coverage`);
    const named = functions.filter(({ functionName }) => names.includes(functionName));
    for (const { functionName } of named) missing.delete(functionName);
    parts.set(
      file,
      named.flatMap(({ ranges }) => ranges.slice(0, 1)),
    );
  }
  if (missing.size > 0)
    throw new Error(`No function of ${files.join()} is called ${[...missing].join()}`);
  return parts;
}

const isWithin = (parts: Parts, file: string, { startOffset, endOffset }: Block): boolean =>
  parts.get(file)?.some((part) => part.startOffset <= startOffset && endOffset <= part.endOffset) ??
  false;

/**
 * The branches of some files: every function, and every block within one that V8 ever counted
 * apart. One is reached when any character of it has run. A function never called is one branch not
 * reached, whatever it holds.
 */
export class Branches {
  readonly #files: ReadonlySet<string>;
  /** Parts of files, by file: what is within one of them counts, or (of `except`) does not. */
  readonly #only: Parts | undefined;
  readonly #except: Parts;
  readonly #functions = new Map<string, Known>();

  /** `loaded`: the first look after the files were loaded, which names all their functions. */
  constructor({ files, only, except = [] }: Counted, loaded: Snapshot) {
    this.#files = new Set(files);
    this.#only = only === undefined ? undefined : partsOf(files, only, loaded);
    this.#except = partsOf(files, except, loaded);
    this.see(loaded, true);
  }

  /** Whether something ran that had not before; with `keep` it counts as having run from now on. */
  see(snapshot: Snapshot, keep: boolean): boolean {
    let isNew = false;
    for (const [file, functions] of snapshot) {
      if (!this.#files.has(file)) continue;
      for (const one of functions) if (this.#seeFunction(file, one, keep)) isNew = true;
    }
    return isNew;
  }

  #seeFunction(file: string, { functionName, ranges }: CoveredFunction, keep: boolean): boolean {
    const whole = ranges[0];
    // The module itself; its code runs when it is loaded.
    if (whole === undefined || (functionName === "" && whole.startOffset === 0)) return false;
    if (isWithin(this.#except, file, whole)) return false;
    if (this.#only !== undefined && !isWithin(this.#only, file, whole)) return false;
    const key = `${file}:${whole.startOffset}:${whole.endOffset}`;
    let found = this.#functions.get(key);
    if (found === undefined) {
      const hit = new Uint8Array(whole.endOffset - whole.startOffset);
      found = {
        name: functionName,
        file,
        start: whole.startOffset,
        hit,
        whole: false,
        blocks: new Map(),
      };
      this.#functions.set(key, found);
    }
    const known = found;
    for (const { startOffset, endOffset } of ranges)
      known.blocks.set(startOffset * 2 ** 24 + endOffset, [
        startOffset - known.start,
        endOffset - known.start,
      ]);
    if (known.whole) return false;
    // Outer ones come first, so that what is inside overrules what is around it.
    const now = new Uint8Array(known.hit.length);
    for (const { startOffset, endOffset, count } of ranges)
      now.fill(count > 0 ? 1 : 0, startOffset - known.start, endOffset - known.start);
    const fresh = now.some((ran, i) => ran > (known.hit[i] as number));
    if (fresh && keep) {
      now.forEach((ran, i) => {
        if (ran === 1) known.hit[i] = 1;
      });
      known.whole = !known.hit.includes(0);
    }
    return fresh;
  }

  /** Reached and known branches, and where those not reached are. */
  report(): { readonly reached: number; readonly known: number; readonly missed: string[] } {
    let reached = 0;
    let known = 0;
    const missed: string[] = [];
    for (const { name, file, start, hit, blocks } of this.#functions.values()) {
      for (const [from, to] of blocks.values()) {
        known++;
        if (hit.subarray(from, to).includes(1)) reached++;
        else missed.push(`${file}:${lineOf(file, start + from)} ${name}`);
      }
    }
    return { reached, known, missed: missed.sort() };
  }
}

function lineOf(file: string, offset: number): number {
  return readFileSync(path.join(top, file), "utf8").slice(0, offset).split("\n").length;
}
