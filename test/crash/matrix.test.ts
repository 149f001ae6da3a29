import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { standInConfig } from "../lab/standin.ts";
import { Random } from "../sim/random.ts";
import { enumerate } from "./enumerate.ts";
import { openLane } from "./lane.ts";
import { casesOf, runMatrix } from "./matrix.ts";
import type { Action, Case, Operation, Point } from "./points.ts";
import { sample } from "./sample.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const summaryFile = path.resolve(import.meta.dirname, "../../build/summary/crash");
const random = new Random(seed);

/** Cases of each operation beside its kills in a short run. */
const sampled = { error: 3, hang: 1 } as const;
/** Kills with real machines in a short run. */
const sampledReal = 5;

const directory = mkdtempSync(path.join(tmpdir(), "podnet-crash-vm-"));
const sums = { points: 0, cases: 0, leaks: 0 };
let config: string;
let points: ReadonlyMap<Operation, readonly Point[]>;

test.before("podnetd tells its failpoints", async (t) => {
  t.timeout(120_000);
  // No look for drift but after a change.
  config = `drift_s = 3600\n${await standInConfig(directory)}`;
  points = await enumerateIn(config, ["start", "create", "delete", "recover"]);
});

test.after.always("the closing line", (t) => {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(path.dirname(summaryFile), { recursive: true });
  const { points: count, cases, leaks } = sums;
  writeFileSync(summaryFile, `crash points=${count} cases=${cases} leaks=${leaks} seed=${seed}\n`);
  t.pass();
});

function chosen(all: readonly Case[]): readonly Case[] {
  const of = (action: Action): Case[] => all.filter((each) => each.action === action);
  if (full) return all;
  return [
    ...of("kill"),
    ...sample(of("error"), sampled.error, random),
    ...sample(of("hang"), sampled.hang, random),
  ];
}

/** Parts of an operation's cases, so that a slow machine is not taken for one that hangs. */
const operations = [
  { operation: "create", what: "a create", parts: 3 },
  { operation: "delete", what: "a delete", parts: 1 },
  { operation: "recover", what: "a recovery, and the recovery after it,", parts: 3 },
  { operation: "start", what: "a first start", parts: 2 },
] as const;

for (const { operation, what, parts } of operations) {
  let cases: readonly Case[] = [];
  for (let part = 1; part <= parts; part += 1) {
    const name = `${what} that is killed, fails or hangs at any point leaves one pod that runs or nothing`;
    test.serial(`${name} (${part} of ${parts})`, async (t) => {
      t.timeout(full ? 7_200_000 : 290_000);
      if (part === 1) {
        const all = points.get(operation) ?? [];
        t.true(all.length > 20, "too few points to be all");
        sums.points += all.length;
        cases = chosen(casesOf(operation, all));
      }
      const [from, to] = [part - 1, part].map((n) => Math.ceil((cases.length * n) / parts));
      await run(t, cases.slice(from, to), { config, lanes: 2 });
    });
  }
}

test.serial("the same with QEMU, confined, at points of a create", async (t) => {
  t.timeout(full ? 7_200_000 : 280_000);
  const real = 'drift_s = 3600\n[qemu]\nconfine = "on"\n';
  const operations: readonly Operation[] = full ? ["create", "delete", "recover"] : ["create"];
  const found = await enumerateIn(real, operations);
  const kills = [...found].flatMap(([operation, all]) =>
    casesOf(operation, all).filter(({ action }) => action === "kill"),
  );
  if (full) sums.points += kills.length;
  const cases = full ? kills : sample(kills, sampledReal, random);
  await run(t, cases, { config: real, lanes: 1 });
});

async function run(
  t: ExecutionContext,
  cases: readonly Case[],
  where: { readonly config: string; readonly lanes: number },
): Promise<void> {
  const result = await runMatrix(cases, {
    ...where,
    log: (text) => {
      if (process.env["PODNET_CRASH_LOG"] === "1") process.stderr.write(`${text}\n`);
    },
  });
  t.log(`${result.cases} cases, PODNET_SEED=${seed}`);
  sums.cases += result.cases;
  sums.leaks += result.failures.length;
  t.true(result.failures.length === 0, [`PODNET_SEED=${seed}`, ...result.failures].join("\n\n"));
}

async function enumerateIn(
  where: string,
  operations: readonly Operation[],
): Promise<ReadonlyMap<Operation, readonly Point[]>> {
  await using lane = await openLane(`points${operations.length}`, where);
  return await enumerate(lane, operations);
}
