import { chmodSync, mkdirSync } from "node:fs";
import path from "node:path";
import type { Acts } from "./acts.ts";
import { subject } from "./pods.ts";
import type { Worker } from "./worker.ts";

/** Changes of a pod with two shares, which only a confined machine has. */
export type ShareChange = "share-create" | "share-start" | "share-delete";

const pod = { idOrName: subject };

function create({ client, directory }: Worker): Promise<unknown> {
  const shares = ["one", "two"].map((name) => {
    const hostPath = path.join(directory, `shared-${name}`);
    mkdirSync(hostPath, { recursive: true });
    chmodSync(hostPath, 0o755);
    return { hostPath, path: `/srv/${name}` };
  });
  return client.pods.create({ spec: { name: subject, shares } });
}

export const shareChanges: Readonly<Record<ShareChange, Acts>> = {
  "share-create": {
    stays: undefined,
    from: "commit:claim:before",
    prepare: async () => {},
    change: create,
  },
  "share-start": {
    stays: "pod",
    from: "commit:creating:before",
    prepare: async (worker) => {
      await create(worker);
      await worker.client.pods.stop(pod);
    },
    change: ({ client }) => client.pods.start(pod),
  },
  "share-delete": {
    stays: undefined,
    from: "commit:deleting:before",
    prepare: create,
    change: ({ client }) => client.pods.delete(pod),
  },
};

/** Failpoints that only a pod with shares comes by. */
export const ofShares = /share|virtiofsd|open qemu\.log/i;
