import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { standInConfig } from "../lab/standin.ts";
import { type Change, firewallChanges, ofMixed, ofPlain, withStandIns } from "./changes.ts";
import { enumerate, enumerateChanges } from "./enumerate.ts";
import { openWorker } from "./worker.ts";
import { casesOf, runMatrix } from "./matrix.ts";
import { type Action, type Case, leftBehind, type Operation, type Point } from "./points.ts";
import { ofShares } from "./shares.ts";
import { sample, shuffled } from "./sample.ts";
import { full, log, random, seed, short, summarise } from "./stage.ts";

/**
 * An operation is killed at one failpoint of so many, by chance: in a run of all stages at few, of
 * which the day draws others.
 */
const killsOneOf = short ? 8 : 1;
/** Cases of each operation alongside these kills. */
const alongside = { error: 3, hang: 1 } as const;
/** Cases of an operation in a short run whose kills are sampled, too. */
const few = { kill: short ? 2 : 4, error: 1, hang: 0 } as const;
/** Cases of changes in a short run: kills of each, and of all of them the others. */
const ofChanges = { kill: 1, error: 4, hang: 1 } as const;
/** Kinds of changes that a short run takes of those there are. */
const someChanges = short ? { plain: 3, mixed: 1 } : { plain: 9, mixed: 3 };
/** Cases of changes of pods with foreign links. */
const ofMixedPods = { kill: 1, error: 2, hang: 1 } as const;
/** The cases that are visited with the other firewall driver, too. */
const ofFirewall = { kill: 1, error: 1, hang: 0 } as const;
/**
 * Kills with real machines: in a short run, and of clones in a complete one, as each is killed with
 * its template.
 */
const sampledReal = { create: 3, clone: 2, shares: 2, clonesInFull: 40 } as const;

const directory = mkdtempSync(path.join(tmpdir(), "podnet-crash-vm-"));
const sums = { points: 0, kills: 0, cases: 0, leaks: 0 };
/** Runs of the matrix that were begun and have not come to their end. */
let unfinished = 0;
let config: string;

test.before("machines that stand in", async () => {
  // No look for drift but after a change.
  config = `drift_s = 3600\n${await standInConfig(directory)}`;
});

test.after.always("the closing line", (t) => {
  rmSync(directory, { recursive: true, force: true });
  t.is(unfinished, 0, "a matrix that was broken off says nothing of leaks");
  const { points, kills, cases, leaks } = sums;
  summarise(
    "pods",
    `crash: ${kills} kills, PODNET_SEED=${seed}\ncrash points=${points} cases=${cases} leaks=${leaks}`,
  );
});

/**
 * Operations with what a test of them says, and in parts, so that a slow machine is not taken for
 * one that hangs.
 */
const operations: readonly TestedOperation[] = [
  { operation: "create", what: "a create", parts: 3 },
  { operation: "undo", what: "the undo of a create that failed", parts: 1, few },
  { operation: "delete", what: "a delete", parts: 1 },
  { operation: "again", what: "the end of a machine, and the start after it,", parts: 1, few },
  { operation: "recover", what: "a recovery, and the recovery after it,", parts: 3, others: 8 },
  // (A short run restarts podnetd alongside a real one: test/vm/attach-ends.test.ts.)
  ...(full
    ? [
        {
          operation: "reattach",
          what: "a start that finds a foreign machine again",
          parts: 1,
        } as const,
      ]
    : []),
  { operation: "start", what: "a first start", parts: 1, few },
  { operation: "down", what: "going down", parts: 1, few },
];

interface TestedOperation extends Chosen {
  readonly operation: Exclude<Operation, Change>;
  readonly what: string;
  readonly parts: number;
}

interface Chosen {
  /** So many cases of it, kills included. */
  readonly few?: Readonly<Record<Action, number>>;
  /**
   * It is killed at the failpoints that no operation before it comes by, and at so many of the
   * others.
   */
  readonly others?: number;
}

/** Where something was killed already in this run. */
const killedAt = new Set<string>();

/** Of all cases those that this run takes: a complete one all, a short one a sample. */
function chosen(all: readonly Case[], { few, others }: Chosen): readonly Case[] {
  const of = (action: Action): Case[] => all.filter((each) => each.action === action);
  if (full) return all;
  const { error, hang } = few ?? alongside;
  const kills = few === undefined ? onceEach(of("kill"), others) : of("kill");
  const killed = few?.kill ?? Math.ceil(kills.length / killsOneOf);
  return [
    ...sample(kills, killed, random),
    ...sample(of("error"), error, random),
    ...sample(of("hang"), hang, random),
  ];
}

