import { processState } from "../../linux/processes/proc.ts";

/**
 * Why a QEMU that owes an answer cannot give it, as an instruction; undefined when its process
 * shows no reason.
 */
export function standingHint(pid: number | undefined): string | undefined {
  if (pid === undefined) return undefined;
  switch (processState(pid)) {
    case "T":
    case "t":
      return `QEMU's process ${pid} is stopped by a signal or a debugger: let it go on with kill -CONT ${pid}`;
    case "D":
      return `QEMU's process ${pid} waits for a device or a filesystem: see what its disks lie on`;
    default:
      return undefined;
  }
}
