import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { standInConfig } from "../lab/standin.ts";
import { almost, armedFor } from "./arming.ts";
import { type Worker, openWorker } from "./worker.ts";
import type { Outcome } from "./outcome.ts";
import type { Case } from "./points.ts";
import { begin, visit } from "./visit.ts";

// That the matrix can fail: one of its cases as it is, and the same with something left that no
// pod's row reports.

const killed: Case = { operation: "create", point: almost, action: "kill" };
const directory = mkdtempSync(path.join(tmpdir(), "podnet-notice-"));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

/**
 * Visits one case in a worker of its own, whose podnetd may find things changed when it starts
 * again.
 */
async function visited(
  name: string,
  meanwhile: (worker: Worker) => Promise<unknown>,
): Promise<Outcome> {
  const config = `drift_s = 3600\n${await standInConfig(path.join(directory, name))}`;
  await using worker = await openWorker(name, config);
  const baselines = await begin(worker, armedFor(killed));
  const observed: Worker = Object.create(worker, {
    start: {
      value: async (failpoints?: readonly string[]) => {
        await meanwhile(worker);
        return await worker.start(failpoints);
      },
    },
  });
  return await visit({ worker: observed, baselines, visited: killed, again: undefined, next: [] });
}

test.serial("a create that is killed just before it is done leaves nothing", async (t) => {
  const outcome = await visited("clean", async () => {});
  t.deepEqual(outcome, { kind: "clean", again: false });
});

test.serial("what is left of a case is named by the matrix", async (t) => {
  const leak = ["ip", "route", "replace", "blackhole", "10.99.7.0/24"] as const;
  const outcome = await visited("leak", ({ lab }) => lab.host.run(...leak));
  t.is(outcome.kind, "wrong");
  if (outcome.kind !== "wrong") return;
  t.regex(outcome.problems.join("\n"), /after the restart: \+ route .*10\.99\.7\.0\/24/);
});
