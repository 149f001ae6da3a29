import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Guest, GuestIdentity } from "../../../guest-init/channel/guest.ts";
import { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { RunningVm, VmRecord } from "../../../hypervisor/driver.ts";
import type { Tap } from "../../../linux/tun.ts";
import { Execs } from "../execs/execs.ts";
import { guestOf } from "../guest/guest-of.ts";
import { Activity } from "../lifetime/activity.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import type { ParkedMachine } from "../pool/parked-machine.ts";
import type { FollowedProcess } from "../process/followed-process.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";

/**
 * The connections and descriptors that this process has for a pod. `plan` and `record` suffice to
 * end the pod, so a restart loses nothing.
 */
export interface LivePod {
  /**
   * Replaced, as the spec is, when the pod is changed while it runs: read it anew after every wait.
   */
  plan: PodPlan;
  spec: PodSpec;
  /** Identifies the machine; survives in the `runs` table. */
  record: VmRecord | undefined;
  vm: RunningVm | undefined;
  guest: Guest | undefined;
  identity: GuestIdentity | undefined;
  observed: ObservedGuest | undefined;
  /** The guest's answer to a configuration that it found when its machine ran again. */
  configuring?: Promise<ObservedGuest>;
  /** The epoch of the agent that has written the pod's files. */
  filesEpoch: string | undefined;
  /** The main process, as far as the pod has one that was started. */
  process: FollowedProcess | undefined;
  /** Taps not yet handed to the machine, by interface position. */
  readonly taps: Map<number, Tap>;
  /** Positions of plugged NICs. */
  readonly plugged: Set<number>;
  /** Positions of NICs that the guest has ejected, while the machine runs on. */
  readonly ejected: Set<number>;
  /** Names of plugged disks. */
  readonly disks: Set<string>;
  /** The DHCP servers of a guest without an agent, by interface position. */
  readonly answers: Map<number, Disposable>;
  /** Programs that podnet started in it. */
  readonly execs: Execs;
  /** When it was used last. */
  readonly activity: Activity;
  /** Stands while its machine is paused. */
  readonly time: GuestTime;
  /** The machine was paused since the guest was last configured: the guest's clock is behind. */
  stood: boolean;
  /** A change was taken back since the guest was last configured: it may not be as planned. */
  needsReconfiguration: boolean;
  /** The guest has said that it powers off. */
  poweringOff: boolean;
  /**
   * How often the guest restarted, and the last reason, for people. Counted by this process while
   * the pod runs: a podnetd that starts again begins at zero.
   */
  restarts: { readonly count: number; readonly text: string };
  /** Aborted with `QEMU_EXITED` or `BOOT_FAILED` when the machine ends unasked, or cannot begin. */
  readonly ended: AbortController;
  /** Ends the listening to machine and guest. */
  readonly subscriptions: Set<() => void>;
}

/** Takes a running machine over, and notices its end and the NICs it loses. */
export function adoptVm(live: LivePod, vm: RunningVm): void {
  live.vm = vm;
  live.record = vm.record;
  live.subscriptions.add(
    vm.onEvent((event) => {
      const { pid } = vm.record;
      if (event.kind === "nic-removed") {
        const left = live.plan.interfaces.find(({ nic }) => nic?.nicId === event.nicId);
        if (left !== undefined && live.plugged.delete(left.position))
          live.ejected.add(left.position);
      }
      if (event.kind === "disk-removed") live.disks.delete(event.disk);
      if (event.kind === "exited") {
        live.ended.abort(
          new PodnetError("QEMU_EXITED", `The machine ended: ${event.detail}`, {
            hint: "See the end of the guest's console in the details, and podnetd's log",
            details: { pid },
          }),
        );
      }
      // A guest that restarts before it was ever ready would do so for ever: its kernel panicked.
      // How often an attached machine restarts is its owner's matter, and for a guest without an
      // agent the restart's meaning is unknown.
      const ours = machineKindOf(live.plan.vm).isOwn && guestOf(live.plan).hasAgent;
      if (event.kind === "guest-reset" && ours && live.identity === undefined) {
        live.ended.abort(
          new PodnetError("BOOT_FAILED", "The guest restarted before its agent was ready", {
            hint: "See the end of its console in the details: more memory, or another kernel or initramfs",
            details: { pid },
          }),
        );
      }
    }),
  );
}

/** Stops listening; what happens from here on is intended. */
export function unsubscribe(live: LivePod): void {
  for (const end of live.subscriptions) end();
  live.subscriptions.clear();
  for (const answers of live.answers.values()) answers[Symbol.dispose]();
  live.answers.clear();
}

/**
 * The connection to the guest's agent. Throws `AGENT_DISCONNECTED`: the agent may go any time, and
 * is reached again.
 */
export function requireGuest({ guest, plan }: LivePod): Guest {
  if (guest !== undefined) return guest;
  throw new PodnetError("AGENT_DISCONNECTED", `The agent of pod "${plan.name}" is not connected`, {
    hint: `podnetd reaches it again as soon as it answers; see why it does not: podnet get ${plan.name}`,
  });
}

/** `machine`: one that has waited for a pod, and is this one's now. */
export function livePod(
  { plan, spec }: PodContents,
  record?: VmRecord,
  machine?: ParkedMachine,
): LivePod {
  const time = machine?.time ?? new GuestTime();
  const activity = new Activity();
  const live: LivePod = {
    plan,
    spec,
    record,
    vm: undefined,
    guest: machine?.guest,
    identity: machine?.identity,
    observed: undefined,
    process: undefined,
    taps: new Map(),
    plugged: new Set(),
    ejected: new Set(),
    disks: new Set(),
    answers: new Map(),
    execs: new Execs(time, activity),
    activity,
    time,
    stood: false,
    needsReconfiguration: false,
    filesEpoch: undefined,
    poweringOff: false,
    restarts: { count: 0, text: "" },
    ended: new AbortController(),
    subscriptions: new Set(),
  };
  if (machine !== undefined) adoptVm(live, machine.vm);
  return live;
}
