import test from "ava";
import type { ContainerOperation } from "./container-acts.ts";
import { type ContainerWorker, openContainerWorker } from "./container-worker.ts";
import {
  type ContainerCase,
  containerCases,
  containerVisits,
  enumerateContainers,
} from "./container-run.ts";
import type { Point } from "./points.ts";
import { sample } from "./sample.ts";
import { full, partOfStage, random } from "./stage.ts";
import { enumerateIn } from "./visit-all.ts";

const part = partOfStage("containers");

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
/**
 * Of a short run: what is done, kills of each, and of all of them errors. Installations are in
 * test/unit/daemon/containers/installation.test.ts.
 */
const short = { operations: ["add", "del", "recover"], kills: 1, errors: 2 } as const;

const enumerateOnce = (
  site: ContainerWorker,
  operation: ContainerOperation,
): Promise<readonly Point[]> => enumerateContainers(site, operation, 1);

const what = "a container is attached or nothing of it is left, killed, failed or held up anywhere";

if (full) {
  for (const [operation, fewest] of Object.entries(operations) as [ContainerOperation, number][])
    test.serial(`${what}: ${operation}`, async (t) => {
      t.timeout(7_200_000);
      await using site = await openContainerWorker("first", part.config());
      const points = await enumerateContainers(site, operation, 3);
      part.found(points.length);
      t.true(points.length >= fewest, `too few points to be all: ${points.join("\n")}`);
      const cases = containerCases(operation, points);
      await part.run(t, containerVisits(cases, [site], part.config()), 3);
    });
} else {
  test.serial(what, async (t) => {
    t.timeout(240_000);
    await using first = await openContainerWorker("first", part.config());
    await using second = await openContainerWorker("second", part.config());
    const sites = [first, second];
    const kills: ContainerCase[] = [];
    const errors: ContainerCase[] = [];
    for (const [operation, points] of await enumerateIn(sites, short.operations, enumerateOnce)) {
      part.found(points.length);
      t.true(points.length >= operations[operation], `${operation}: ${points.join("\n")}`);
      kills.push(...sample(containerCases(operation, points, ["kill"]), short.kills, random));
      errors.push(...containerCases(operation, points, ["error"]));
    }
    const cases = [...kills, ...sample(errors, short.errors, random)];
    await part.run(t, containerVisits(cases, sites, part.config()), 2);
  });
}
