import { statSync } from "node:fs";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { shareTag } from "../../../hypervisor/argv/share-words.ts";
import { isAllowed } from "../../../hypervisor/disks/allowed-files.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import {
  notShared,
  notWritable,
  shareFault,
  unusable,
} from "../../../hypervisor/shares/open-share.ts";
import { realPath } from "./gather-files.ts";
import type { ShareSnapshot, Snapshot } from "./snapshot.ts";

/** What the server of a share may use: MiB, mostly for the kernel's record of open files. */
const ofServer = { memoryMib: 256, pids: 8 } as const;

/** Looks at the directories that a spec shares. */
export const shareSnapshots = (
  { shares = [] }: Pick<PodSpec, "shares">,
  sharesWithin: readonly string[] | undefined,
  writableWithin: readonly string[],
): readonly ShareSnapshot[] =>
  shares.map(({ hostPath, writable = false }) =>
    lookAtShare(hostPath, writable, writable ? writableWithin : sharesWithin),
  );

function lookAtShare(
  path: string,
  writable: boolean,
  within: readonly string[] | undefined,
): ShareSnapshot {
  const real = realPath(path);
  // A directory that may not be named is not even reported as existing or missing.
  if (within !== undefined && !isAllowed(real, within)) return { kind: "outside" };
  try {
    const why = shareFault(statSync(real), writable);
    return why === undefined ? { kind: "directory", real } : { kind: "unusable", why };
  } catch (cause) {
    const { code = "unknown" } = cause as NodeJS.ErrnoException;
    const why =
      code === "ENOENT" || code === "ENOTDIR" ? "does not exist" : `cannot be read (${code})`;
    return { kind: "unusable", why };
  }
}

/**
 * The machine's shares, with the word by which its agent loads what they need. Pure. Throws
 * `SHARE_UNUSABLE`, `PERMISSION_DENIED`, `UNSUPPORTED`.
 */
export function withShares(
  { shares: asked = [] }: Pick<PodSpec, "shares">,
  { shares: found = [], sharesWithin, writableWithin, jail }: Snapshot,
  cmdline: string,
): Pick<VmPlan, "shares" | "sharesWithin" | "writableWithin" | "cmdline"> {
  if (asked.length === 0) return { cmdline };
  if (jail === undefined)
    throw new PodnetError("UNSUPPORTED", "Directories are only shared with confined machines", {
      field: "shares",
      hint: 'Set qemu.confine = "on", or copy the files: podnet cp',
    });
  const shares = asked.map(({ hostPath, path: at, writable }, i) => {
    const file = { path: hostPath, field: `shares[${i}].host_path` };
    const each = found[i] ?? { kind: "unusable", why: "does not exist" };
    if (each.kind === "outside")
      throw writable ? notWritable(file) : notShared(file, sharesWithin ?? []);
    if (each.kind === "unusable") throw unusable(file, each.why);
    return { tag: shareTag(i), path: each.real, at, ...(writable ? { writable } : {}) };
  });
  return {
    shares,
    ...(sharesWithin === undefined ? {} : { sharesWithin }),
    ...(shares.some(({ writable }) => writable) ? { writableWithin: writableWithin ?? [] } : {}),
    cmdline: `${cmdline} podnet.shares`.trimStart(),
  };
}

/** What a jail has to leave room for, of a spec's shares. */
export const roomForShares = ({ shares = [] }: Pick<PodSpec, "shares">) => ({
  memoryMib: shares.length * ofServer.memoryMib,
  pids: shares.length * ofServer.pids,
});
