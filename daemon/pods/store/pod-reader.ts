import { PodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import { didYouMean } from "../../../core/nearest.ts";
import type { Database } from "../../store/database.ts";
import type { PodRow } from "./pod-row.ts";
import { type DamagedPod, isDamaged, usable } from "./pod-rows.ts";
import {
  findPods,
  getAnyPod,
  getPod,
  getUsablePod,
  listAnyPods,
  listPods,
  listPodsWithMachine,
  namesLike,
  podIds,
} from "./pods.ts";
import { getRun, podsWithRun, type RunRow } from "./runs.ts";

/** The records of pods, as they are read. */
export class PodReader {
  protected readonly db: Database;
  /** What was read last, and how many commits there were. */
  #last: { readonly row: PodRow; readonly commits: number } | undefined;

  constructor(db: Database) {
    this.db = db;
  }

  /**
   * A call reads its pod more than once; without a commit in between it gets the same object.
   * Throws `STATE_CORRUPT` when the record is unreadable.
   */
  get(id: PodId): PodRow | undefined {
    const last = this.#last;
    if (last?.row.id === id && last.commits === this.db.commits && !this.db.inTransaction)
      return last.row;
    return this.#remembered(getPod(this.db, id));
  }

  /** (An open transaction may still be rolled back.) */
  #remembered<Found extends PodRow | DamagedPod | undefined>(row: Found): Found {
    if (row !== undefined && !isDamaged(row) && !this.db.inTransaction)
      this.#last = { row, commits: this.db.commits };
    return row;
  }

  /** Also a pod with an unreadable record. */
  getAny(id: PodId): PodRow | DamagedPod | undefined {
    return getAnyPod(this.db, id);
  }

  /** Undefined also for an unreadable record: for callers that go on with other pods. */
  getUsable(id: PodId): PodRow | undefined {
    return getUsablePod(this.db, id);
  }

  /** Pods that can be worked with: all but the damaged ones. */
  list(): PodRow[] {
    return listPods(this.db);
  }

  /** Of these pods, those that have a machine, running or paused. */
  listWithMachine(): PodRow[] {
    return listPodsWithMachine(this.db);
  }

  listAny(): (PodRow | DamagedPod)[] {
    return listAnyPods(this.db);
  }

  /**
   * The ids of all pods, damaged ones too: nothing that bears one is left over from a pod that is
   * gone.
   */
  ids(): Set<string> {
    return podIds(this.db);
  }

  run(id: PodId): RunRow | undefined {
    return getRun(this.db, id);
  }

  /** The pods that have a recorded machine. */
  withRun(): Set<string> {
    return podsWithRun(this.db);
  }

  /**
   * The pod meant by a name, an id or the start of an id. Throws `POD_NOT_FOUND`, and
   * `STATE_CORRUPT` when its record is damaged.
   */
  find(idOrName: string): PodRow {
    return usable(this.findAny(idOrName));
  }

  /** Also a pod with an unreadable record. Throws `POD_NOT_FOUND`. */
  findAny(idOrName: string): PodRow | DamagedPod {
    const found = this.search(idOrName);
    if (found !== undefined) return found;
    throw new PodnetError("POD_NOT_FOUND", `There is no pod "${idOrName}"`, {
      field: "id_or_name",
      hint: `${didYouMean(idOrName, namesLike(this.db, idOrName))}See podnet list`,
    });
  }

  search(idOrName: string): PodRow | DamagedPod | undefined {
    const [first, second] = findPods(this.db, idOrName);
    if (second === undefined) return this.#remembered(first);
    throw new PodnetError("INVALID_ARGUMENT", `More than one pod id starts with "${idOrName}"`, {
      field: "id_or_name",
      hint: "Write more of the id, or the name",
    });
  }
}
