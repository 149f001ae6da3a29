import { mkdirSync, readdirSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { perform } from "../../../core/effect.ts";
import type { PodId } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import { readRegular } from "../../../linux/files/regular-file.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import { decisionsOf } from "../../store/plans-of-decisions.ts";
import { type PodPlan, readStoredPlan } from "./pod-plan.ts";

/** The parts of a pod that are kept alongside its row. */
export interface KeptPlan {
  readonly spec: PodSpec;
  readonly plan: PodPlan;
  /** Networks its interfaces are on. */
  readonly networks: readonly NetworkDefinition[];
  /** The state directory that the pod belongs to. */
  readonly stateDir: string;
  /** A delete by force left the machine: should it still run, podnetd ends it. */
  readonly left: boolean;
}

/** What is kept of a pod. */
export type Kept = Pick<KeptPlan, "plan" | "spec" | "networks">;

interface Stored extends Omit<KeptPlan, "plan"> {
  readonly plan: unknown;
}

/** The directory of kept plans. */
export const plansDirectory = ({ runDir }: { readonly runDir: string }): string =>
  join(runDir, "plans");

/** Longest a kept plan may be, bytes; they have some ten thousand. */
const limit = 16 * 2 ** 20;

/**
 * Plans of pods in files of the run directory, in case the state is lost: `podnet state adopt` puts
 * a running machine back into the state by its file. The files follow the rows. They are never
 * flushed, as they mean nothing without a machine, and a restart of the host ends the machines too.
 */
export class KeptPlans {
  readonly #directory: string;
  readonly #stateDir: string;
  readonly #log: Log | undefined;

  constructor(
    { runDir, stateDir }: { readonly runDir: string; readonly stateDir: string },
    log?: Log,
  ) {
    this.#directory = plansDirectory({ runDir });
    this.#stateDir = stateDir;
    this.#log = log;
  }

  /**
   * Writes a pod's plan. A failure is logged only: the row is the truth, and this is a second copy.
   * A file that is renamed over another is written to the disk at once by ext4 (auto_da_alloc), so
   * the earlier one is removed first. A kill in between leaves the new one alone, whole, under its
   * temporary name.
   */
  put(of: Kept, left = false): void {
    this.#write(of.plan.podId, this.#asText(of, left));
  }

  /** As `put`, unless the plan is kept already. */
  ensure(of: Kept): void {
    const kept = this.#asText(of, false);
    if (textOf(this.#pathOf(of.plan.podId)) !== kept) this.#write(of.plan.podId, kept);
  }

  #asText({ plan, spec, networks }: Kept, left: boolean): string {
    return JSON.stringify({ version: 1, stateDir: this.#stateDir, left, networks, spec, plan });
  }

  #write(podId: PodId, kept: string): void {
    try {
      perform("file", "keep plan", () => {
        const path = this.#pathOf(podId);
        const written = `${path}.new`;
        const write = (): void => writeFileSync(written, kept, { mode: 0o600 });
        // (The directory is there but for the first time.)
        if (!succeeds(write)) {
          mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
          write();
        }
        succeeds(() => unlinkSync(path));
        renameSync(written, path);
      });
    } catch (err) {
      this.#log?.warn({ pod_id: podId, err }, "The pod's plan cannot be kept alongside its row");
    }
  }

  /** Absent is success; a failure is logged, and the next start removes the file. */
  remove(podId: PodId): void {
    this.#remove(`${podId}.json`, `${podId}.json.new`);
  }

  /** Undefined when there is none, or none that can be used. */
  get(podId: PodId): KeptPlan | undefined {
    try {
      const stored = JSON.parse(this.#textOf(podId) ?? "") as Stored;
      const plan = readStoredPlan(decisionsOf(stored.plan, stored.spec));
      return plan.podId === podId ? { ...stored, plan } : undefined;
    } catch {
      return undefined;
    }
  }

  /** Removes the plans of pods that no longer exist, and temporary files alongside a plan. */
  removeOthers(known: ReadonlySet<string>): void {
    const names = new Set(this.#names());
    for (const name of names) {
      const [, id, temporary] = /^([a-z2-7]{12})\.json(\.new)?$/.exec(name) ?? [];
      // Other files are not podnet's.
      if (id === undefined) continue;
      const isSecond = temporary !== undefined && names.has(`${id}.json`);
      if (isSecond || !known.has(id)) this.#remove(name);
    }
  }

  #textOf(podId: PodId): string | undefined {
    const path = this.#pathOf(podId);
    return textOf(path) ?? textOf(`${path}.new`);
  }

  #remove(...names: readonly string[]): void {
    try {
      perform("file", "remove kept plan", () => {
        for (const name of names) rmSync(join(this.#directory, name), { force: true });
      });
    } catch (err) {
      this.#log?.warn({ names, err }, "A pod's kept plan cannot be removed");
    }
  }

  #names(): readonly string[] {
    try {
      return readdirSync(this.#directory);
    } catch {
      return [];
    }
  }

  #pathOf(podId: PodId): string {
    return join(this.#directory, `${podId}.json`);
  }
}

/** Undefined for a file that is absent, or cannot be read. */
function textOf(path: string): string | undefined {
  try {
    return readRegular(path, limit).toString();
  } catch {
    return undefined;
  }
}

/** Whether what is absent was there; throws any other error. */
function succeeds(work: () => void): boolean {
  try {
    work();
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== "ENOENT") throw thrown;
    return false;
  }
}
