import type { Clock } from "../../core/clock.ts";
import type { PodId, PodName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { HostObservations } from "../../network/bridge/observations.ts";
import type { Journal } from "../events/journal.ts";
import { type GuardData, guardEvents } from "../events/store.ts";
import { WorkQueue, type WorkTime } from "../reconcile/work-queue.ts";
import type { Database } from "../store/database.ts";
import { dropText } from "./drop-text.ts";
import { type CountedDrop, DropReports } from "./drop-reports.ts";

/** Longest that a look may wait for changes of the host, milliseconds. */
const lookMs = 60_000;

/** Who sends by a port. */
export interface PortOwner {
  /** The interface's name inside. */
  readonly interface: string;
  /** Which container it is, for people; absent for a pod. */
  readonly container?: string;
  /** Absent for a container. */
  readonly pod?: { readonly id: PodId; readonly name: PodName };
}

export interface DropWatchParts {
  readonly db: Database;
  readonly journal: Journal;
  readonly observe: Pick<HostObservations, "drops" | "refusals">;
  /** The owners of these ports, by link; without those that have none. */
  readonly ownersOf: (links: ReadonlySet<string>) => ReadonlyMap<string, PortOwner>;
  readonly clock: Clock;
  readonly log: Log;
  /** Between looks, milliseconds. */
  readonly everyMs: number;
  /** The system's unless given. */
  readonly time?: WorkTime;
}

/**
 * Reports what the guard drops of guests and containers, and what the host refuses of them, by
 * events: it looks at the kernel's counters every few seconds. What was reported is in the stored
 * events, so a restart neither loses a report nor repeats one.
 */
export class DropWatch implements AsyncDisposable {
  readonly #parts: DropWatchParts;
  readonly #reports = new DropReports();
  readonly #looks: WorkQueue<"look">;
  readonly #over = new AbortController();

  constructor(parts: DropWatchParts) {
    this.#parts = parts;
    const { db, clock, log, everyMs, time } = parts;
    for (const { podId, timeMs, data } of guardEvents(db)) {
      const atMs = clock.monotonic() - Math.max(0, clock.now() - timeMs);
      for (const drop of data.guard ?? []) this.#reports.note(podId ?? drop.link, [drop], atMs);
    }
    this.#looks = new WorkQueue({
      place: "netlink",
      backoff: { firstMs: everyMs, longestMs: 60_000 },
      onDegraded: (_, { error }) => log.warn({ err: error }, "Failed to count dropped packets"),
      ...(time === undefined ? {} : { time }),
    });
    this.#again();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#looks.close();
  }

  #again(): void {
    this.#looks.add("look", () => this.#look(), this.#parts.everyMs);
  }

  async #look(): Promise<void> {
    const { observe, ownersOf, clock } = this.#parts;
    const signal = AbortSignal.any([this.#over.signal, AbortSignal.timeout(lookMs)]);
    const counted: CountedDrop[] = [
      ...(await observe.drops(signal)),
      ...(await observe.refusals(signal)),
    ];
    const owners = ownersOf(new Set(counted.map(({ link }) => link)));
    const keyOf = (link: string): string | undefined => {
      const owner = owners.get(link);
      return owner === undefined ? undefined : (owner.pod?.id ?? link);
    };
    for (const [key, drops] of this.#reports.due(counted, keyOf, clock.monotonic())) {
      this.#report(drops, owners);
      this.#reports.note(key, drops, clock.monotonic());
    }
    this.#again();
  }

  #report(drops: readonly CountedDrop[], owners: ReadonlyMap<string, PortOwner>): void {
    const { journal, log } = this.#parts;
    const texts: string[] = [];
    const guard: GuardData[] = [];
    let about = {};
    for (const [link, some] of Map.groupBy(drops, (drop) => drop.link)) {
      const { interface: name = "", container = name, pod } = owners.get(link) ?? {};
      if (pod !== undefined) about = { podId: pod.id, podName: pod.name };
      texts.push(dropText(container, some));
      guard.push(...some.map((drop) => ({ interface: name, ...drop })));
    }
    const text = texts.join(". ");
    log.warn({ ...about, guard }, "Packets were dropped or refused");
    journal.emit({ kind: "guard", ...about, data: { text, guard } });
  }
}