/**
 * Of the times that an operation comes by a failpoint, one; of failpoints where something was
 * killed already so many. Where several kills leave the same (`leftBehind`), one, by chance.
 */
function onceEach(kills: readonly Case[], others = Number.POSITIVE_INFINITY): readonly Case[] {
  const left = leftBehind(kills.map(({ point }) => point));
  const failpoints = Map.groupBy(kills, ({ point }) => point.slice(0, point.lastIndexOf("#")));
  const known = [...failpoints.keys()].filter((each) => killedAt.has(each));
  const again = new Set(sample(known, others, random));
  const chosen = new Set<Case>();
  const met = new Set<number | undefined>();
  for (const [failpoint, times] of shuffled([...failpoints], random)) {
    if (killedAt.has(failpoint) && !again.has(failpoint)) continue;
    killedAt.add(failpoint);
    if (times.some(({ point }) => met.has(left.get(point)))) continue;
    for (const each of sample(times, 1, random)) {
      chosen.add(each);
      met.add(left.get(each.point));
    }
  }
  return kills.filter((each) => chosen.has(each));
}

/**
 * A run of all stages takes one of these subjects, which have their days in turn. (The seed of such
 * a run is its date.)
 */
const subjects = ["operations", "changes", "machines"] as const;
const takes = (subject: (typeof subjects)[number]): boolean =>
  !short || subjects[seed % subjects.length] === subject;

/** A run of all stages takes a create, and of the others so many, which the day draws. */
const someOperations = 2;
const [creates, ...others] = operations;
const taken =
  short && creates !== undefined
    ? [creates, ...sample(others, someOperations, random)]
    : operations;

for (const each of takes("operations") ? taken : []) {
  const { operation, what, parts } = each;
  let cases: readonly Case[] = [];
  for (let part = 1; part <= parts; part += 1) {
    const name = `${what} that is killed, fails or hangs at any point leaves one pod that runs or nothing`;
    test.serial(`${name} (${part} of ${parts})`, async (t) => {
      t.timeout(full ? 7_200_000 : 290_000);
      if (part === 1) {
        const points = await pointsAlongside(operation);
        t.true(points.length > 20, "too few points to be all");
        sums.points += points.length;
        cases = chosen(casesOf(operation, points), each);
      }
      const [from, to] = [part - 1, part].map((n) => Math.ceil((cases.length * n) / parts));
      await run(t, cases.slice(from, to), { config, workers: full ? 4 : 2 });
    });
  }
}

const groups: readonly ChangesGroup[] = full
  ? withStandIns.map((change) => ({ what: change, changes: [change], counts: ofChanges }))
  : [
      {
        what: "each change of a pod that runs, and of networks",
        changes: sample(ofPlain, someChanges.plain, random),
        counts: ofChanges,
      },
      {
        what: "each of a pod with a bridge and a foreign tap, and with addresses on lo",
        changes: sample(ofMixed, someChanges.mixed, random),
        counts: ofMixedPods,
      },
    ];

for (const { what, changes, counts } of takes("changes") ? groups : [])
  test.serial(
    `there wholly or not at all, killed, failed or held up anywhere: ${what}`,
    async (t) => {
      t.timeout(full ? 7_200_000 : 290_000);
      await runChanges(t, changes, {
        points: await pointsOfChanges(changes, config),
        config,
        counts,
      });
    },
  );

if (takes("changes"))
  test.serial(
    "the same with nftables: networks made and deleted, ports published and not",
    async (t) => {
      t.timeout(full ? 7_200_000 : 290_000);
      const nftables = `firewall = "nftables"\n${config}`;
      const points = await pointsOfChanges(firewallChanges, nftables);
      await runChanges(t, firewallChanges, { points, config: nftables, counts: ofFirewall });
    },
  );

interface ChangesGroup {
  readonly what: string;
  readonly changes: readonly Change[];
  /** As `ChangesHow`'s. */
  readonly counts: Readonly<Record<Action, number>>;
}

interface ChangesHow {
  readonly points: ReadonlyMap<Change, readonly Point[]>;
  readonly config: string;
  /** Cases in a short run: kills of each, and of all of them the others. */
  readonly counts: Readonly<Record<Action, number>>;
}

async function runChanges(
  t: ExecutionContext,
  group: readonly Change[],
  { points, config: where, counts }: ChangesHow,
): Promise<void> {
  const casesIn = group.map((change) => casesOf(change, points.get(change) ?? []));
  for (const [at, each] of casesIn.entries()) t.true(each.length > 8, group[at]);
  const all = casesIn.flat();
  const of = (wanted: Action, among: readonly Case[] = all): Case[] =>
    among.filter(({ action }) => action === wanted);
  sums.points += of("kill").length;
  const few = [
    ...casesIn.flatMap((each) => sample(of("kill", each), counts.kill, random)),
    ...sample(of("error"), counts.error, random),
    ...sample(of("hang"), counts.hang, random),
  ];
  await run(t, full ? all : few, { config: where, workers: full ? 4 : 2 });
}

