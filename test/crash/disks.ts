import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Acts } from "./acts.ts";
import type { Worker } from "./worker.ts";
import { subject } from "./pods.ts";

/** Changes of a pod that writes over an image in files of its own. */
export type DiskChange = "disk-create" | "disk-start" | "disk-delete";

const pod = { idOrName: subject };

function create({ client, directory }: Worker): Promise<unknown> {
  const image = path.join(directory, "disk.raw");
  writeFileSync(image, Buffer.alloc(1 << 20));
  const disks = [{ path: image }, { path: image }, { path: image, readOnly: true }];
  return client.pods.create({ spec: { name: subject, boot: { disks } } });
}

export const diskChanges: Readonly<Record<DiskChange, Acts>> = {
  "disk-create": {
    stays: undefined,
    from: "commit:claim:before",
    prepare: async () => {},
    change: create,
  },
  // What it wrote stays with it: without its files it does not start.
  "disk-start": {
    stays: "pod",
    from: "commit:creating:before",
    prepare: async (worker) => {
      await create(worker);
      await worker.client.pods.stop(pod);
    },
    change: ({ client }) => client.pods.start(pod),
  },
  "disk-delete": {
    stays: undefined,
    from: "commit:deleting:before",
    prepare: create,
    change: ({ client }) => client.pods.delete(pod),
  },
};
