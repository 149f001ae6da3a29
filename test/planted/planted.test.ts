import { readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { Random } from "../sim/random.ts";
import { faults } from "./faults.ts";
import { Tree } from "./tree.ts";

const top = path.resolve(import.meta.dirname, "../..");
const complete = process.env["PODNET_TEST_FULL"] === "1";
/** Faults tried in a short run: drawn anew each time, so that over a few runs each has its turn. */
const share = 25;
/** Trees, and so faults, at a time. */
const sideBySide = 2;

const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const random = new Random(seed);
const drawn = complete
  ? faults
  : faults
      .filter(({ slow }) => slow !== true)
      .map((fault) => ({ fault, at: random.next() }))
      .toSorted((a, b) => a.at - b.at)
      .slice(0, share)
      .map(({ fault }) => fault);

const trees: Tree[] = [];
/** Trees in which nothing is planted now, and who waits for one. */
const free: Tree[] = [];
const waiting: ((tree: Tree) => void)[] = [];

async function inSomeTree<T>(body: (tree: Tree) => Promise<T>): Promise<T> {
  const tree = free.pop() ?? (await new Promise<Tree>((resolve) => waiting.push(resolve)));
  try {
    return await body(tree);
  } finally {
    const next = waiting.shift();
    if (next === undefined) free.push(tree);
    else next(tree);
  }
}

test.serial.before((t) => {
  t.log(`seed ${seed}`);
  for (let i = 0; i < sideBySide; i++) trees.push(new Tree());
  free.push(...trees);
});
test.serial.after.always(() => {
  for (const tree of trees) tree[Symbol.dispose]();
});

test("each fault has a name of its own", (t) => {
  t.is(new Set(faults.map(({ name }) => name)).size, faults.length);
});

test("each fault stands where it is to be planted, once", (t) => {
  for (const { name, file, find } of faults)
    t.is(readFileSync(path.join(top, file), "utf8").split(find).length, 2, `${name}, ${file}`);
});

for (const fault of drawn) {
  // Slow ones boot machines or build: one after the other.
  const each = fault.slow === true ? test.serial : test;
  each(`noticed (${fault.kind}): ${fault.name}`, async (t) => {
    await inSomeTree(async (tree) => {
      t.timeout(500_000);
      const { failed, output } = await tree.run(fault);
      t.true(failed, `${fault.file}: nobody noticed (seed ${seed}):\n${output}`);
    });
  });
}
