import test from "ava";
import { ownNetns } from "../lab/netns.ts";
import { compare, shrink } from "../sim/kernel/compare.ts";
import { drawSequence } from "../sim/kernel/sequence.ts";
import { Random } from "../sim/random.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const wanted = 1000;
/** Milliseconds: without --full, as many as this allows. */
const limit = full ? 3_600_000 : 20_000;

test("Random sequences of operations show the same on the fake kernel and on the real one", async (t) => {
  t.timeout(limit + 120_000);
  await ownNetns();
  const until = performance.now() + limit;
  let sequences = 0;
  let operations = 0;
  for (; sequences < wanted && performance.now() < until; sequences++) {
    const sequence = drawSequence(new Random(seed + sequences));
    operations += sequence.length;
    if ((await compare(sequence)) === undefined) continue;
    const found = await shrink(sequence);
    t.log(JSON.stringify(found, undefined, 1));
    t.fail(
      `They differ with PODNET_SEED=${seed + sequences}: ${found?.difference.real} is ${found?.difference.fake}`,
    );
    return;
  }
  t.log(`${sequences} of ${wanted} sequences, ${operations} operations, PODNET_SEED=${seed}`);
  t.true(full ? sequences === wanted : sequences >= 100);
});
