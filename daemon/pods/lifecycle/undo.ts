import { toPodnetError } from "../../../core/errors.ts";
import { dropChanging, dropDisks } from "../disks/act-disks.ts";
import { leaveSandboxes, releaseSandboxes } from "../interfaces/act-sandboxes.ts";
import { everyPort } from "../interfaces/pod-ports.ts";
import type { Host } from "./host.ts";
import type { LivePod } from "./live-pod.ts";
import { guestOf } from "../guest/guest-of.ts";
import { logDirectory, removeLog } from "../process/process-log.ts";
import { stopProcess } from "../process/stop-process.ts";
import { type UndoKind, type UndoOf, undoSteps } from "../plan/steps.ts";

export interface UndoOptions {
  /** False ends the machine without asking the guest. */
  readonly graceful: boolean;
  /**
   * Leaves the pod's rules to a later sweep, which removes the rules of all pods in the time of
   * one.
   */
  readonly rulesLater?: boolean;
  /**
   * Also removes what the pod wrote to its disks: the pod is being deleted, or has never run.
   * `last` keeps the disks when another part could not be undone, so that the pod can be started
   * again.
   */
  readonly dropDisks?: "last" | "anyway";
  /** No connections of its addresses are left. */
  readonly flowsEnded?: boolean;
}

type UndoAction<K extends UndoKind> = (
  step: UndoOf<K>,
  live: LivePod,
  host: Host,
  options: UndoOptions,
) => Promise<void>;

/** Longest a single undo may take before the next is tried, milliseconds. */
const undoLimitMs = 20_000;
/** Longest a machine may take to run again for its guest to power off, milliseconds. */
const resumeMs = 3000;

const undoActions: { readonly [K in UndoKind]: UndoAction<K> } = {
  "port.detach": async (_step, live, host) => {
    const signal = AbortSignal.timeout(undoLimitMs);
    await everyOne(
      everyPort(live.plan).ports.map(({ tap }) =>
        host.network.remove({ kind: "ports", pod: live.plan.podId, tap }, signal),
      ),
    );
  },

  "guest.power-off": async (_step, live, host, { graceful }) => {
    const { guest, identity } = live;
    live.guest = undefined;
    if (guestOf(live.plan).hasPowerButton && graceful && live.vm !== undefined) {
      await resumeForItsEnd(live);
      live.poweringOff = true;
    }
    if (guest === undefined) return endProcess(live);
    try {
      if (graceful) await stopMain(live);
      // An agent that never said who it is would not hear this either.
      if (graceful && identity !== undefined) {
        await resumeForItsEnd(live);
        await guest.powerOff(AbortSignal.timeout(host.timeouts.stopMs));
        live.poweringOff = true;
      }
    } catch {
      // A guest that does not power off is ended by the next step: nothing is lost by its silence.
    } finally {
      await guest.close();
      endProcess(live);
    }
  },

  "vm.stop": async (_step, live, host) => {
    const { vm } = live;
    live.vm = undefined;
    try {
      const ask = guestOf(live.plan).hasPowerButton && live.poweringOff;
      const { stopMs, powerButtonMs } = host.timeouts;
      const longestMs = ask ? powerButtonMs : stopMs;
      await vm?.stop({ graceMs: live.poweringOff ? longestMs : 0, ask });
    } finally {
      // Also ends what a live connection does not know of: files, and a process of an earlier
      // podnetd.
      await host.driver.reap(live.record, live.plan.vm);
    }
    live.record = undefined;
    live.plugged.clear();
    live.disks.clear();
  },

  "guest.leave": async (_step, live) => {
    const { guest } = live;
    live.guest = undefined;
    await guest?.close();
  },

  "vm.release": async (_step, live, host) => {
    const { vm, record, plan } = live;
    live.vm = undefined;
    if (vm === undefined) await host.driver.reap(record, plan.vm);
    else await vm.stop({ graceMs: 0 });
    live.record = undefined;
    live.plugged.clear();
    live.disks.clear();
  },

  "disk.drop": (_step, live, host, options) =>
    options.dropDisks === undefined ? dropChanging(live, host) : dropDisks(live),

  "log.drop": async (_step, { plan }, host, { dropDisks }) => {
    if (dropDisks !== undefined) removeLog(logDirectory(host.processes.logsDir, plan.podId));
  },

  "tap.close": async (_step, live) => {
    const taps = [...live.taps.values()];
    live.taps.clear();
    await everyOne(taps.map((tap) => tap.close()));
  },

  "netns.leave": (_step, live, host) => leaveSandboxes(live, host),

  "cni.delete": (_step, live, host) => releaseSandboxes(live, host),

  "port.forget": async (_step, live, host, { rulesLater, flowsEnded }) => {
    // The machine is gone: connections to it over loopback end, so that their clients do not wait.
    // The ports stay the pod's.
    host.published.cut(live.plan.podId);
    const { published, ...ports } = everyPort(live.plan);
    const target = published === undefined || rulesLater === true ? ports : { ...ports, published };
    const signal = AbortSignal.timeout(undoLimitMs);
    await host.network.remove(target, signal);
    if (flowsEnded !== true)
      await host.network.remove({ kind: "connections", of: [everyPort(live.plan)] }, signal);
  },
};

/** Asks the main process to end. */
async function stopMain(live: LivePod): Promise<void> {
  if (live.process === undefined) return;
  await resumeForItsEnd(live);
  await stopProcess(live.process, live.plan);
}

/** Its output ends with the machine. */
function endProcess(live: LivePod): void {
  live.process?.[Symbol.dispose]();
  live.process = undefined;
}

/** Resumes a paused machine, so that its guest can power off. */
async function resumeForItsEnd({ vm, time }: LivePod): Promise<void> {
  if (!time.stands) return;
  await vm?.resume(AbortSignal.timeout(resumeMs));
  time.go();
}

/** Waits for all of them, also after a failure, and throws the first one. */
async function everyOne(all: readonly Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(all)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** Undoes one step. Absent means success; can be repeated. */
export function actUndo<K extends UndoKind>(
  step: UndoOf<K>,
  live: LivePod,
  host: Host,
  options: UndoOptions,
): Promise<void> {
  const action = undoActions[step.kind];
  return action(step, live, host, options);
}

/**
 * Takes down all that there is of a pod. Goes on after failures and returns each with its step; an
 * empty result means that nothing is left. Can be repeated.
 */
export async function undoPod(
  live: LivePod,
  host: Host,
  options: UndoOptions,
): Promise<readonly Error[]> {
  const failures: Error[] = [];
  for (const step of undoSteps(live.plan)) {
    if (step.kind === "disk.drop" && options.dropDisks === "last" && failures.length > 0) continue;
    try {
      await actUndo(step, live, host, options);
    } catch (thrown) {
      failures.push(toPodnetError(thrown).with({ step: step.kind }));
    }
  }
  return failures;
}
