import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AuditLog } from "../../../../daemon/policies/audit-log.ts";
import type { Denial } from "../../../../daemon/policies/denials.ts";
import type { Verdict } from "../../../../daemon/policies/verdicts.ts";
import { openLog } from "../../../../linux/log.ts";

const denial: Denial = {
  holder: "aaa",
  direction: "egress",
  policy: "p",
  rule: "lan",
  reason: "It is for people",
  unit: "packets",
  count: 1,
};
const owner = { pod: { id: "aaa" as never, name: "web" as never } };
const verdict = (port: number): Verdict => ({ ...denial, timeMs: 0, owner, port });

function open(
  path = join(mkdtempSync(join(tmpdir(), "podnet-audit-")), "log"),
  mostBytes = 1 << 20,
) {
  const state = { ms: 0 };
  const audit = new AuditLog({
    path,
    mostBytes,
    ownerOf: () => owner,
    log: openLog({ component: "test", level: "silent" }),
    now: () => state.ms,
  });
  const lines = (file = path): Record<string, unknown>[] =>
    readFileSync(file, "utf8")
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { audit, path, state, lines };
}

test("each verdict is a line of JSON, for its owner alone", async (t) => {
  const { audit, path, lines } = open();
  audit.add(verdict(22));
  await audit[Symbol.asyncDispose]();
  const { holder: _holder, ...fields } = denial;
  const time = "1970-01-01T00:00:00.000Z";
  t.deepEqual(lines(), [{ time, event: "denied", pod: "web", ...fields, port: 22 }]);
  t.is(statSync(path).mode & 0o777, 0o600);
});

test("counts are written when they have grown, at most once a minute each", async (t) => {
  const { audit, state, lines } = open();
  const counts = async (...denials: Denial[]): Promise<unknown[]> => {
    audit.addCounts(denials);
    await audit[Symbol.asyncDispose]();
    return lines().map(({ event, rule, count }) => [event, rule, count].join(" "));
  };
  t.deepEqual(await counts(denial), ["counted lan 1"]);
  state.ms += 59_000;
  const grown = { ...denial, count: 5 };
  t.deepEqual(await counts(grown, { ...denial, rule: "other" }), [
    "counted lan 1",
    "counted other 1",
  ]);
  state.ms += 1000;
  t.is((await counts(grown)).at(-1), "counted lan 5");
  state.ms += 60_000;
  t.is((await counts(grown)).length, 3);
});

test("the file is bounded: it begins anew, and the one before it stays", async (t) => {
  const { audit, path, lines } = open(undefined, 2000);
  for (let n = 0; n < 40; n++) {
    audit.add(verdict(n));
    await audit[Symbol.asyncDispose]();
  }
  t.true(statSync(path).size <= 2000);
  t.true(statSync(`${path}.1`).size <= 2000);
  t.false(existsSync(`${path}.2`));
  t.is(lines().at(-1)?.["port"], 39);
  t.is(Number(lines(`${path}.1`).at(-1)?.["port"]) + 1, Number(lines()[0]?.["port"]));
});

test("what cannot be written is dropped and counted, and nothing waits for it", async (t) => {
  const full = open("/dev/full");
  full.audit.add(verdict(1));
  await full.audit[Symbol.asyncDispose]();
  const directory = mkdtempSync(join(tmpdir(), "podnet-audit-"));
  const path = join(directory, "missing", "log");
  const missing = open(path);
  for (let n = 0; n < 3; n++) missing.audit.add(verdict(n));
  await missing.audit[Symbol.asyncDispose]();
  // It can be written again.
  mkdirSync(join(directory, "missing"));
  missing.audit.add(verdict(9));
  await missing.audit[Symbol.asyncDispose]();
  t.deepEqual(
    missing.lines().map(({ event, lines, port }) => [event, lines ?? port]),
    [
      ["lost", 3],
      ["denied", 9],
    ],
  );
});

test("what waits is bounded, whatever comes", async (t) => {
  const { audit, lines } = open(undefined, 8 << 20);
  for (let n = 0; n < 20_000; n++) audit.add(verdict(n));
  await audit[Symbol.asyncDispose]();
  audit.add(verdict(1));
  await audit[Symbol.asyncDispose]();
  const written = lines();
  const lost = written.find(({ event }) => event === "lost")?.["lines"] as number;
  t.true(lost > 10_000);
  t.is(written.filter(({ event }) => event === "denied").length + lost, 20_001);
});

test("a link in the file's place is not followed", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-audit-"));
  const target = join(directory, "target");
  writeFileSync(target, "");
  symlinkSync(target, join(directory, "log"));
  const { audit } = open(join(directory, "log"));
  audit.add(verdict(1));
  await audit[Symbol.asyncDispose]();
  t.is(readFileSync(target, "utf8"), "");
});
