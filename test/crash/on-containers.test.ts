import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { standInConfig } from "../lab/standin.ts";
import { Random } from "../sim/random.ts";
import type { ContainerOperation } from "./container-acts.ts";
import { type ContainerLane, openContainerLane } from "./container-lane.ts";
import {
  type ContainerCase,
  containerCases,
  enumerateContainers,
  runContainerCases,
} from "./container-run.ts";
import { sample } from "./sample.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const summaryFile = path.resolve(import.meta.dirname, "../../build/summary/crash");
const random = new Random(seed);

/** Each with the fewest failpoints it can have, if all are found. */
const operations: Readonly<Record<ContainerOperation, number>> = {
  add: 40,
  "add-plain": 25,
  del: 12,
  openshift: 25,
  gc: 12,
  recover: 25,
  install: 12,
  uninstall: 6,
  down: 20,
};
/** Of a short run: what is done, kills of each, and of all of them errors. Installations are in test/unit/cni-installation.test.ts. */
const short = { operations: ["add", "del", "recover"], kills: 1, errors: 2 } as const;

const directory = mkdtempSync(path.join(tmpdir(), "podnet-crash-containers-"));
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
    `crash of containers points=${points} cases=${cases} leaks=${leaks}, PODNET_SEED=${seed}\n${rest}`,
  );
});

async function run(
  t: ExecutionContext,
  cases: readonly ContainerCase[],
  first: ContainerLane,
): Promise<void> {
  const { visited, missed, failures } = await runContainerCases(cases, {
    config,
    lanes: full ? 3 : 1,
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

const what = "a container is attached or nothing of it is left, killed, failed or held up anywhere";

if (full) {
  for (const [operation, fewest] of Object.entries(operations) as [ContainerOperation, number][])
    test.serial(`${what}: ${operation}`, async (t) => {
      t.timeout(7_200_000);
      await using site = await openContainerLane("first", config);
      const points = await enumerateContainers(site, operation, 3);
      sums.points += points.length;
      t.true(points.length >= fewest, `too few points to be all: ${points.join("\n")}`);
      await run(t, containerCases(operation, points), site);
    });
} else {
  test.serial(what, async (t) => {
    t.timeout(240_000);
    await using site = await openContainerLane("first", config);
    const kills: ContainerCase[] = [];
    const errors: ContainerCase[] = [];
    for (const operation of short.operations) {
      const points = await enumerateContainers(site, operation, 1);
      sums.points += points.length;
      t.true(points.length >= operations[operation], `${operation}: ${points.join("\n")}`);
      kills.push(...sample(containerCases(operation, points, ["kill"]), short.kills, random));
      errors.push(...containerCases(operation, points, ["error"]));
    }
    await run(t, [...kills, ...sample(errors, short.errors, random)], site);
  });
}
