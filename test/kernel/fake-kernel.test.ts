import test from "ava";
import { writeSysctl } from "../../linux/sysctl.ts";
import { ownNetns } from "../lab/netns.ts";
import { compare, shrink } from "../sim/kernel/compare.ts";
import { drawSequence } from "../sim/kernel/sequence.ts";
import { realSubject } from "../sim/kernel/subject.ts";
import { Random } from "../sim/random.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const wanted = 1000;
/** Milliseconds; ends of links make the kernel wait, so that all of them take longer than a run in CI should. */
const patience = full ? 280_000 : 35_000;

test("Random sequences of operations show the same on the fake kernel and on the real one", async (t) => {
  t.timeout(300_000);
  await ownNetns();
  // A new namespace may inherit these from the host: with them an address's end shows differently.
  writeSysctl("net.ipv4.conf.all.promote_secondaries", "0");
  writeSysctl("net.ipv4.conf.default.promote_secondaries", "0");
  using real = realSubject();
  const until = performance.now() + patience;
  let sequences = 0;
  let operations = 0;
  for (; sequences < wanted && performance.now() < until; sequences++) {
    const sequence = drawSequence(new Random(seed + sequences));
    operations += sequence.length;
    if ((await compare(real, sequence)) === undefined) continue;
    const found = await shrink(real, sequence);
    t.log(JSON.stringify(found, undefined, 1));
    t.fail(
      `They differ with PODNET_SEED=${seed + sequences}: ${found?.difference.real} is ${found?.difference.fake}`,
    );
    return;
  }
  t.log(`${sequences} of ${wanted} sequences, ${operations} operations, PODNET_SEED=${seed}`);
  t.true(sequences >= 100 || sequences === wanted);
});
