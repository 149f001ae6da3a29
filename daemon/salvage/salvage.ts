import { mkdirSync } from "node:fs";
import { systemClock } from "../../core/clock.ts";
import { perform } from "../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Driver } from "../../hypervisor/driver.ts";
import type { Confinement } from "../../hypervisor/process/confinement.ts";
import type { Config } from "../config/config.ts";
import { lockPlaces, lockState } from "../store/lock.ts";
import { type KeptPlan, KeptPlans } from "../pods/store/kept-plans.ts";
import { planToReap, type Unknown, unknownMachines } from "../pods/lifecycle/orphans.ts";
import { Database } from "../store/database.ts";
import { getPod, podIds } from "../pods/store/pods.ts";
import { adoptPod } from "./adopt.ts";
import { findStates, type FoundState, chooseState } from "./base.ts";

export interface SalvageParts {
  readonly config: Config;
  readonly driver: Pick<Driver, "running" | "recordOf" | "reap">;
  /** Undefined where machines are not shut in. */
  confinement(): Promise<Confinement | undefined>;
  /** A line for people. */
  say(line: string): void;
}

/** Machines that run, known or not. */
function machines({ config, driver }: SalvageParts): Keepable[] {
  const kept = new KeptPlans(config);
  const { podsDir } = config;
  return unknownMachines(new Set(), { podsDir, driver, kept }).filter(
    (each): each is Keepable => each.pid !== undefined && !each.rowless && each.kept?.left !== true,
  );
}

type Keepable = Unknown & { readonly pid: number };

const nameOf = ({ podId, kept }: Unknown): string =>
  kept === undefined ? podId : `${kept.plan.name} (${podId})`;

/** Says what is there, and what can be done. Changes nothing. */
export function showState(parts: SalvageParts): void {
  const { config, say } = parts;
  const { state, copy, had } = findStates(config.stateDir);
  say(`state    ${stateText(state)}${had === undefined ? "" : `; it had ${had}`}`);
  say(`copy     ${stateText(copy)}`);
  for (const each of machines(parts)) {
    const plan =
      each.kept === undefined ? "no plan is kept, so it cannot be adopted" : "its plan is kept";
    say(`machine  ${nameOf(each)}, pid ${each.pid}, ${each.runDir}: ${plan}`);
  }
}

const stateText = ({ file, commits, problem }: FoundState): string =>
  `${file}: ${problem ?? `${commits ?? 0} commits`}`;

/**
 * Goes on with the state that has the most commits, and puts each machine that runs back into it by
 * its kept plan. Ends nothing. Throws `ALREADY_RUNNING`, and `STATE_CORRUPT` when a machine could
 * not be put back.
 */
export function adoptMachines(parts: SalvageParts): void {
  const { config, driver, say } = parts;
  using locks = lockAll(config);
  void locks;
  using db = chosenState(parts);
  const running = machines(parts);
  const ids = new Set<string>(running.map(({ podId }) => podId));
  const adopting = {
    db,
    driver,
    clock: systemClock,
    quarantineMs: config.quarantineMs,
    configured: config.network.name,
    running: ids,
  };
  const failures: string[] = [];
  for (const each of running) {
    try {
      const kept = each.kept ?? inState(db, each, config);
      const stale = adoptPod({ ...each, kept }, adopting);
      say(`adopted  ${nameOf(each)}, pid ${each.pid}`);
      for (const name of stale) say(`deleted  ${name}, which an older state had in its place`);
    } catch (thrown) {
      const { message } = toPodnetError(thrown);
      say(`failed   ${nameOf(each)}, pid ${each.pid}: ${message}`);
      failures.push(each.podId);
    }
  }
  if (failures.length === 0) return;
  throw new PodnetError("STATE_CORRUPT", `VMs could not be adopted: ${failures.join(" ")}`, {
    hint: "They run on. End them yourself, or by podnetd state remove --yes",
  });
}

/**
 * The plan in the state itself, for a machine without a plan alongside it. Throws when there is
 * none.
 */
function inState(db: Database, { podId }: Unknown, { stateDir }: Config): KeptPlan {
  const row = getPod(db, podId);
  if (row !== undefined)
    return { plan: row.plan, spec: row.spec, networks: [], stateDir, left: false };
  throw new PodnetError("STATE_CORRUPT", "Its plan is missing, in the state and next to it");
}

/**
 * Goes on with the state that has the most commits, and ends the machines that it does not know.
 * Their disks stay.
 */
export async function removeOrphans(parts: SalvageParts): Promise<void> {
  const { config, driver, say } = parts;
  using locks = lockAll(config);
  void locks;
  using db = chosenState(parts);
  const known = podIds(db);
  const confinement = await parts.confinement();
  for (const each of machines(parts).filter(({ podId }) => !known.has(podId))) {
    await driver.reap(undefined, planToReap(each, confinement));
    if (driver.running().has(each.podId))
      throw new PodnetError("INTERNAL", `VM ${nameOf(each)} with pid ${each.pid} did not end`, {
        hint: "It is not where podnetd starts its machines: end it yourself",
      });
    new KeptPlans(config).remove(each.podId);
    say(`removed  ${nameOf(each)}, pid ${each.pid}`);
  }
}

function chosenState({ config, say }: SalvageParts): Database {
  const found = findStates(config.stateDir);
  const aside = chooseState(config.stateDir, found);
  const db = Database.openIn(config.stateDir, undefined, { evenOlder: true });
  say(`state    goes on with ${db.commits} commits; what was there is in ${aside}`);
  return db;
}

function lockAll(config: Config): Disposable {
  using locks = new DisposableStack();
  locks.use(lockState(config.stateDir));
  perform("file", "make directories", () => {
    mkdirSync(config.runDir, { recursive: true, mode: 0o755 });
    mkdirSync(config.disksDir, { recursive: true, mode: 0o700 });
  });
  locks.use(lockPlaces(config));
  return locks.move();
}
