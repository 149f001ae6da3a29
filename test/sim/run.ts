import { parseArgs } from "node:util";
import { plants } from "./plants.ts";
import { Simulation } from "./simulation.ts";
import { VirtualTime } from "./time.ts";

/**
 * Runs histories: `scripts/node test/sim/run.ts --seed 7` replays one and prints all of it,
 * `--histories 100` that many from the seed on, until one fails or `--seconds` are over and there
 * were `--least`;
 * `--plant NAME` puts a fault in. Prints one line of JSON an end; exits 1 when a history failed.
 */
const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    histories: { type: "string" },
    seconds: { type: "string", default: "600" },
    least: { type: "string", default: "0" },
    plant: { type: "string" },
  },
});

const realNow = performance.now.bind(performance);
const begun = realNow();
const first = Number(values.seed);
const single = values.histories === undefined;
const wanted = Number(values.histories ?? 1);
const plant = values.plant === undefined ? undefined : plants[values.plant];
if (values.plant !== undefined && plant === undefined)
  throw new Error(`No plant "${values.plant}"`);

const time = { now: new VirtualTime() };
process.on("unhandledRejection", (thrown) => current?.violated(`unhandled: ${String(thrown)}`));
let current: Simulation | undefined;
let steps = 0;
let histories = 0;
let failed = false;
for (
  ;
  histories < wanted &&
  !failed &&
  (histories < Number(values.least) || (realNow() - begun) / 1000 < Number(values.seconds));
  histories++
) {
  time.now = new VirtualTime();
  time.now.takeOver();
  current = new Simulation(first + histories, time.now, plant);
  const outcome = await current.run();
  steps += outcome.steps;
  failed = outcome.violation !== undefined;
  if (failed || single) console.log(outcome.trace.join("\n"));
  if (failed)
    console.log(
      `violation: ${outcome.violation}\nreplay: scripts/node test/sim/run.ts --seed ${outcome.seed}`,
    );
  if (single) console.log(`hash ${outcome.hash}`);
}
const last = JSON.stringify({ histories, steps, failures: failed ? 1 : 0, seed: first });
// A pipe may take a long trace only in parts: an end before that would cut it off.
process.stdout.write(`${last}\n`, () => process.exit(failed ? 1 : 0));
