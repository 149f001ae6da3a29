import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type Acts, ofLife } from "./acts.ts";
import type { Worker } from "./worker.ts";
import { create as createPlain, subject } from "./pods.ts";

/** Changes of a pod that writes over an image in files of its own, and of disks plugged into it. */
export type DiskChange =
  | "disk-create"
  | "disk-start"
  | "disk-delete"
  /** Of a pod that runs: a disk that podnetd makes, and one of a file. */
  | "disk-add"
  | "disk-remove"
  | "disk-again";

const pod = { idOrName: subject };

function create({ client, directory }: Worker): Promise<unknown> {
  const image = path.join(directory, "disk.raw");
  writeFileSync(image, Buffer.alloc(1 << 20));
  const disks = [{ path: image }, { path: image }, { path: image, readOnly: true }];
  const plugged = [{ sizeMib: 1 }];
  return client.pods.create({ spec: { name: subject, boot: { disks }, disks: plugged } });
}

const add = ({ client }: Worker): Promise<unknown> =>
  client.pods.addDisk({ ...pod, disk: { name: "data", sizeMib: 1 } });

async function plugged(worker: Worker): Promise<void> {
  await createPlain(worker, subject);
  await add(worker);
}

const life = ofLife(create);

export const diskChanges: Readonly<Record<DiskChange, Acts>> = {
  "disk-create": life.create,
  // What it wrote stays with it: without its files it does not start.
  "disk-start": life.start,
  "disk-delete": life.delete,
  "disk-add": {
    stays: "pod",
    from: "commit:learn:before",
    prepare: (worker) => createPlain(worker, subject),
    change: add,
  },
  "disk-remove": {
    stays: "pod",
    from: "commit:learn:before",
    prepare: plugged,
    change: ({ client }) => client.pods.removeDisk({ ...pod, name: "data" }),
  },
  // Its disks are plugged in again.
  "disk-again": {
    stays: "pod",
    from: "commit:creating:before",
    prepare: async (worker) => {
      await plugged(worker);
      await worker.client.pods.stop(pod);
    },
    change: ({ client }) => client.pods.start(pod),
  },
};

/** The plugged disks that the subject may have afterwards. */
export const disksWhole = {
  "disk-add": ["", "data 1 MiB"],
  "disk-remove": ["", "data 1 MiB"],
  "disk-again": ["data 1 MiB"],
} as const;

export const disksText = ({ disks }: Pod): string =>
  disks.map(({ name, madeMib }) => `${name} ${madeMib} MiB`).join(", ");
