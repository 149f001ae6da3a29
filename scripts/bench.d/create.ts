/**
 * What podnetd's own part of a create and a delete takes: planning, records, commits, on a host and
 * a machine that do nothing.
 *   scripts/bench create [ROUNDS]
 */
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { watchEffects } from "../../core/effect.ts";
import { configuration, openNode } from "../../test/unit/daemon/fixtures/node.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "podnetd's part of a create and a delete, and its commits";

/** Answers the time spent in commits, and how many were flushed, since it was last called. */
function watchCommits(isFlushed: () => boolean): () => { ms: number; flushed: number } {
  let seen = { ms: 0, flushed: 0 };
  let begun = 0;
  watchEffects({
    at({ boundary }, side) {
      if (boundary !== "commit") return;
      if (side === "after") seen.ms += performance.now() - begun;
      else {
        seen.flushed += Number(isFlushed());
        begun = performance.now();
      }
    },
    async atAsync() {},
  });
  return () => {
    const before = seen;
    seen = { ms: 0, flushed: 0 };
    return before;
  };
}

/** Runs the benchmark, prints its table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  // On the disk, where a daemon keeps its record: a commit waits for it.
  const directory = mkdtempSync(path.join(import.meta.dirname, "../../build/bench-"));
  process.env["TMPDIR"] = directory;
  try {
    using node = openNode(configuration({}));
    node.host.recordRun = (plan, record) => node.records.started(plan.podId, record);
    const commits = watchCommits(() => node.db.get("PRAGMA synchronous")?.["synchronous"] === 2);
    const creates: number[] = [];
    const inCommits: number[] = [];
    const deletes: number[] = [];
    let flushed = 0;
    for (let round = -5; round < rounds; round++) {
      commits();
      const begin = performance.now();
      const { id } = await node.create();
      const created = performance.now();
      const spent = commits();
      await node.pods.delete(id, { force: true });
      // The first ones compile the code and do not count.
      if (round < 0) continue;
      creates.push(created - begin);
      inCommits.push(spent.ms);
      deletes.push(performance.now() - created);
      ({ flushed } = spent);
    }
    return report({ creates, inCommits, deletes, flushed });
  } finally {
    watchEffects(undefined);
    rmSync(directory, { recursive: true, force: true });
  }
}

function report(figures: {
  readonly creates: readonly number[];
  readonly inCommits: readonly number[];
  readonly deletes: readonly number[];
  readonly flushed: number;
}): string {
  const create = summarise(figures.creates);
  const commits = summarise(figures.inCommits);
  const gone = summarise(figures.deletes);
  console.log(`${create.count} pods on a played host; milliseconds`);
  row("", "median", "p99");
  row("create", create.median, create.p99);
  row("of it in commits", commits.median, commits.p99);
  row("delete", gone.median, gone.p99);
  return lastLine("create", {
    create_ms: create.median,
    commits_ms: commits.median,
    flushed_commits: figures.flushed,
    delete_ms: gone.median,
  });
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 40)));
}
