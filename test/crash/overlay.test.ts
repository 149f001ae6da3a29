import test from "ava";
import { type Backend, openOverlayWorker, type OverlayWorker } from "./overlay-worker.ts";
import {
  enumerateOverlay,
  type OverlayOperation,
  overlayOperations,
} from "./overlay-operations.ts";
import { type OverlayCase, overlayCases, overlayVisits } from "./overlay-run.ts";
import type { Point } from "./points.ts";
import { sample } from "./sample.ts";
import { full, partOfStage, random } from "./stage.ts";
import { enumerateIn } from "./visit-all.ts";

const part = partOfStage("overlays");
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
  // A peer is a route and nothing else: one is made, two are changed and one is taken away, each
  // with two sides.
  {
    backend: "host-gw",
    others: sampledOthers,
    fewest: { join: 9, recover: 9, peers: 8, leave: 9 },
  },
  // (A peer is an entry of podnetd's own tunnel, and no call leaves podnetd for it but probes,
  // which come as they please.)
  { backend: "udp", others: sampledOthers, fewest: { join: 9, recover: 9, leave: 9 } },
];

const pointsOf = async (
  site: OverlayWorker,
  operation: OverlayOperation,
): Promise<readonly Point[]> => {
  const points = await enumerateOverlay(site, operation, full ? 3 : 1);
  part.found(points.length);
  return points;
};

const what = "a host is in its overlay wholly or not at all, killed, failed or held up anywhere";

if (full) {
  for (const { backend, others, fewest } of ofBackends)
    for (const [operation, least] of Object.entries(fewest) as [OverlayOperation, number][])
      test.serial(`${what}: ${backend}, ${operation}`, async (t) => {
        t.timeout(7_200_000);
        await using site = await openOverlayWorker(`first-${backend}`, backend, part.config());
        const points = await pointsOf(site, operation);
        t.true(points.length >= least, `too few points to be all: ${points.join("\n")}`);
        const of = { backend, operation };
        const kills = overlayCases(of, points, ["kill"]);
        const rest = overlayCases(of, points, ["error", "hang"]);
        const chosen = rest.length > others ? sample(rest, others, random) : rest;
        const visits = overlayVisits([...kills, ...chosen], [site], part.config());
        await part.run(t, visits, 4);
      });
} else {
  test.serial(what, async (t) => {
    t.timeout(280_000);
    await using first = await openOverlayWorker("first", "vxlan", part.config());
    await using second = await openOverlayWorker("second", "vxlan", part.config());
    const sites = [first, second] as const;
    const kills: OverlayCase[] = [];
    const rest: OverlayCase[] = [];
    for (const [operation, points] of await enumerateIn(sites, overlayOperations, pointsOf)) {
      t.true(points.length > 8, operation);
      const of = { backend: "vxlan", operation } as const;
      kills.push(...sample(overlayCases(of, points, ["kill"]), few.kills[operation], random));
      rest.push(...overlayCases(of, points, ["error", "hang"]));
    }
    const cases = [...kills, ...sample(rest, few.others, random)];
    const spares = sample(rest, 2 * cases.length, random);
    const visits = overlayVisits([...cases, ...spares], sites, part.config());
    await part.run(t, visits, 2, cases.length);
  });
}
