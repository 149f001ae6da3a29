import { limited } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { RunningVm, RunState, VmRecord } from "../../../hypervisor/driver.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import type { PodRow } from "../store/pod-row.ts";
import { keepTrying } from "./keep-trying.ts";
import { clockBehind, noteRunStateOrLater } from "./lifecycle.ts";
import { adoptVm, type LivePod, livePod, unsubscribe } from "./live-pod.ts";
import { finishDisks, reportAbsent } from "../disks/live-disks.ts";
import { finishChanges } from "../interfaces/live-interfaces.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { guestOf } from "../guest/guest-of.ts";
import { afterEnd } from "../process/after-end.ts";
import { sameServers } from "../interfaces/plan-servers.ts";
import { portsOf } from "../interfaces/pod-ports.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { changingDisks } from "../store/data-disks.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";
import { finishGrowth } from "./resize.ts";
import { supervise } from "./supervise.ts";
import { guard, type Supervision } from "./supervision.ts";
import { undoPod } from "./undo.ts";

/**
 * Longest a machine may take to be found again, milliseconds: when podnetd starts, and when it
 * tries again, as a delete waits for that.
 */
export const reattachMs = { first: 10_000, again: 3000 } as const;
/** The reason of a running pod whose ports could not be observed or repaired. */
const portsLacking = "its ports are not as planned";

export interface TakeOver extends Supervision {
  /** Differs from the recorded one after a restart of the host. */
  readonly bootId: string;
  /** A sweep follows, which removes the rules of pods that do not run. */
  readonly sweeping: boolean;
  /** The pod runs and is ours again. */
  attached(live: LivePod): void;
  /** Takes the ports to repair with those of other pods; absent, they are repaired at once. */
  readonly adopted?: (adopted: Adopted) => void;
}

/** A pod whose machine has been adopted, with the ports that it is to have. */
export interface Adopted {
  readonly live: LivePod;
  readonly ports: PodFragment;
}

/**
 * Adopts the machine of a running pod, or frees the resources of one that has ended. Throws, with
 * nothing changed, when neither is certain: another client may hold its QMP socket for a while.
 * From its adoption on the machine's end is noticed; ports that cannot be repaired then are
 * retried.
 */
export async function takeOver(row: PodRow, recovery: TakeOver, limitMs: number): Promise<void> {
  const { host, records } = recovery;
  const signal = limited(limitMs, recovery.over);
  const { vm, record } = await findAgain(row, recovery, signal);
  if (vm === undefined) {
    await takeDown(row, recovery);
    records.state(row.plan, "failed", {
      error: absent(row, record?.bootId === recovery.bootId),
    });
    afterEnd(row, recovery);
    return;
  }
  const live = livePod(row, record);
  adoptVm(live, vm);
  live.identity = row.guest;
  live.observed = row.observed;
  // The guest may have been sent what is undone now, or may lack an update of its networks.
  live.needsReconfiguration = row.before !== undefined || asksOtherwise(row);
  live.stood = row.state === "paused" || row.reason === clockBehind;
  let ports: PodFragment;
  try {
    const [nics, disks, state] = await lookAt(vm, live, signal);
    for (const name of disks) live.disks.add(name);
    ports = pluggedPorts(live, nics, portsOf((row.before ?? row).plan, host.networks.list()));
    noteRunStateOrLater(live, state, recovery);
  } catch (thrown) {
    unsubscribe(live);
    await vm.detach();
    throw thrown;
  }
  recovery.attached(live);
  records.keep(row);
  // The machine's traffic does not depend on its agent, which is reached meanwhile.
  supervise(live, recovery);
  reportAbsent(live, absentDisks(live), recovery);
  const changing = ({ leaving }: InterfacePlan): boolean => leaving === true;
  const isChanging = row.before !== undefined || row.plan.interfaces.some(changing);
  if (changingDisks(live.plan).length > 0)
    guard(live, recovery, () => recovery.locks.run(row.id, () => finishDisks(live, recovery)));
  if (live.plan.vm.grown !== undefined)
    guard(live, recovery, () => recovery.locks.run(row.id, () => finishGrowth(live, recovery)));
  if (isChanging)
    guard(live, recovery, () => recovery.locks.run(row.id, () => finishChanges(live, recovery)));
  // (What the change under way does to the ports is not to be undone by a later repair.)
  if (recovery.adopted === undefined || isChanging || (ports.withdrawn ?? []).length > 0)
    await ensurePorts({ live, ports }, recovery, signal);
  else recovery.adopted({ live, ports });
}

/**
 * Makes the ports of an adopted machine as planned. What cannot be repaired now is retried, and the
 * pod is degraded until then. Does nothing for a machine that has ended meanwhile.
 */
