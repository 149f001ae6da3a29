import { statfsSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";

/**
 * The resource that the filesystem of the run directory lacks, without which no machine can start:
 * room, or inodes for sockets. Undefined when it has both. Throws the errors of statfs(2).
 */
export function runDirProblem(runDir: string): PodnetError | undefined {
  const { bavail, ffree, files } = statfsSync(runDir);
  // Filesystems without a table of inodes report 0 inodes.
  const missing = files > 0 && ffree === 0 ? "inode" : bavail === 0 ? "room" : undefined;
  if (missing === undefined) return undefined;
  return new PodnetError(
    "STATE_UNWRITABLE",
    `The run directory "${runDir}" has no ${missing} left`,
    {
      field: "run_dir",
      hint: "Delete other files of its filesystem (df, df -i); machines run on, and none can start until then",
    },
  );
}
