import type { PodId } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import type { KeyedLock } from "../../reconcile/keyed-lock.ts";
import type { WorkQueue } from "../../reconcile/work-queue.ts";
import type { Host } from "./host.ts";
import type { LivePod } from "./live-pod.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { PodRecords } from "../store/records.ts";

/** The parts of podnetd that following running pods needs. */
export interface Supervision {
  readonly host: Host;
  readonly records: PodRecords;
  readonly locks: KeyedLock<PodId>;
  readonly log: Log;
  /** Retries after failures. */
  readonly retries: WorkQueue;
  /** Aborted when the daemon lets go of its pods. */
  readonly over: AbortSignal;
  /**
   * Resolves when agents may be reached; absent, they may be at once. At a start they wait for the
   * machines: an agent takes as long to answer as its machine to be adopted.
   */
  readonly agentsMayCome?: Promise<void>;
  /** Counts what a guest did too often to be reported; `what` comes from a small set. */
  dropped?(what: string): void;
  /** Counts bytes of a console that were overwritten by later ones. */
  overwritten?(bytes: number): void;
  /**
   * Writes down how a pod ended, and returns what was thrown. The host has changed by then, so a
   * write that finds no room in the store is repeated until it succeeds.
   */
  writeDown(plan: PodPlan, write: () => void): unknown;
  /** Has the pod started again by its restart policy, in so many milliseconds. */
  restartLater(id: PodId, pauseMs: number): void;
  /** The pod has no machine any more. */
  gone(live: LivePod): void;
}

/** Runs work without a waiting caller; its failure is logged, and harms no other pod. */
export function guard(live: LivePod, watch: Supervision, body: () => void | Promise<void>): void {
  const run = async (): Promise<void> => body();
  run().catch((thrown: unknown) => {
    watch.log.error({ pod_id: live.plan.podId, err: thrown }, "Failed to supervise the pod");
  });
}
