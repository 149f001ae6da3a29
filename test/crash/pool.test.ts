import test from "ava";
import {
  enumeratePool,
  openPoolWorker,
  poolActs,
  type PoolCase,
  poolCases,
  poolVisits,
  type PoolWorker,
  restarted,
} from "./pool-run.ts";
import { sample } from "./sample.ts";
import { full, partOfStage, random, short } from "./stage.ts";

const part = partOfStage("pool");

/** Each begins with a boot. A run of all stages takes one act, which the day draws. */
const taken = full ? poolActs : sample(poolActs, short ? 1 : poolActs.length, random);
/** Of each act, kills and errors. */
const counts = full ? { kill: 40, error: 15 } : { kill: short ? 1 : 2, error: short ? 0 : 1 };

/** Points that each has at least, if all are found. */
const fewest = 15;

let site: PoolWorker;

test.serial.before("a podnetd with a pool", async () => {
  site = await openPoolWorker("pool");
});
test.after.always(async () => {
  await site?.[Symbol.asyncDispose]();
});

test.serial("machines that wait go with their podnetd, and no pod gets one of them", async (t) => {
  t.timeout(280_000);
  await site.worker.client.node.fillPools({});
  t.deepEqual(await restarted(site), []);
});

for (const act of taken)
  test.serial(`killed anywhere, podnetd loses no machine of a pool: ${act}`, async (t) => {
    t.timeout(full ? 7_200_000 : 280_000);
    const points = await enumeratePool(site, act);
    part.found(points.length);
    t.true(points.length >= fewest, `too few points to be all: ${points.join("\n")}`);
    const of = (action: "kill" | "error"): PoolCase[] =>
      sample(poolCases(act, points, [action]), counts[action], random);
    // (It stays for the acts that follow.)
    const lent = { ...site, [Symbol.asyncDispose]: async () => {} };
    await part.run(t, poolVisits([...of("kill"), ...of("error")], [lent]), 1);
  });
