import { globSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { type Job, runPool } from "../../../scripts/pool.ts";
import { batchesOf, filesOf, type Stage, stages } from "../../../scripts/stages.ts";

const top = path.resolve(import.meta.dirname, "../../..");

/** Some jobs, what ran alongside what, and the order in which they began. */
class Watched {
  readonly began: string[] = [];
  readonly together = new Map<string, Set<string>>();
  heaviest = 0;
  readonly #running = new Map<string, number>();

  job(name: string, weight: number, rest: Partial<Job> = {}): Job {
    return {
      weight,
      seconds: 1,
      ...rest,
      run: async () => {
        this.began.push(name);
        this.#running.set(name, weight);
        const sum = [...this.#running.values()].reduce((total, each) => total + each, 0);
        this.heaviest = Math.max(this.heaviest, sum);
        const others = [...this.#running.keys()];
        for (const each of others) for (const other of others) this.#note(each, other);
        // Several turns, in which all that has room begins.
        for (let turn = 0; turn < 20; turn++) await Promise.resolve();
        this.#running.delete(name);
      },
    };
  }

  #note(one: string, other: string): void {
    if (one === other) return;
    this.together.set(one, (this.together.get(one) ?? new Set()).add(other));
  }
}

test("jobs run side by side up to the capacity, the longest first", async (t) => {
  const it = new Watched();
  await runPool(
    [
      it.job("short", 1, { seconds: 1 }),
      it.job("long", 1, { seconds: 9 }),
      it.job("waits", 0.25, { seconds: 5 }),
      it.job("waits too", 0.25, { seconds: 4 }),
    ],
    1.5,
  );
  t.deepEqual(it.began, ["long", "waits", "waits too", "short"]);
  t.is(it.heaviest, 1.5);
  t.false(it.together.get("long")?.has("short") ?? false);
});

test("a job of more than a core is not left for last, when nothing is there to fill the other", async (t) => {
  const it = new Watched();
  const light = Array.from({ length: 4 }, (_, i) => it.job(`light${i}`, 0.75, { seconds: 9 }));
  await runPool([...light, it.job("heavy", 1.5, { seconds: 5 })], 2.3);
  t.deepEqual(it.began.slice(0, 2), ["heavy", "light0"]);
  t.true(it.together.get("heavy")?.has("light0"));
});

test("a job that weighs more than the capacity runs, alone", async (t) => {
  const it = new Watched();
  await runPool([it.job("heavy", 9, { seconds: 2 }), it.job("a", 1), it.job("b", 1)], 2);
  t.deepEqual(it.began, ["heavy", "a", "b"]);
  t.is(it.together.get("heavy"), undefined);
  t.true(it.together.get("a")?.has("b"));
});

test("an exclusive job runs with nothing alongside it, after the others", async (t) => {
  const it = new Watched();
  const exclusive = { exclusive: true, seconds: 99 };
  const all = [it.job("alone", 0.1, exclusive), it.job("also", 0.1, exclusive)];
  await runPool([...all, it.job("a", 1), it.job("b", 1)], 4);
  t.deepEqual(it.began, ["a", "b", "alone", "also"]);
  t.is(it.together.get("alone"), undefined);
  t.is(it.together.get("also"), undefined);
});

test("jobs of one place run one at a time, alongside others", async (t) => {
  const it = new Watched();
  const here = { oneAtATime: "here" };
  await runPool([it.job("a", 1, here), it.job("b", 1, here), it.job("other", 1)], 4);
  t.is(it.began.length, 3);
  t.false(it.together.get("a")?.has("b") ?? false);
  t.true(it.together.get("a")?.has("other"));
});

test("a job that breaks breaks the pool", async (t) => {
  const broken = { ...new Watched().job("broken", 1), run: () => Promise.reject(new Error("no")) };
  await t.throwsAsync(runPool([broken], 1), { message: "no" });
});

test("each file of a stage is in one batch, long ones by themselves", (t) => {
  for (const stage of stages) {
    const files = filesOf(stage, true);
    const batches = batchesOf(stage, files);
    t.deepEqual(batches.flatMap((batch) => batch.files).toSorted(), files.toSorted(), stage.name);
    const there = globSync(stage.files, { cwd: top });
    for (const name of Object.keys(stage.long ?? {}))
      t.is(there.filter((file) => file.endsWith(`/${name}.test.ts`)).length, 1, name);
  }
  const stage = { weight: 1, seconds: 8, long: { a: 30 } } as unknown as Stage;
  const files = ["a", "b", "c", "d", "e"].map((name) => `test/x/${name}.test.ts`);
  t.deepEqual(
    batchesOf(stage, files).map((batch) => [batch.files.length, batch.seconds]),
    [
      [1, 30],
      [3, 24],
      [1, 8],
    ],
  );
});
