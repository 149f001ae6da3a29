import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { LeaseEnds, type LeaseEndsLimits } from "../../../daemon/overlays/lease/lease-ends.ts";
import type { TimeLeft } from "../../../overlay/store.ts";

/** An etcd that is asked, and a clock that stands still unless it is moved. */
class Asked {
  now = 1_000_000;
  readonly grants: bigint[] = [];
  atOnce = 0;
  most = 0;
  answer: (grant: bigint) => TimeLeft | undefined = () => ({ seconds: 60, grantedSeconds: 100 });
  /** With this no call answers before it is over. */
  silent = false;

  /**
   * A look ends when all are asked, unless said otherwise: not by time that a busy machine takes.
   */
  ends(limits: Partial<LeaseEndsLimits> = { lookMs: 60_000 }): LeaseEnds {
    const clock = { now: () => this.now, monotonic: () => this.now };
    return new LeaseEnds({ store: { timeLeft: this.#timeLeft }, clock, limits });
  }

  readonly #timeLeft = async (
    grant: bigint,
    signal: AbortSignal,
  ): Promise<TimeLeft | undefined> => {
    this.grants.push(grant);
    this.most = Math.max(this.most, ++this.atOnce);
    try {
      if (this.silent)
        await new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(new Error("over")));
        });
      else await new Promise((resolve) => setImmediate(resolve));
      return this.answer(grant);
    } finally {
      this.atOnce--;
    }
  };
}

const grants = (count: number): Set<bigint> =>
  new Set(Array.from({ length: count }, (_, n) => BigInt(n + 1)));

test("of each lease its end and when it was renewed; of one that has ended nothing", async (t) => {
  const asked = new Asked();
  asked.answer = (grant) => (grant === 2n ? undefined : { seconds: 60, grantedSeconds: 100 });
  const known = await asked.ends().of(grants(2));
  t.deepEqual([...known.keys()], [1n]);
  t.like(known.get(1n), { endsAt: asked.now + 60_000, renewedAt: asked.now - 40_000 });
});

test("four thousand are asked about a thousand a look and few at once; the next looks come to the others", async (t) => {
  const asked = new Asked();
  const ends = asked.ends();
  for (const known of [1000, 2000, 3000, 4000, 4000])
    t.is((await ends.of(grants(4000))).size, known);
  t.is(asked.grants.length, 4000, "none twice, and no more once all are known");
  t.is(new Set(asked.grants).size, 4000);
  t.is(asked.most, 8);
  // What is known goes with its host.
  t.is((await ends.of(grants(10))).size, 10);
  asked.now += 30_000;
  await ends.of(grants(10));
  t.is(asked.grants.length, 4010, "after half a minute they are asked about again");
});

test("an etcd that does not answer costs a look its time and no more; what was known stays", async (t) => {
  const asked = new Asked();
  const ends = asked.ends({ lookMs: 2000 });
  t.is((await ends.of(grants(3))).size, 3);
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  asked.silent = true;
  asked.now += 30_000;
  t.is((await ends.of(grants(100))).size, 3);
  t.is(asked.grants.length, 3 + 8, "no others once the time is over");
});

test("an etcd that refuses is not asked for all the others, and no caller is notified", async (t) => {
  const asked = new Asked();
  asked.answer = () => {
    throw new PodnetError("ETCD_DENIED", "permission denied");
  };
  t.is((await asked.ends().of(grants(1000))).size, 0);
  t.true(asked.grants.length <= 16, `${asked.grants.length}`);
});

test("callers that come together wait for the same look", async (t) => {
  const asked = new Asked();
  const ends = asked.ends();
  const found = await Promise.all([1, 2, 3].map(() => ends.of(grants(50))));
  t.deepEqual(
    found.map(({ size }) => size),
    [50, 50, 50],
  );
  t.is(asked.grants.length, 50);
});
