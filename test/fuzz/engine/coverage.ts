import { Session } from "node:inspector";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";

export const top = path.resolve(import.meta.dirname, "../../..");
const topUrl = `${pathToFileURL(top).href}/`;

/**
 * A part of a function, in characters of its file, and how often it ran. The first of a function is
 * the function.
 */
export interface Block {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}
export interface CoveredFunction {
  readonly functionName: string;
  readonly ranges: readonly Block[];
}
/** What ran since the last look, by file from the checkout's top. */
export type Snapshot = ReadonlyMap<string, readonly CoveredFunction[]>;

/**
 * V8's own coverage of this process, counted by block. It sees only code loaded after it was
 * started: whoever uses it imports what it is to see dynamically. (Types are stripped to blanks, so
 * offsets are those of the source.) Measured with Node 24: code runs 3 to 7 % slower, a look takes
 * 0.2 to 4 ms, by what is loaded.
 */
export class Coverage implements Disposable {
  readonly #session = new Session();

  constructor() {
    // Optimised code no longer counts how often a function is called (V8 13.6), and one with no
    // calls is left out.
    setFlagsFromString("--no-opt");
    setFlagsFromString("--no-maglev");
    this.#session.connect();
    this.#post("Profiler.enable");
    this.#post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  }

  /** What ran since the last look; files of packages and of Node itself are left out. */
  take(): Snapshot {
    const { result } = this.#post("Profiler.takePreciseCoverage") as {
      result: { url: string; functions: CoveredFunction[] }[];
    };
    const files = new Map<string, readonly CoveredFunction[]>();
    for (const { url, functions } of result) {
      if (!url.startsWith(topUrl) || url.includes("/node_modules/")) continue;
      const file = url.slice(topUrl.length);
      if (!file.startsWith("test/")) files.set(file, functions);
    }
    return files;
  }

  [Symbol.dispose](): void {
    this.#session.disconnect();
  }

  #post(method: string, parameters?: object): unknown {
    let answer: unknown;
    // A session within its own process answers before post returns.
    this.#session.post(
      method as "Profiler.enable",
      parameters as never,
      (error: Error | null, result?: unknown) => {
        if (error !== null) throw error;
        answer = result;
      },
    );
    return answer;
  }
}

/**
 * Steps taken: how often blocks ran, summed, but for those of files set apart. Grows as the work
 * does, on any machine alike.
 */
export function stepsOf(snapshot: Snapshot, apart: readonly string[] = []): number {
  let steps = 0;
  for (const [file, functions] of snapshot)
    if (!apart.includes(file))
      for (const { ranges } of functions) for (const { count } of ranges) steps += count;
  return steps;
}
