import { PodnetError } from "../../core/errors.ts";
import { bootId, hasThread, nameOf, processOfThread, processStartTime } from "../../linux/proc.ts";
import type { VmRecord } from "../driver.ts";
import type { QmpClient } from "../qmp/client.ts";
import { parseProcessors } from "./machine.ts";

/** What a QEMU's process is called, unless somebody chose another name for it. */
const likeQemu = /^(?:qemu|kvm)/;

/**
 * The process behind a monitor: whoever listens, as the kernel says, if the processors' threads are
 * its; else the one whose they are, for sockets that something else opened for QEMU. Throws
 * `UNSUPPORTED`, `QMP_PROTOCOL`.
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
