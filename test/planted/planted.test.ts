import test from "ava";
import { faults } from "./faults.ts";
import { Tree } from "./tree.ts";

const complete = process.env["PODNET_TEST_FULL"] === "1";
/** Faults tried in a short run: drawn anew each time, so that over a few runs each has its turn. */
const share = 24;

/** Numbers from 0 to 1 that follow from a seed (mulberry32). */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const draw = random(seed);
const drawn = faults
  .map((fault) => ({ fault, at: draw() }))
  .toSorted((a, b) => a.at - b.at)
  .map(({ fault }) => fault)
  .slice(0, complete ? faults.length : share);

let tree: Tree;
test.serial.before((t) => {
  t.log(`seed ${seed}`);
  tree = new Tree();
});
test.serial.after.always(() => tree?.[Symbol.dispose]());

for (const fault of drawn) {
  test.serial(`noticed: ${fault.name}`, async (t) => {
    t.timeout(150_000);
    const { failed, output } = await tree.run(fault);
    t.true(failed, `nobody noticed (seed ${seed}):\n${output}`);
    // The test meant has failed, and not something before it: a tree that does not even load fails as well.
    t.true(output.includes(`${fault.noticedBy.title}`), output);
    t.regex(output, /✘ \[fail\]: /, output);
  });
}
