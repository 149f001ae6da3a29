import { subject } from "./pods.ts";
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

const pod = { idOrName: subject };

/** The create of the pod under test, its start after a stop, and its delete. */
export const ofLife = (create: Acts["change"]) =>
  ({
    create: {
      stays: undefined,
      from: "commit:claim:before",
      prepare: async () => {},
      change: create,
    },
    start: {
      stays: "pod",
      from: "commit:creating:before",
      prepare: async (worker) => {
        await create(worker);
        await worker.client.pods.stop(pod);
      },
      change: ({ client }) => client.pods.start(pod),
    },
    delete: {
      stays: undefined,
      from: "commit:deleting:before",
      prepare: create,
      change: ({ client }) => client.pods.delete(pod),
    },
  }) satisfies Readonly<Record<string, Acts>>;
