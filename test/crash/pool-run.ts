import { copyFileSync, mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import { parkedPrefix } from "../../daemon/pods/pool/markers.ts";
import { templateNicMac } from "../../hypervisor/driver.ts";
import { execIn } from "../vm/daemon-rig.ts";
import { armed } from "./arming.ts";
import { countedAnew } from "./enumerate.ts";
import { inspect } from "./inspect.ts";
import type { Baselines } from "./outcome.ts";
import { bystander, create, remove, restart, started, subject } from "./pods.ts";
import { type Action, looks, parse, type Point, pointsIn } from "./points.ts";
import { type CaseVisits, everywhere, type Failing } from "./visit-all.ts";
import { passes } from "./visit-node.ts";
import { openWorker, type Worker } from "./worker.ts";

/** What is done with machines that wait. */
export type PoolAct =
  /** A podnetd that starts makes its template, and the machines. */
  | "fill"
  /** A pod takes a machine, and another one is made in its place. */
  | "claim"
  /** The machines are ended. */
  | "drain"
  /** The image was replaced: a create finds out, the machines are ended, others are made. */
  | "outdated";

/** One failpoint of an act, and what is done at it. */
export interface PoolCase extends Failing {
  readonly act: PoolAct;
}

/** A worker whose podnetd keeps real machines waiting. */
export interface PoolWorker extends AsyncDisposable {
  readonly worker: Worker;
  readonly baselines: Baselines;
  /** A file of its own, which can be replaced. */
  readonly initrd: string;
  /** What no machine from here on may have again. */
  readonly had: { readonly ids: Set<string>; readonly boots: Set<string> };
}

/** So many machines wait: one for a pod, and one alongside it. */
const size = 2;

/** Longest from the answer to an act to the last point it comes by, milliseconds. */
const reachMs = 5000;
/** Longest until outdated machines have ended, with a boot on a busy machine, milliseconds. */
const outdatedMs = 60_000;

interface Act {
  /** The first effect from which points are counted. */
  readonly from: string;
  /** With a full pool, unless the act is to fill it. */
  prepare(site: PoolWorker): Promise<unknown>;
  act(site: PoolWorker): Promise<unknown>;
}

const filled = ({ worker }: PoolWorker): Promise<unknown> => worker.client.node.fillPools({});

async function claimed(site: PoolWorker): Promise<void> {
  await create(site.worker, subject);
  await filled(site);
}

/** Each begins with a podnetd that has just started. */
const acts: Readonly<Record<PoolAct, Act>> = {
  fill: { from: "file:mark parked:before", prepare: async () => {}, act: filled },
  claim: { from: "commit:claim:before", prepare: filled, act: claimed },
  drain: {
    // (Building the template comes by most effects of an end. It is over before a pod comes.)
    from: "commit:claim:before",
    async prepare(site) {
      await filled(site);
      await claimed(site);
    },
    act: ({ worker }) => worker.client.node.drainPools({}),
  },
  outdated: {
    from: "commit:claim:before",
    async prepare(site) {
      await filled(site);
      utimesSync(site.initrd, new Date(), new Date());
    },
    async act(site) {
      const before = parked(site.worker);
      await create(site.worker, subject);
      for (const deadline = performance.now() + outdatedMs; ; await delay(50)) {
        const now = parked(site.worker);
        if (!before.some((id) => now.includes(id))) break;
        if (performance.now() > deadline) throw new Error("Outdated machines are not ended");
      }
      await filled(site);
    },
  },
};

export const poolActs = Object.keys(acts) as readonly PoolAct[];

/** Ids of the machines that wait, or are being made. */
const parked = ({ directory }: Worker): readonly string[] =>
  readdirSync(path.join(directory, "run/pods"))
    .filter((name) => name.startsWith(parkedPrefix))
    .map((name) => name.slice(parkedPrefix.length));

/** Opens one with a bystander from the pool, and compares from there. */
export async function openPoolWorker(name: string): Promise<PoolWorker> {
  await using made = new AsyncDisposableStack();
  const directory = mkdtempSync(path.join(tmpdir(), `podnet-pool-${name}-`));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const initrd = path.join(directory, "initramfs.gz");
  copyFileSync(path.join(import.meta.dirname, "../../build/image/initramfs.gz"), initrd);
  const config = `drift_s = 3600
quarantine_s = 0
factory = "pool"
[qemu]
confine = "on"
[image]
initrd = "${initrd}"
[pool]
size = ${size}
reserve_mib = 0
`;
  const worker = made.use(await openWorker(name, config));
  const bare = await worker.bare();
  await started(worker, []);
  await worker.client.node.fillPools({});
  await worker.client.node.drainPools({});
  const alone = await worker.inventory();
  await worker.client.node.fillPools({});
  await create(worker, bystander);
  await restart(worker, []);
  await worker.client.node.fillPools({});
  await worker.client.node.drainPools({});
  const withBystander = await worker.inventory();
  const held = made.move();
  return {
    worker,
    initrd,
    baselines: { bare, alone, withBystander },
    had: { ids: new Set(), boots: new Set() },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

/** The failpoints of an act: those of one run, as each begins with a boot. */
export async function enumeratePool(site: PoolWorker, act: PoolAct): Promise<readonly Point[]> {
  const { worker } = site;
  const { from, prepare, act: body } = acts[act];
  await restart(worker, [`from:${from}`]);
  await prepare(site);
  const prepared = worker.record().length;
  await body(site);
  const record = countedAnew(worker.record(), from, act === "fill" ? 0 : prepared);
  const problems = await converged(site);
  if (problems.length > 0) throw new Error(`Nothing is armed, and still: ${problems.join("\n")}`);
  return pointsIn(record).filter((point) => !looks.test(parse(point).name));
}

/** Some actions at every point where they can be. */
export const poolCases = (
  act: PoolAct,
  points: readonly Point[],
  actions: readonly Action[],
): readonly PoolCase[] => everywhere(points, actions).map((failing) => ({ act, ...failing }));

/** How these cases are visited, in these workers and in others. */
export const poolVisits = (
  cases: readonly PoolCase[],
  ready: readonly PoolWorker[],
): CaseVisits<PoolCase, PoolWorker> => ({
  cases,
  ready,
  open: (number) => openPoolWorker(`pools${number}`),
  title: ({ act, point, action }) => `${act} ${point}=${action}`,
  visit,
});

async function visit(
  site: PoolWorker,
  { act, point, action }: PoolCase,
): Promise<readonly string[] | undefined> {
  const { worker } = site;
  const { from, prepare, act: body } = acts[act];
  await worker.kill();
  await worker.start([`from:${from}`, armed(point, action)]);
  await prepare(site)
    .then(() => body(site))
    .catch(refused);
  const reached =
    action === "kill"
      ? (await worker.ended(reachMs)) !== undefined
      : await passes(worker, point, reachMs);
  const problems = await restarted(site);
  return reached ? problems : undefined;
}

/** podnetd may refuse, or not answer any more. */
function refused(thrown: unknown): void {
  if (!isPodnetError(thrown)) throw thrown;
}

/**
 * Kills podnetd, if it lives, and starts it again. What is wrong after that: machines that were
 * left, and pods with what others have or had.
 */
export async function restarted(site: PoolWorker): Promise<readonly string[]> {
  const { worker, had } = site;
  const before = parked(worker);
  await worker.kill();
  await started(worker, []);
  const { pods } = await worker.client.pods.list({});
  const owned = new Set(pods.map(({ id }) => id));
  // A machine that was becoming a pod's is its pod's, and else goes.
  for (const id of before) if (!owned.has(id)) had.ids.add(id);
  return await converged(site);
}

/** What is wrong with the pods that a full pool gives, and with what is there without it. */
async function converged(site: PoolWorker): Promise<readonly string[]> {
  await filled(site);
  const problems = await newcomers(site);
  await site.worker.client.node.drainPools({});
  const left = parked(site.worker).map((id) => `a marker of ${id} is left`);
  return [...problems, ...left, ...(await inspect(site, "after the restart", {}))];
}

/** Makes two pods of the pool, compares them with all others that are and were, and ends them. */
async function newcomers({ worker, had }: PoolWorker): Promise<readonly string[]> {
  const { client } = worker;
  const problems: string[] = [];
  const names = ["one", "two"];
  for (const name of names) {
    await create(worker, name);
    const { pod } = await client.pods.get({ idOrName: name });
    const detail = pod?.spans.find(({ step }) => step === "vm.start")?.detail ?? "nothing";
    if (!detail.endsWith("from the pool")) problems.push(`${name} does not come from the pool`);
    const id = pod?.id ?? "";
    if (had.ids.has(id)) problems.push(`${name} has the machine ${id}, which was another's`);
    had.ids.add(id);
    const boot = await said(worker, name, "cat", "/proc/sys/kernel/random/boot_id");
    if (had.boots.has(boot)) problems.push(`${name} has the boot id of another guest`);
    had.boots.add(boot);
  }
  const { pods } = await client.pods.list({});
  const macs = new Map<string, string>([[templateNicMac, "the template"]]);
  for (const { name, interfaces } of pods) {
    const mac = await said(worker, name, "cat", "/sys/class/net/eth0/address");
    if (mac !== interfaces[0]?.mac) problems.push(`${name} has ${mac} in its guest`);
    const other = macs.get(mac);
    if (other !== undefined) problems.push(`${name} and ${other} share ${mac}`);
    macs.set(mac, name);
  }
  for (const name of names) await remove(worker, name);
  return problems;
}

const said = async ({ client }: Worker, name: string, ...words: string[]): Promise<string> =>
  (await execIn(client, name, ...words)).output.trim();
