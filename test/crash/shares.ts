import { chmodSync, chownSync, mkdirSync } from "node:fs";
import path from "node:path";
import { type Acts, ofLife } from "./acts.ts";
import { subject } from "./pods.ts";
import type { Worker } from "./worker.ts";

/** Changes of a pod with two shares, one of them writable, which only a confined machine has. */
export type ShareChange = "share-create" | "share-start" | "share-delete";

function create({ client, directory }: Worker): Promise<unknown> {
  const shares = ["one", "two"].map((name) => {
    const hostPath = path.join(directory, `shared-${name}`);
    mkdirSync(hostPath, { recursive: true });
    chmodSync(hostPath, 0o755);
    const writable = name === "two";
    if (writable) chownSync(hostPath, 4321, 4321);
    return { hostPath, path: `/srv/${name}`, writable };
  });
  return client.pods.create({ spec: { name: subject, shares } });
}

const life = ofLife(create);

export const shareChanges: Readonly<Record<ShareChange, Acts>> = {
  "share-create": life.create,
  "share-start": life.start,
  "share-delete": life.delete,
};

/** Failpoints that only a pod with shares comes by. */
export const ofShares = /share|virtiofsd|open qemu\.log/i;
