import test from "ava";
import { KeyedLock } from "../../daemon/reconcile/keyed-lock.ts";
import { drawFaults } from "./draw.ts";
import { faults } from "./faults.ts";
import { Tree, type Unharmed } from "./tree.ts";

const complete = process.env["PODNET_TEST_FULL"] === "1";
/** Trees, and so faults, at a time. */
const sideBySide = 2;

const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const drawn = complete ? faults : drawFaults(faults, seed);

const trees: Tree[] = [];
/** Trees in which nothing is planted now, and who waits for one. */
const free: Tree[] = [];
const waiting: ((tree: Tree) => void)[] = [];

/** Tests of one file make things of one name: they run one after the other. */
const files = new KeyedLock<string>();

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

/** Each file's tests without a fault, run once before its first fault. */
const unharmed = new Map<string, Promise<Unharmed>>();

function unharmedRun(tree: Tree, file: string): Promise<Unharmed> {
  const begun = unharmed.get(file);
  if (begun !== undefined) return begun;
  const some = drawn.filter(({ noticedBy }) => noticedBy.file === file);
  const running = tree.runUnharmed(file, some).then((first) => {
    // A machine that is busy elsewhere may spoil one run; a test that fails alone fails twice.
    const again = some.filter(({ noticedBy }) => first.failing.includes(noticedBy.title));
    return again.length === 0 ? first : tree.runUnharmed(file, again);
  });
  unharmed.set(file, running);
  return running;
}

test.serial.before((t) => {
  t.log(`PODNET_SEED=${seed}`);
  for (let i = 0; i < sideBySide; i++) trees.push(new Tree());
  free.push(...trees);
});
test.serial.after.always(() => {
  for (const tree of trees) tree[Symbol.dispose]();
});

for (const fault of drawn) {
  // Slow ones boot machines or build: one after the other.
  const each = fault.slow === true ? test.serial : test;
  each(`noticed (${fault.kind}): ${fault.name}`, async (t) => {
    const { file, title } = fault.noticedBy;
    const judge = async (tree: Tree): Promise<void> => {
      t.timeout(500_000);
      const without = await unharmedRun(tree, file);
      t.false(
        without.failing.includes(title),
        `${file} fails without any fault (PODNET_SEED=${seed}):\n${without.output}`,
      );
      const { failed, output } = await tree.run(fault);
      t.true(failed, `${fault.file}: not noticed (PODNET_SEED=${seed}):\n${output}`);
    };
    await files.run(file, () => inSomeTree(judge));
  });
}
