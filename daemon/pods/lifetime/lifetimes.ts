import type { Clock } from "../../../core/clock.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import { WorkQueue, type WorkTime } from "../../reconcile/work-queue.ts";
import { podBackoff } from "../lifecycle/keep-trying.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import type { Pods } from "../pods.ts";
import type { PodRecords } from "../store/records.ts";
import type { PodPackets } from "./activity.ts";

/** Between two looks at the times of pods, and at their traffic, milliseconds. */
const everyMs = { times: 1000, traffic: 2000 } as const;

export interface LifetimesParts {
  readonly pods: Pick<Pods, "delete" | "held" | "stop">;
  readonly records: PodRecords;
  /** Packets of pods so far. One whose interfaces cannot be counted is left out. */
  readonly count: (pods: readonly LivePod[]) => Promise<ReadonlyMap<PodId, PodPackets>>;
  readonly clock: Clock;
  readonly log: Log;
  /** The system's unless given. */
  readonly time?: WorkTime;
}

type Key = "times" | "traffic" | `pod ${PodId}`;

/**
 * Ends pods by themselves: those whose time is over, and those that have been idle for too long.
 * Times are rows, which a restart finds again. They are compared with the clock every second, so
 * that a clock that is set counts; idle times are of this process, and a restart begins them anew.
 */
export class Lifetimes implements AsyncDisposable {
  readonly #parts: LifetimesParts;
  readonly #queue: WorkQueue<Key>;

  constructor(parts: LifetimesParts) {
    this.#parts = parts;
    const { log, time } = parts;
    this.#queue = new WorkQueue<Key>({
      name: "lifetimes",
      backoff: podBackoff,
      onDegraded: (key, { error }) =>
        log.warn({ key, err: error }, "Failed to end idle or old pods"),
      ...(time === undefined ? {} : { time }),
    });
    this.#queue.add("times", () => this.#lookAtTimes());
    this.#queue.add("traffic", () => this.#lookAtTraffic());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#queue.close();
  }

  async #lookAtTimes(): Promise<void> {
    this.#queue.add("times", () => this.#lookAtTimes(), everyMs.times);
    for (const id of this.#parts.records.expiries.over())
      this.#queue.add(`pod ${id}`, () => this.#endOld(id));
  }

  async #endOld(id: PodId): Promise<void> {
    const { pods, records, log } = this.#parts;
    const row = records.getUsable(id);
    // (A start or a create may have been before this.)
    if (row === undefined || !records.expiries.over().includes(id)) return;
    const { ttlMs = 0, ttlDelete = false } = row.spec.lifetime ?? {};
    const reason = `its time of ${ttlMs / 1000} s is over`;
    log.info({ pod_id: id, deleted: ttlDelete }, "The pod's time is over");
    if (ttlDelete) {
      records.note(row.plan, reason);
      await pods.delete(id, { force: false });
      return;
    }
    if (row.state === "stopped" || row.state === "failed")
      records.processes.forgetNextStart(row.plan);
    else await this.#stop(id, reason);
    records.expiries.drop(row, reason);
  }

  async #lookAtTraffic(): Promise<void> {
    const { pods, records, count, clock } = this.#parts;
    this.#queue.add("traffic", () => this.#lookAtTraffic(), everyMs.traffic);
    const asked = pods.held().filter(({ spec }) => spec.lifetime?.idleStopMs !== undefined);
    const running = asked.filter(({ plan, activity }) => {
      const isRunning = records.getUsable(plan.podId)?.state === "running";
      if (!isRunning) activity.rest();
      return isRunning;
    });
    if (running.length === 0) return;
    const packets = await count(running);
    for (const { plan, spec, activity } of running) {
      const { podId } = plan;
      const counted = packets.get(podId);
      const { idleStopMs = Infinity } = spec.lifetime ?? {};
      // What cannot be counted may be used.
      if (counted === undefined) activity.rest();
      else if (activity.look(clock.monotonic(), counted) >= idleStopMs)
        this.#queue.add(`pod ${podId}`, () => this.#endIdle(podId));
    }
  }

  async #endIdle(id: PodId): Promise<void> {
    const { pods, log } = this.#parts;
    const live = pods.held().find(({ plan }) => plan.podId === id);
    const { idleStopMs = Infinity } = live?.spec.lifetime ?? {};
    // (It may have been used, stopped or started anew meanwhile.)
    if (live === undefined || (live.activity.idleMs ?? 0) < idleStopMs) return;
    log.info({ pod_id: id }, "The pod is idle");
    await this.#stop(id, `idle for ${idleStopMs / 1000} s`);
  }

  async #stop(id: PodId, reason: string): Promise<void> {
    try {
      await this.#parts.pods.stop(id, { force: false, reason });
    } catch (thrown) {
      // A create that failed has left nothing.
      if (!isPodnetError(thrown, "POD_NOT_FOUND")) throw thrown;
    }
  }
}
