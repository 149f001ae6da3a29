import { readdirSync } from "node:fs";
import { join } from "node:path";
import { PodnetError } from "../../../core/errors.ts";
import { parsePodId, type PodId } from "../../../core/names.ts";
import { type Driver, templatePrefix, type VmPlan } from "../../../hypervisor/driver.ts";
import { parkedPrefix, unmark } from "../pool/markers.ts";
import { type Confinement, planJail } from "../../../hypervisor/process/confinement.ts";
import type { Database } from "../../store/database.ts";
import { salvageHint } from "../../store/found.ts";
import { podIds } from "../store/pods.ts";
import type { KeptPlan, KeptPlans } from "../store/kept-plans.ts";

/** A directory of a machine of which there is no row. */
export interface Unknown {
  readonly podId: PodId;
  readonly runDir: string;
  /** The machine is a template's, or was to wait in a pool: it never had a row. */
  readonly rowless: boolean;
  /** The machine's process; undefined when none runs. */
  readonly pid: number | undefined;
  readonly kept: KeptPlan | undefined;
}

/**
 * A running machine without a row. The row was lost: it is durable before its machine starts, and
 * is removed after the machine's end.
 */
export type Orphan = Unknown & { readonly pid: number };

export interface OrphanParts {
  readonly podsDir: string;
  readonly driver: Pick<Driver, "running">;
  readonly kept: KeptPlans;
}

/** The directories of machines that are not `known`. */
export function unknownMachines(
  known: ReadonlySet<string>,
  { podsDir, driver, kept }: OrphanParts,
): Unknown[] {
  const all = namesIn(podsDir);
  const names = all.filter((name) => !known.has(name));
  if (names.length === 0) return [];
  const there = new Set(all);
  const running = driver.running();
  return names.flatMap((name) => {
    const template = name.startsWith(templatePrefix);
    const podId = podIdOf(template ? name.slice(templatePrefix.length) : name);
    if (podId === undefined) return [];
    const runDir = join(podsDir, name);
    const rowless = template || there.has(parkedPrefix + podId);
    return [{ podId, runDir, rowless, pid: running.get(podId), kept: kept.get(podId) }];
  });
}

/**
 * Whether the machine's row was lost. Machines of templates, of a pool, or left by a delete by
 * force are not orphans.
 */
export const isOrphan = (found: Unknown): found is Orphan =>
  found.pid !== undefined && !found.rowless && found.kept?.left !== true;

/**
 * Refuses to start when machines run that the state does not know: what ended them next would do so
 * on a guess. Changes nothing. Throws `STATE_CORRUPT`, naming them.
 */
export function refuseOrphans(db: Database, parts: OrphanParts): void {
  const orphans = unknownMachines(podIds(db), parts).filter(isOrphan);
  if (orphans.length === 0) return;
  throw new PodnetError(
    "STATE_CORRUPT",
    `The state knows nothing of machines that run: ${orphans.map(orphanText).join("; ")}`,
    {
      hint: salvageHint,
      details: {
        pods: orphans.map(({ podId }) => podId).join(" "),
        pids: orphans.map(({ pid }) => pid).join(" "),
        run_dirs: orphans.map(({ runDir }) => runDir).join(" "),
      },
    },
  );
}

/** An orphan, for people. */
const orphanText = ({ podId, pid, runDir, kept }: Orphan): string => {
  const what =
    kept === undefined
      ? podId
      : `"${kept.plan.name}" (${podId}) of the state in "${kept.stateDir}"`;
  return `${what}, pid ${pid}, ${runDir}`;
};

/** The plan by which such a machine is removed: its own, where that was kept. */
export function planToReap(
  { podId, runDir, rowless, kept }: Unknown,
  confinement: Confinement | undefined,
): VmPlan {
  if (kept !== undefined && !rowless) return kept.plan.vm;
  const machine = { podId, vcpu: 1, memoryMib: 0 };
  return {
    ...machine,
    cmdline: "",
    disks: [],
    runDir,
    // Which user it was is of no matter to its end.
    ...(confinement === undefined ? {} : { jail: planJail(confinement, machine, 0) }),
  };
}

function podIdOf(name: string): PodId | undefined {
  try {
    return parsePodId(name);
  } catch {
    return undefined;
  }
}

/** Removes the markers of machines that have ended, or are `known` by their rows. */
export function removeMarkers(podsDir: string, known: ReadonlySet<string>): void {
  const names = new Set(namesIn(podsDir));
  for (const name of names) {
    const podId = name.startsWith(parkedPrefix)
      ? podIdOf(name.slice(parkedPrefix.length))
      : undefined;
    if (podId !== undefined && (known.has(podId) || !names.has(podId)))
      unmark({ podId, runDir: join(podsDir, podId) });
  }
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
