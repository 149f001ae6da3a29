import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { changedTests } from "../../../scripts/changed-tests.ts";
import { filesOf, hasTurn, secondsOf, stages } from "../../../scripts/stages.ts";
import { days, inTurn, turnOf } from "../../../scripts/turns.ts";
import { faults } from "../../planted/faults.ts";

const all = stages.map((stage) => ({ stage, files: filesOf(stage, false) }));
const eachTurn = Array.from({ length: days }, (_, i) => i + 1);
const filesIn = (turn: number, changed?: ReadonlySet<string>): readonly string[] =>
  inTurn(all, turn, changed).flatMap(({ files }) => files);

test("each file runs in one turn, or in each", (t) => {
  const times = new Map<string, number>();
  for (const turn of eachTurn)
    for (const file of filesIn(turn)) times.set(file, (times.get(file) ?? 0) + 1);
  for (const { stage, files } of all)
    for (const file of files) t.is(times.get(file), hasTurn(stage, file) ? 1 : days, file);
  t.is(times.size, all.flatMap(({ files }) => files).length);
});

test("a name of a file that has a turn, or takes long, is that of one file", (t) => {
  for (const { stage, files } of all) {
    const turns = Array.isArray(stage.takesTurns) ? stage.takesTurns : [];
    for (const name of [...turns, ...Object.keys(stage.long ?? {})])
      t.is(files.filter((file) => file.endsWith(`/${name}.test.ts`)).length, 1, name);
  }
});

test("the turns take about the same time", (t) => {
  const costs = eachTurn.map((turn) =>
    inTurn(all, turn)
      .flatMap(({ stage, files }) => files.map((file) => stage.weight * secondsOf(stage, file)))
      .reduce((sum, cost) => sum + cost, 0),
  );
  t.true(Math.max(...costs) < 1.1 * Math.min(...costs), costs.join(" "));
});

test("days that follow each other have turns that do, over the ends of months, too", (t) => {
  const begin = Date.UTC(2026, 10, 26);
  const turns = Array.from({ length: 10 }, (_, i) => turnOf(new Date(begin + i * 86_400_000)));
  const first = turns[0] ?? 0;
  t.deepEqual(
    turns,
    turns.map((_, i) => ((first - 1 + i) % days) + 1),
  );
  t.is(turnOf(new Date("2026-11-26T23:59:59Z")), first);
});

test("what was changed runs in each turn", (t) => {
  const [file = ""] = all.find(({ stage }) => stage.name === "kernel")?.files ?? [];
  for (const turn of eachTurn) t.true(filesIn(turn, new Set([file])).includes(file));
});

test("a changed file that shares a rig brings the file that runs it into each turn", (t) => {
  const changed = new Set(["test/cni/attach.test.ts"]);
  for (const turn of eachTurn) {
    const files = filesIn(turn, changed);
    t.true(files.includes("test/cni/together-containers.test.ts"));
    t.false(files.includes("test/cni/attach.test.ts"), "it runs once");
  }
});

test("changed are the test files that differ from upstream, and those that guard changed sources", (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-changed-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const git = (...argv: readonly string[]): unknown =>
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...argv], { cwd: directory });
  const write = (file: string): void => {
    mkdirSync(path.join(directory, path.dirname(file)), { recursive: true });
    writeFileSync(path.join(directory, file), `${file}\n${performance.now()}`);
  };
  t.deepEqual([...changedTests(directory)], [], "no repository");
  const fault = faults[0] as (typeof faults)[number];
  git("init", "-q", "-b", "main");
  for (const file of ["test/kernel/a.test.ts", "test/kernel/b.test.ts", fault.file]) write(file);
  git("add", ".");
  git("commit", "-q", "-m", "first");
  git("branch", "upstream");
  git("branch", "-q", "--set-upstream-to=upstream");
  t.deepEqual([...changedTests(directory)], [], "nothing differs");
  write("test/kernel/a.test.ts");
  t.deepEqual([...changedTests(directory)], ["test/kernel/a.test.ts"]);
  git("commit", "-q", "-a", "-m", "second");
  write("test/kernel/new.test.ts");
  write(fault.file);
  const changed = changedTests(directory);
  for (const file of ["a", "new"].map((name) => `test/kernel/${name}.test.ts`))
    t.true(changed.has(file), file);
  t.true(changed.has(fault.noticedBy.file), "the test that notices a fault of the source");
  t.false(changed.has("test/kernel/b.test.ts"));
});
