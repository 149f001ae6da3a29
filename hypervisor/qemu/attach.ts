import { PodnetError } from "../../core/errors.ts";
import type { AttachPlan, FoundMachine, VmPlan, VmRecord } from "../driver.ts";
import type { Log } from "../process/log.ts";
import { isRunning } from "../process/process.ts";
import { QemuVm } from "./vm.ts";
import type { QmpClient } from "../qmp/client.ts";
import { lookAtMachine } from "../attach/look.ts";
import { openMonitor } from "../attach/monitor.ts";
import { machinePid, recordOf } from "../attach/process.ts";

/** A plan of a foreign machine. */
export type AttachedVmPlan = VmPlan & { readonly attached: AttachPlan };

export const isAttached = (plan: VmPlan): plan is AttachedVmPlan => plan.attached !== undefined;

/**
 * Milliseconds a guest gets to let go of a NIC: by a root port without ACPI it takes six seconds.
 */
const unplugMs = 9000;
/**
 * Longest search for the owner's QEMU when something of a pod must be removed from it,
 * milliseconds.
 */
const findMs = 10_000;

/**
 * Looks at a foreign machine, and lets go of its monitor. Throws as `openMonitor` and
 * `lookAtMachine`.
 */
export async function look(path: string, signal: AbortSignal): Promise<FoundMachine> {
  using qmp = await openMonitor(path, signal);
  return await lookAtMachine(qmp, signal);
}

/** Connects to a foreign machine. It runs on whatever happens; nothing is changed in it. */
export async function attachVm(
  plan: AttachedVmPlan,
  log: Log,
  signal: AbortSignal,
): Promise<QemuVm> {
  const qmp = await openMonitor(plan.attached.qmp, signal);
  return await opened(qmp, signal, async () => {
    const pid = machinePid(qmp, await qmp.execute("query-cpus-fast", {}, { signal }));
    return await open(qmp, recordOf(pid, qmp.peer.uid, plan.runDir), plan, log, signal);
  });
}

/**
 * Finds it again; undefined when it has ended. Throws `QEMU_EXITED` when another machine has its
 * socket now.
 */
export async function reattachVm(
  record: VmRecord,
  plan: AttachedVmPlan,
  log: Log,
  signal: AbortSignal,
): Promise<QemuVm | undefined> {
  if (!isRunning(record)) return undefined;
  const qmp = await openMonitor(plan.attached.qmp, signal);
  return await opened(qmp, signal, async () => {
    const pid = machinePid(qmp, await qmp.execute("query-cpus-fast", {}, { signal }));
    if (pid !== record.pid)
      throw new PodnetError("QMP_PROTOCOL", "Another machine has the QMP socket now", {
        hint: "Give the first one its socket back, or forget it: podnet detach --force",
        details: { path: plan.attached.qmp, pid, was: record.pid },
      });
    return await open(qmp, record, plan, log, signal);
  });
}

/**
 * Takes back what a machine may have of a pod. Absent is success. Throws `NIC_UNPLUG_PENDING`,
 * `QMP_IN_USE`.
 */
export async function releaseVm(
  record: VmRecord | undefined,
  plan: AttachedVmPlan,
  log: Log,
): Promise<void> {
  // A machine is written down before anything is plugged into it.
  if (record === undefined) return;
  const vm = await reattachVm(record, plan, log, AbortSignal.timeout(findMs));
  await vm?.stop({ graceMs: 0 });
}

const open = (
  session: QmpClient,
  record: VmRecord,
  plan: AttachedVmPlan,
  log: Log,
  signal: AbortSignal,
): Promise<QemuVm> =>
  QemuVm.open({ record, plan, session, ended: undefined, socketMs: 0, unplugMs, log }, signal);

async function opened<T>(qmp: QmpClient, signal: AbortSignal, use: () => Promise<T>): Promise<T> {
  try {
    if (signal.aborted) throw new PodnetError("CANCELLED", "The caller gave up");
    return await use();
  } catch (thrown) {
    qmp.close();
    throw thrown;
  }
}