export async function ensurePorts(
  { live, ports }: Adopted,
  recovery: TakeOver,
  signal: AbortSignal = limited(reattachMs.first, recovery.over),
): Promise<void> {
  const { host, records } = recovery;
  const { podId } = live.plan;
  const ensure = async (until: AbortSignal): Promise<void> => {
    if (live.ended.signal.aborted) return;
    await host.network.apply(ports, until);
    // The podnetd before may have ended on the way.
    if ((ports.withdrawn ?? []).length > 0)
      await host.network.remove({ kind: "withdrawn-connections", of: ports }, until);
  };
  try {
    await ensure(signal);
  } catch (thrown) {
    const row = records.get(podId);
    if (row === undefined) return;
    recovery.log.error({ pod_id: podId, err: thrown }, "Failed to repair the pod's ports");
    keepTrying(row, portsLacking, thrown, recovery, async () => {
      await ensure(limited(reattachMs.again, recovery.over));
    });
  }
}

/**
 * The machine of a row whose state is running. When its run has no record, or that of an earlier
 * machine, the running one is looked for: only the record was lost.
 */
async function findAgain(
  { id, plan }: PodRow,
  { host: { driver }, records, bootId, log }: TakeOver,
  signal: AbortSignal,
): Promise<{ readonly vm?: RunningVm | undefined; readonly record?: VmRecord | undefined }> {
  const record = records.run(id);
  const vm = record?.bootId === bootId ? await driver.reattach(record, plan.vm, signal) : undefined;
  if (vm !== undefined) return { vm, record };
  const found = driver.recordOf(plan.vm);
  if (found === undefined) return { record };
  log.warn({ pod_id: id, pid: found.pid }, "Found a VM again whose record was lost");
  const again = await driver.reattach(found, plan.vm, signal);
  if (again !== undefined) records.started(id, found);
  return { vm: again, record: found };
}

/**
 * Takes down a pod, and throws the first failure: until then its row must not say that nothing is
 * left.
 */
export async function takeDown(row: PodRow, recovery: TakeOver): Promise<void> {
  const failures = await undoPod(livePod(row, recovery.records.run(row.id)), recovery.host, {
    graceful: false,
    rulesLater: recovery.sweeping,
    ...(row.state === "deleting" || (row.state === "creating" && !row.established)
      ? { dropDisks: "anyway" }
      : {}),
    // The connections ended with the machine, and looking for them takes long.
    flowsEnded: recovery.sweeping && (row.state === "stopped" || row.state === "failed"),
  });
  for (const failure of failures) {
    recovery.log.error({ pod_id: row.id, err: failure }, "Failed to remove the rest of the pod");
  }
  if (failures.length > 0) throw failures[0];
}

/** The ports whose NICs the machine still has. A NIC that the guest ejected took its tap along. */
function pluggedPorts(live: LivePod, there: readonly string[], fragment: PodFragment): PodFragment {
  const { interfaces } = live.plan;
  const nics = withNic(interfaces);
  const plugged = nics.filter(({ nic }) => there.includes(nic.nicId));
  for (const each of nics)
    (plugged.includes(each) ? live.plugged : live.ejected).add(each.position);
  return {
    ...fragment,
    ports: fragment.ports.filter(({ tap }) => plugged.some(({ nic }) => nic.tap === tap)),
  };
}

/** The NICs of the machine, its disks if the pod has any that can be plugged, and its state. */
const lookAt = (
  vm: RunningVm,
  { plan }: LivePod,
  signal: AbortSignal,
): Promise<[nics: readonly string[], disks: readonly string[], state: RunState]> =>
  Promise.all([
    vm.nics(signal),
    plan.disks === undefined ? [] : vm.hotDisks(signal),
    vm.runState(signal),
  ]);

const absentDisks = ({ plan, disks }: LivePod): string[] =>
  (plan.disks ?? []).flatMap(({ name, change }) =>
    change === undefined && !disks.has(name) ? [name] : [],
  );

/** Whether the guest's name servers at its last configuration differ from those in its plan. */
function asksOtherwise({ plan, spec, observed }: PodRow): boolean {
  if (!guestOf(plan).showsServers) return false;
  if (observed === undefined || observed.resolverKept !== undefined) return false;
  return !sameServers(observed.dns, guestConfigOf({ plan, spec }).dns);
}

function absent({ name, plan }: PodRow, sameBoot: boolean): PodnetError {
  const hint = machineKindOf(plan.vm).text.hintWhenAbsent(name);
  if (!sameBoot) return new PodnetError("HOST_RESTARTED", "host restarted", { hint });
  return new PodnetError("QEMU_EXITED", "The machine ended while podnetd was not running", {
    hint,
  });
}
