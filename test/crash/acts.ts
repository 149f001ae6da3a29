import type { Worker } from "./worker.ts";

/** A change of a node, or of a pod that runs, that can be made again and again. */
export interface Acts {
  /** The first effect of the change, as failpoints count from it. */
  readonly from: string;
  /** What it is of is never lost; undefined where it makes or unmakes that. */
  readonly stays: "pod" | "network" | undefined;
  /** Makes what is to be changed. */
  prepare(worker: Worker): Promise<unknown>;
  change(worker: Worker): Promise<unknown>;
}
