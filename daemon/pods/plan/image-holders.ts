import { statSync } from "node:fs";
import type { Database } from "../../store/database.ts";
import { filesOfPods } from "../store/stored-plans.ts";
import type { ImageSnapshot, ImageHolder } from "./snapshot.ts";

/**
 * The holders of files and devices, by the identity that `imageAt` returns: links and other paths
 * to a file lead to one entry.
 */
export type ImageHolders = ReadonlyMap<string, readonly ImageHolder[]>;

/**
 * Looks up all files that pods and the node itself use. A stopped pod still holds its files: it
 * reads them again when it starts. The node holds its default image, so that no pod can write to
 * the image that later pods boot from.
 */
export function imageHolders(
  db: Database,
  { kernel, initrd }: Pick<ImageSnapshot, "kernel" | "initrd">,
): ImageHolders {
  const holders = new Map<string, ImageHolder[]>();
  const images = new Map<string, string | undefined>();
  const add = (path: string, holder: ImageHolder): void => {
    if (!images.has(path)) images.set(path, imageAt(path));
    const image = images.get(path);
    if (image !== undefined) holders.set(image, [...(holders.get(image) ?? []), holder]);
  };
  for (const path of [kernel, initrd]) add(path, { use: "reads" });
  for (const { pod, path, writes } of filesOfPods(db))
    add(path, { pod, use: writes ? "writes" : "reads" });
  return holders;
}

/** Identifies the file or device at a path; undefined when there is none. */
export function imageAt(path: string): string | undefined {
  try {
    const stat = statSync(path, { bigint: true });
    return stat.isBlockDevice() ? `device ${stat.rdev}` : `file ${stat.dev} ${stat.ino}`;
  } catch {
    return undefined;
  }
}
