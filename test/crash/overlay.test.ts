import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { standInConfig } from "../lab/standin.ts";
import { Random } from "../sim/random.ts";
import { type Backend, openOverlayLane, type OverlayLane } from "./overlay-lane.ts";
import {
  enumerateOverlay,
  type OverlayOperation,
  overlayOperations,
} from "./overlay-operations.ts";
import { type OverlayCase, overlayCases, runOverlayCases } from "./overlay-run.ts";
import type { Point } from "./points.ts";
import { sample } from "./sample.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const summaryFile = path.resolve(import.meta.dirname, "../../build/summary/crash");
const random = new Random(seed);
/** Of a short run: kills of each operation, and of all of them the others. */
const few = { kills: { join: 1, recover: 1, peers: 1, leave: 1 }, others: 2 } as const;
/** Of a complete run with another backend than vxlan: cases that are no kills. */
const sampledOthers = 20;
/** Of a complete run: the fewest failpoints that an operation can have, if all are found. */
const ofBackends: readonly {
  readonly backend: Backend;
  /** Cases of an operation that are no kills. */
  readonly others: number;
  readonly fewest: Readonly<Partial<Record<OverlayOperation, number>>>;
}[] = [
  {
    backend: "vxlan",
    others: Number.POSITIVE_INFINITY,
    fewest: { join: 9, recover: 9, peers: 9, leave: 9 },
  },
  // A peer is a route and nothing else: one is made, two are changed and one is taken away, each with two sides.
  {
    backend: "host-gw",
    others: sampledOthers,
    fewest: { join: 9, recover: 9, peers: 8, leave: 9 },
  },
  // (A peer is an entry of podnetd's own tunnel, and no call leaves podnetd for it but probes, which come as they please.)
  { backend: "udp", others: sampledOthers, fewest: { join: 9, recover: 9, leave: 9 } },
];

const directory = mkdtempSync(path.join(tmpdir(), "podnet-crash-overlay-"));
const sums = { points: 0, cases: 0, leaks: 0 };
let config: string;

test.before("machines that stand in", async () => {
  config = `drift_s = 3600\n${await standInConfig(directory)}`;
});

test.after.always("a line for the stage's end", () => {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(path.dirname(summaryFile), { recursive: true });
  const rest = existsSync(summaryFile) ? readFileSync(summaryFile, "utf8") : "";
  const { points, cases, leaks } = sums;
  writeFileSync(
    summaryFile,
    `crash of overlays points=${points} cases=${cases} leaks=${leaks}, PODNET_SEED=${seed}\n${rest}`,
  );
});

const pointsOf = async (
  site: OverlayLane,
  operation: OverlayOperation,
): Promise<readonly Point[]> => {
  const points = await enumerateOverlay(site, operation, full ? 3 : 1);
  sums.points += points.length;
  return points;
};

async function run(
  t: ExecutionContext,
  cases: readonly OverlayCase[],
  first: OverlayLane,
): Promise<void> {
  const { visited, missed, failures } = await runOverlayCases(cases, {
    config,
    lanes: full ? 4 : 1,
    first,
    log: (text) => {
      if (process.env["PODNET_CRASH_LOG"] === "1") process.stderr.write(`${text}\n`);
    },
  });
  t.log(`${visited} cases, ${missed.length} not come by again, PODNET_SEED=${seed}`);
  sums.cases += visited;
  sums.leaks += failures.length;
  t.deepEqual(failures, [], [`PODNET_SEED=${seed}`, ...failures].join("\n\n"));
  t.true(missed.length <= Math.max(2, cases.length / 20), missed.join("\n"));
}

const what = "a host is in its overlay wholly or not at all, killed, failed or held up anywhere";

if (full) {
  for (const { backend, others, fewest } of ofBackends)
    for (const [operation, least] of Object.entries(fewest) as [OverlayOperation, number][])
      test.serial(`${what}: ${backend}, ${operation}`, async (t) => {
        t.timeout(7_200_000);
        await using site = await openOverlayLane(`first-${backend}`, backend, config);
        const points = await pointsOf(site, operation);
        t.true(points.length >= least, `too few points to be all: ${points.join("\n")}`);
        const of = { backend, operation };
        const kills = overlayCases(of, points, ["kill"]);
        const rest = overlayCases(of, points, ["error", "hang"]);
        const chosen = rest.length > others ? sample(rest, others, random) : rest;
        await run(t, [...kills, ...chosen], site);
      });
} else {
  test.serial(what, async (t) => {
    t.timeout(280_000);
    await using site = await openOverlayLane("first", "vxlan", config);
    const kills: OverlayCase[] = [];
    const rest: OverlayCase[] = [];
    for (const operation of overlayOperations) {
      const points = await pointsOf(site, operation);
      t.true(points.length > 8, operation);
      const of = { backend: "vxlan", operation } as const;
      kills.push(...sample(overlayCases(of, points, ["kill"]), few.kills[operation], random));
      rest.push(...overlayCases(of, points, ["error", "hang"]));
    }
    await run(t, [...kills, ...sample(rest, few.others, random)], site);
  });
}