/**
 * On real machines an operation's points are those of its stand-in, but for those of the jail. A
 * run of all stages takes one of them.
 */
const realOperations: readonly Exclude<Operation, Change>[] = full
  ? ["create", "delete", "recover", "clone"]
  : sample(["create", "clone"], short ? 1 : 2, random);

const confined = `drift_s = 3600
[access]
writable_share_paths = ["${tmpdir()}"]
[qemu]
confine = "on"
`;

for (const operation of takes("machines") ? realOperations : []) {
  test.serial(`the same with QEMU, confined, at points of: ${operation}`, async (t) => {
    t.timeout(full ? 7_200_000 : 280_000);
    const points = await pointsOf(operation, confined);
    const kills = casesOf(operation, points).filter(({ action }) => action === "kill");
    t.true(kills.length > 20, "too few points to be all");
    sums.points += points.length;
    await run(t, sampledKills(operation, kills), { config: confined, workers: 1 });
  });
}

const sharing = ["share-create", "share-start", "share-delete"] as const;

const atShares = async (t: ExecutionContext): Promise<void> => {
  t.timeout(full ? 7_200_000 : 280_000);
  // A deletion comes by none: what serves shares ends as QEMU does.
  const chosen = full ? sharing : sample(sharing.slice(0, 2), 1, random);
  const points = await pointsOfChanges(chosen, confined);
  const cases = chosen.flatMap((change) => {
    const all = points.get(change) ?? [];
    const own = all.filter((point) => change === "share-delete" || ofShares.test(point));
    t.true(own.length > 8, `${change}: ${own.join(" ")}`);
    sums.points += own.length;
    return casesOf(change, own);
  });
  const of = (action: Action): Case[] => cases.filter((each) => each.action === action);
  const few = [
    ...sample(of("kill"), sampledReal.shares, random),
    ...sample(of("error"), 1, random),
  ];
  await run(t, full ? cases : few, { config: confined, workers: 1 });
};

// (A run of all stages has no time for its boots.)
if (!short) test.serial("the same with QEMU, confined, at points that only shares bring", atShares);

function sampledKills(operation: Operation, kills: readonly Case[]): readonly Case[] {
  if (operation === "clone")
    return sample(kills, full ? sampledReal.clonesInFull : sampledReal.clone, random);
  return full ? kills : sample(kills, sampledReal.create, random);
}

async function run(
  t: ExecutionContext,
  cases: readonly Case[],
  where: { readonly config: string; readonly workers: number },
): Promise<void> {
  unfinished += 1;
  const result = await runMatrix(cases, { ...where, log });
  unfinished -= 1;
  const kills = cases.filter(({ action }) => action === "kill").length;
  const missed = result.missed === 0 ? "" : `, ${result.missed} looks not come by again`;
  t.log(`${kills} kills, ${result.cases} cases${missed}, PODNET_SEED=${seed}`);
  sums.kills += kills - result.missed;
  sums.cases += result.cases;
  sums.leaks += result.failures.length;
  t.true(result.failures.length === 0, [`PODNET_SEED=${seed}`, ...result.failures].join("\n\n"));
}

const found = new Map<TestedOperation["operation"], Promise<readonly Point[]>>();

/**
 * The failpoints of an operation, looked for side by side with those of its neighbour: each alone
 * leaves a core idle.
 */
async function pointsAlongside(operation: TestedOperation["operation"]): Promise<readonly Point[]> {
  const at = operations.findIndex((each) => each.operation === operation);
  const first = at - (at % 2);
  const pair = operations.slice(first, first + 2).map((each) => {
    const points = found.get(each.operation) ?? pointsOf(each.operation, config);
    found.set(each.operation, points);
    return points;
  });
  // Both are over before any case begins; one that fails is reported by its own test.
  await Promise.allSettled(pair);
  return (await found.get(operation)) ?? [];
}

async function pointsOf(
  operation: Exclude<Operation, Change>,
  where: string,
): Promise<readonly Point[]> {
  await using worker = await openWorker(`points-${operation}`, where);
  return await enumerate(worker, operation);
}

async function pointsOfChanges(
  of: readonly Change[],
  where: string,
): Promise<ReadonlyMap<Change, readonly Point[]>> {
  await using worker = await openWorker("points-changes", where);
  return await enumerateChanges(worker, of, full ? 3 : 2);
}
