/**
 * What test files get as `ava` when several run in one process (`run.ts`): it notes what each file
 * declares, and then has ava run the files one after the other, each as ava would alone.
 */
import ava, { type ExecutionContext } from "ava";

type Implementation = (t: ExecutionContext) => unknown;
type Hook = () => unknown;

interface DeclaredTest {
  readonly title: string;
  readonly implementation: Implementation;
  readonly isSerial: boolean;
}

interface DeclaredFile {
  readonly name: string;
  readonly tests: DeclaredTest[];
  readonly before: Hook[];
  readonly after: Hook[];
  readonly beforeEach: Hook[];
  readonly afterEach: Hook[];
}

const files: DeclaredFile[] = [];

/** What is declared from here on is of the test file with this path from the top of the project. */
export function beginFile(name: string): void {
  files.push({ name, tests: [], before: [], after: [], beforeEach: [], afterEach: [] });
}

function current(): DeclaredFile {
  const file = files.at(-1);
  if (file === undefined) throw new Error("A test is declared before any file has begun");
  return file;
}

const declare =
  (isSerial: boolean) =>
  (title: string, implementation: Implementation): void => {
    current().tests.push({ title, implementation, isSerial });
  };

const note =
  (kind: "before" | "after" | "beforeEach" | "afterEach") =>
  (hook: Hook): void =>
    void current()[kind].push(hook);
const hooks = {
  before: note("before"),
  beforeEach: note("beforeEach"),
  after: { always: note("after") },
  afterEach: { always: note("afterEach") },
};

/** The part of ava's `test` that files in one process may use: a file with more runs by itself. */
const test = Object.assign(declare(false), {
  ...hooks,
  skip: (title: string, implementation: Implementation): void =>
    ava.skip(`${current().name} › ${title}`, implementation),
  serial: Object.assign(declare(true), hooks),
});
// oxlint-disable-next-line import/no-default-export -- as ava has it
export default test;

/** A test that ava has begun, and that waits for its turn. */
interface Waiting {
  readonly isSerial: boolean;
  readonly begin: () => void;
  readonly ended: Promise<void>;
}

/** Has ava run all that was declared. Prints how long each file took, for `scripts/run-ava.ts`. */
export function declareAll(): void {
  let earlier = Promise.resolve();
  for (const file of files) {
    const waiting = file.tests.map((each) => declareWaiting(file, each));
    earlier = earlier.then(() => runFile(file, waiting));
    // (What a hook throws ends the process, as an error that no test waits for.)
    earlier.catch((thrown: unknown) =>
      queueMicrotask(() => {
        throw thrown;
      }),
    );
  }
  // The process stays until the last file's hooks have run.
  ava.after.always(() => earlier);
}

/** Declares a test to ava that begins when its turn comes, and ends with its last clean-up. */
function declareWaiting(file: DeclaredFile, declared: DeclaredTest): Waiting {
  const turn = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  ava(`${file.name} › ${declared.title}`, async (t) => {
    // What is declared first runs last.
    t.teardown(end.resolve);
    await turn.promise;
    t.teardown(async () => {
      for (const hook of file.afterEach) await hook();
    });
    for (const hook of file.beforeEach) await hook();
    await declared.implementation(t);
  });
  return { isSerial: declared.isSerial, begin: turn.resolve, ended: end.promise };
}

/** What all files of a process share. */
const state = (): Readonly<Record<string, string | undefined>> => ({
  ...process.env,
  "working directory": process.cwd(),
  "file mask": `0${process.umask().toString(8)}`,
});

/** Throws when a file left another state than it found. */
function requireUnchanged(file: string, found: ReturnType<typeof state>): void {
  const left = state();
  const names = Object.keys({ ...found, ...left }).filter((name) => left[name] !== found[name]);
  if (names.length === 0) return;
  const each = names.map(
    (name) => `${name} ${left[name] ?? "unset"}, found ${found[name] ?? "unset"}`,
  );
  throw new Error(`${file} left to the files after it: ${each.join("; ")}`);
}

async function runFile({ name, before, after }: DeclaredFile, waiting: readonly Waiting[]) {
  const begun = performance.now();
  const found = state();
  for (const hook of before) await hook();
  for (const { begin, ended } of waiting.filter(({ isSerial }) => isSerial)) {
    begin();
    await ended;
  }
  const together = waiting.filter(({ isSerial }) => !isSerial);
  for (const { begin } of together) begin();
  for (const { ended } of together) await ended;
  for (const hook of after.toReversed()) await hook();
  requireUnchanged(name, found);
  console.log(`took ${Math.round(performance.now() - begun)} ms: ${name}`);
}
