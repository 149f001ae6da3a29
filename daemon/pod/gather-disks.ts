import { accessSync, constants, statSync } from "node:fs";
import type { PodSpec } from "../../api/pod-spec.ts";
import { isAllowed } from "../../hypervisor/qemu/allowed-files.ts";
import { lookAtDisk } from "../../hypervisor/qemu/image-file.ts";
import type { Database } from "../store/database.ts";
import { disksOfPods } from "../store/pods.ts";
import { realPath } from "./gather-files.ts";
import type { DiskSnapshot, ImageHolder } from "./snapshot.ts";

/** Looks at the disks a spec names. podnetd opens them and hands them over: whom they can be read by else is of no matter. */
export function diskSnapshots(
  { boot }: PodSpec,
  db: Database,
  imagesWithin: readonly string[] | undefined,
): DiskSnapshot[] {
  if (boot.disks.length === 0) return [];
  const holders = imageHolders(db);
  return boot.disks.map(({ path, format }) => {
    const real = imagesWithin === undefined ? path : realPath(path);
    // Not even whether it is there is told of what may not be named.
    if (imagesWithin !== undefined && !isAllowed(real, imagesWithin)) return { kind: "outside" };
    const found = lookAtDisk(real, format);
    if (found.kind === "missing") return { kind: "missing" };
    if (found.kind === "unreadable") return { kind: "unreadable", why: `it ${found.why}` };
    const image = imageAt(real) ?? real;
    return {
      ...found,
      image,
      ...(imagesWithin === undefined ? {} : { real }),
      writable: isWritable(real),
      holders: holders.get(image) ?? [],
    };
  });
}

/** Who has which image. A pod that does not run has it, too: it will read it again below what it has written. */
function imageHolders(db: Database): Map<string, ImageHolder[]> {
  const holders = new Map<string, ImageHolder[]>();
  const images = new Map<string, string | undefined>();
  for (const { pod, path, writes } of disksOfPods(db)) {
    if (!images.has(path)) images.set(path, imageAt(path));
    const image = images.get(path);
    if (image === undefined) continue;
    const use = writes ? "writes" : "reads";
    holders.set(image, [...(holders.get(image) ?? []), { pod, use }]);
  }
  return holders;
}

/** Which file or device is at a path now. */
function imageAt(path: string): string | undefined {
  try {
    const stat = statSync(path, { bigint: true });
    return stat.isBlockDevice() ? `device ${stat.rdev}` : `file ${stat.dev} ${stat.ino}`;
  } catch {
    return undefined;
  }
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
