import { PodnetError } from "../../core/errors.ts";
import {
  bootId,
  hasThread,
  nameOf,
  processOfThread,
  processStartTime,
} from "../../linux/processes/proc.ts";
import type { VmRecord } from "../driver.ts";
import type { QmpClient } from "../qmp/client.ts";
import { parseProcessors } from "./machine.ts";

/** The usual names of a QEMU process; its owner may have chosen another. */
const likeQemu = /^(?:qemu|kvm)/;

/**
 * The process behind a monitor: the listener that the kernel reports, if it owns the processors'
 * threads; else the owner of these threads, since another program may have opened the socket for
 * QEMU. Throws `UNSUPPORTED`, `QMP_PROTOCOL`.
 */
export function machinePid(qmp: QmpClient, cpus: unknown): number {
  const [thread = 0] = parseProcessors(cpus);
  const { pid } = qmp.peer;
  if (pid > 0 && (hasThread(pid, thread) || likeQemu.test(nameOf(pid) ?? ""))) return pid;
  const owner = processOfThread(thread);
  if (owner !== undefined && likeQemu.test(nameOf(owner) ?? "")) return owner;
  throw new PodnetError("UNSUPPORTED", "The machine's process cannot be identified from here", {
    field: "qmp_socket",
    hint: "Run podnetd and QEMU in one pid namespace: its end could not be noticed otherwise",
    details: { listener: pid, thread },
  });
}

/** How to know that process again. Throws `QEMU_EXITED` when it has ended. */
export function recordOf(pid: number, uid: number, runDir: string): VmRecord {
  const startTime = processStartTime(pid);
  if (startTime === undefined)
    throw new PodnetError("QEMU_EXITED", "The machine has ended", { details: { pid } });
  return { pid, startTime, bootId: bootId(), uid, runDir };
}
