import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { perform, performAsync, watchEffects } from "../../../../core/effect.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { armFailpoints } from "../../../../daemon/main/failpoints.ts";

test.afterEach.always(() => watchEffects(undefined));

test.serial("nothing is armed without the variable", (t) => {
  armFailpoints(undefined);
  armFailpoints("");
  t.is(
    perform("file", "make x", () => 7),
    7,
  );
});

test.serial("times are written down by the clock that processes share", (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-times-"));
  const file = path.join(directory, "times");
  try {
    armFailpoints(`times:${file}`);
    const before = Number(process.hrtime.bigint()) / 1e9;
    perform("file", "make x", () => 7);
    t.throws(() =>
      perform("file", "make y", () => {
        throw new Error("no room");
      }),
    );
    const lines = readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => /^(\d+\.\d{6}) (.+)$/.exec(line) ?? []);
    t.deepEqual(
      lines.map(([, , name]) => name),
      ["file:make x:before", "file:make x:after", "file:make y:before", "file:make y:failed"],
    );
    const times = lines.map(([, at]) => Number(at));
    t.deepEqual(
      times,
      times.toSorted((a, b) => a - b),
    );
    t.true((times[0] ?? 0) >= before - 1e-6);
    t.true((times[3] ?? 0) <= Number(process.hrtime.bigint()) / 1e9 + 1e-6);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test.serial("what is not understood is refused with the variable's name", (t) => {
  for (const text of [
    "file:make x:before#1",
    "file:make x:before=kill",
    "file:make x:before#0=kill",
    "file:make x:between#1=kill",
    "file:make x:before#1=hang",
    "record:",
    "times:",
    "kill",
    ";",
  ])
    t.throws(() => armFailpoints(text), { code: "CONFIG_INVALID" }, text);
});

test.serial(
  "an error is of its boundary, and comes before or after the call, the Nth time only",
  async (t) => {
    armFailpoints("commit:claim:before#2=error;qmp:quit:after#1=error");
    const made: string[] = [];
    const commit = (): number => perform("commit", "claim", () => made.push("commit"));
    commit();
    const before = t.throws(commit, { code: "STATE_UNWRITABLE" }) as { details?: unknown };
    t.like(before, { details: { injected: true } });
    commit();
    t.deepEqual(made, ["commit", "commit"]);
    const quit = (): Promise<number> => performAsync("qmp", "quit", async () => made.push("quit"));
    await t.throwsAsync(quit(), { code: "QMP_FAILED" });
    t.is(await quit(), 4);
  },
);

test.serial("a hang comes late and goes on, synchronous or not", async (t) => {
  armFailpoints("file:x:before#1=hang:30;qmp:x:after#1=hang:30");
  const begin = performance.now();
  t.is(
    perform("file", "x", () => 1),
    1,
  );
  t.true(performance.now() - begin >= 29);
  t.is(await performAsync("qmp", "x", async () => 2), 2);
  t.true(performance.now() - begin >= 58);
});

test.serial("what limits a call limits its hang", async (t) => {
  armFailpoints("qmp:x:before#1=hang:60000;qmp:x:after#1=hang:60000");
  const call = (limit: () => AbortSignal) => performAsync("qmp", "x", async () => 2, limit);
  const late = await t.throwsAsync(call(() => AbortSignal.timeout(10)));
  t.like(late, { code: "DEADLINE_EXCEEDED" });
  const caller = new AbortController();
  const given = call(() => caller.signal);
  caller.abort(new PodnetError("CANCELLED", "gone"));
  t.like(await t.throwsAsync(given), { code: "CANCELLED" });
});

test.serial("a record holds every side in order, from where it is to begin", (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-failpoints-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, "record");
  armFailpoints(`record:${file};from:commit:claim:after`);
  const broken = (): never => {
    throw new Error("no");
  };
  perform("file", "early", () => {});
  for (let i = 0; i < 2; i++) perform("commit", "claim", () => {});
  t.throws(() => perform("file", "late", broken));
  t.deepEqual(readFileSync(file, "utf8").trim().split("\n"), [
    "commit:claim:after#1",
    "commit:claim:before#1",
    "commit:claim:after#2",
    "file:late:before#1",
    "file:late:failed#1",
  ]);
});

test.serial("a kill ends the process where it stands", (t) => {
  const top = path.resolve(import.meta.dirname, "../../../..");
  const program = `
    import { writeSync } from "node:fs";
    const { perform } = await import("${top}/core/effect.ts");
    const { armFailpoints } = await import("${top}/daemon/main/failpoints.ts");
    armFailpoints(process.env.PODNET_FAILPOINTS);
    perform("file", "x", () => writeSync(1, "made "));
    perform("file", "x", () => writeSync(1, "twice"));`;
  const run = (point: string) =>
    spawnSync(process.execPath, ["--input-type=module", "-e", program], {
      env: { ...process.env, PODNET_FAILPOINTS: `${point}=kill` },
      encoding: "utf8",
    });
  t.like(run("file:x:before#2"), { signal: "SIGKILL", stdout: "made " });
  t.like(run("file:x:after#2"), { signal: "SIGKILL", stdout: "made twice" });
});
