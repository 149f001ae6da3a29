import { Branches } from "./branches.ts";
import { fixtures, writeFound } from "./corpus.ts";
import type { Coverage, Snapshot } from "./coverage.ts";
import { mutate } from "./mutate.ts";
import { digest, Random } from "./random.ts";
import type { Target } from "./target.ts";

export interface Crash {
  readonly file: string;
  readonly error: unknown;
}

export interface Exploration {
  readonly target: string;
  readonly inputs: number;
  /** Inputs kept since each reached something new. */
  readonly corpus: readonly Uint8Array[];
  readonly crashes: readonly Crash[];
  readonly reached: number;
  readonly known: number;
  readonly missed: readonly string[];
  readonly seconds: number;
}

export interface ExploreOptions {
  readonly seed: number;
  readonly inputs: number;
  readonly coverage: Coverage;
  /** The first look after the target's files were loaded. */
  readonly loaded: Snapshot;
  /**
   * Least part of the branches that is to be reached. A few inputs reach it with most seeds, not
   * with all: until it is reached the target gets up to `timeout` times as many.
   */
  readonly wanted?: number;
  /** Write what reached something new to build/fuzz/new. */
  readonly keepNew?: boolean;
}

/**
 * Inputs between two looks at the coverage, which cost milliseconds; when there is isNew, they run
 * again one by one.
 */
const batch = { early: 64, late: 1024, lateFrom: 10_000 } as const;
const timeout = 8;
/** A target that crashes this often has shown enough. */
const mostCrashes = 5;

/** One parser's run: what the state of the loop is made of. */
class Explorer {
  readonly #target: Target;
  readonly #options: ExploreOptions;
  readonly #random: Random;
  readonly #branches: Branches;
  readonly corpus: Uint8Array[] = [];
  readonly crashes = new Map<string, Crash>();
  inputs = 0;

  constructor(target: Target, options: ExploreOptions) {
    this.#target = target;
    this.#options = options;
    this.#random = new Random(options.seed ^ digest(Buffer.from(target.name)));
    this.#branches = new Branches(target, options.loaded);
  }

  begin(): void {
    const { name, seeds } = this.#target;
    this.#options.coverage.take();
    for (const bytes of [...seeds, ...fixtures(name).map((fixture) => fixture.bytes)]) {
      this.#alone(bytes);
      if (!this.corpus.includes(bytes)) this.corpus.push(bytes);
    }
  }

  round(size: number): void {
    const inputs = this.#random.list(size, () => this.#next());
    for (const bytes of inputs) this.#run(bytes);
    this.inputs += size;
    if (!this.#branches.see(this.#options.coverage.take(), false)) return;
    for (const bytes of inputs)
      if (this.#alone(bytes) && this.#options.keepNew === true)
        writeFound("new", this.#target.name, bytes);
  }

  get report(): ReturnType<Branches["report"]> {
    return this.#branches.report();
  }

  #next(): Uint8Array {
    const { generate, longest = 2048 } = this.#target;
    const random = this.#random;
    const made = generate !== undefined && (this.corpus.length === 0 || random.once(3));
    const one = made ? generate(random) : random.pick(this.corpus);
    if (one === undefined) return random.bytes(random.below(64));
    if (made && random.once(2)) return one.subarray(0, longest);
    return mutate(one, random.pick(this.corpus) ?? one, random, this.#target);
  }

  /** Runs one input and looks at once; whether it reached something new, and so was kept. */
  #alone(bytes: Uint8Array): boolean {
    this.#run(bytes);
    const isNew = this.#branches.see(this.#options.coverage.take(), true);
    if (isNew) this.corpus.push(bytes);
    return isNew;
  }

  #run(bytes: Uint8Array): void {
    try {
      this.#target.run(bytes);
    } catch (error) {
      const key = error instanceof Error ? `${error.name} ${placeOf(error)}` : String(error);
      if (this.crashes.has(key)) return;
      this.crashes.set(key, { file: writeFound("crash", this.#target.name, bytes), error });
    }
  }
}

/** The first line of the stack that is ours. */
const placeOf = (error: Error): string =>
  /^ +at .*$/m.exec(error.stack?.slice(error.stack.indexOf("\n")) ?? "")?.[0] ?? "";

function lacks({ report, crashes }: Explorer, { wanted = 0 }: ExploreOptions): boolean {
  return report.reached < wanted * report.known && crashes.size === 0;
}

/** Feeds a parser seeds, then what grows out of them, guided by the branches they reach. */
export function explore(target: Target, options: ExploreOptions): Exploration {
  const begin = performance.now();
  const explorer = new Explorer(target, options);
  explorer.begin();
  const feed = (until: number): void => {
    while (explorer.inputs < until && explorer.crashes.size < mostCrashes)
      explorer.round(
        Math.min(
          explorer.inputs < batch.lateFrom ? batch.early : batch.late,
          until - explorer.inputs,
        ),
      );
  };
  feed(options.inputs);
  for (let times = 2; times <= timeout && lacks(explorer, options); times++)
    feed(times * options.inputs);
  return {
    target: target.name,
    inputs: explorer.inputs,
    corpus: explorer.corpus,
    crashes: [...explorer.crashes.values()],
    ...explorer.report,
    seconds: (performance.now() - begin) / 1000,
  };
}
