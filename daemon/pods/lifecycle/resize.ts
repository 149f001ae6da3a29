import { isDeepStrictEqual } from "node:util";
import type { ResourcesSpec } from "../../../api/pod-spec.ts";
import { refuseShares } from "../../../api/validate/shares.ts";
import { validateResources } from "../../../api/validate/validate.ts";
import { limited } from "../../../core/aborting.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { memoryBlockMib, sizeOf, type VmPlan, type VmSize } from "../../../hypervisor/driver.ts";
import { makeCgroups, raiseLimits } from "../../../hypervisor/jail/cgroup.ts";
import { resizedJail } from "../../../hypervisor/jail/cgroup-layout.ts";
import { guestOf } from "../guest/guest-of.ts";
import { checkMemory, roomOf } from "../plan/plan-boot.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { keepTrying } from "./keep-trying.ts";
import { type LivePod, requireGuest } from "./live-pod.ts";
import type { Supervision } from "./supervision.ts";

/** Longest that a machine and its guest may take for a change of its size, milliseconds. */
const resizeMs = 20_000;

/** How long an agent usually takes to be reached after a start, milliseconds. */
const agentMs = 1000;

/** What a pod's machine is to have; what is absent stays as it is. */
export type SizeChange = { readonly [Field in keyof ResourcesSpec]?: number | undefined };

/** For people: `2 vCPU and 512 MiB`. */
export const sizeText = ({ vcpu, memoryMib }: VmSize): string =>
  `${vcpu} vCPU and ${memoryMib} MiB`;

/** The resources that a pod is to have. Throws as `validateResources`. */
const resourcesAfter = ({ resources }: PodRow["spec"], asked: SizeChange): ResourcesSpec =>
  validateResources({
    vcpu: asked.vcpu ?? resources.vcpu,
    memoryMib: asked.memoryMib ?? resources.memoryMib,
    maxVcpu: asked.maxVcpu ?? resources.maxVcpu,
    maxMemoryMib: asked.maxMemoryMib ?? resources.maxMemoryMib,
  });

/**
 * A pod without a machine that has other resources from its next start on; undefined when nothing
 * changes. Pure. Throws `INVALID_ARGUMENT`, `MEMORY_TOO_SMALL`, `UNSUPPORTED`.
 */
export function withResources(
  { plan, spec }: PodContents,
  asked: SizeChange,
  snapshot: Snapshot,
): PodContents | undefined {
  const resources = resourcesAfter(spec, asked);
  if (isDeepStrictEqual(resources, spec.resources)) return undefined;
  const after = { ...spec, resources };
  checkMemory(after, snapshot);
  refuseShares(after);
  const { room: _former, ...vm } = withSize(plan.vm, resources);
  return { spec: after, plan: { ...plan, vm: { ...vm, ...roomOf(resources, snapshot) } } };
}

/** A pod whose machine is as large at its next start as it had become; undefined if it is. Pure. */
export const withGrownSize = ({ plan, spec }: PodContents): PodContents | undefined =>
  plan.vm.grown && { spec, plan: { ...plan, vm: withSize(plan.vm, plan.vm.grown) } };

function withSize({ grown, jail, ...vm }: VmPlan, { vcpu, memoryMib }: VmSize): VmPlan {
  const had = grown ?? vm;
  const by = { vcpu: vcpu - had.vcpu, memoryMib: memoryMib - had.memoryMib };
  return { ...vm, vcpu, memoryMib, ...(jail === undefined ? {} : { jail: resizedJail(jail, by) }) };
}

/**
 * A pod whose running machine is to grow; undefined when nothing changes. Pure. Throws
 * `UNSUPPORTED` for what a running machine does not do, `INVALID_ARGUMENT` for memory that is no
 * whole number of blocks.
 */
export function withGrowth(pod: PodContents, asked: SizeChange): PodContents | undefined {
  const { plan, spec } = pod;
  const { vm } = plan;
  checkGrowth(plan.name, vm, asked);
  const resources = resourcesAfter(spec, asked);
  if (isDeepStrictEqual(resources, spec.resources)) return undefined;
  const { vcpu, memoryMib } = resources;
  return { spec: { ...spec, resources }, plan: { ...plan, vm: grownTo(vm, { vcpu, memoryMib }) } };
}

function grownTo(vm: VmPlan, size: VmSize): VmPlan {
  const { jail } = withSize(vm, size);
  return { ...vm, grown: size, ...(jail === undefined ? {} : { jail }) };
}

function checkGrowth(name: string, vm: VmPlan, asked: SizeChange): void {
  const has = sizeOf(vm);
  const most = vm.room ?? has;
  const { vcpu = has.vcpu, memoryMib = has.memoryMib } = asked;
  const { maxVcpu = most.vcpu, maxMemoryMib = most.memoryMib } = asked;
  const rows = [
    ["vcpu", vcpu, has.vcpu, most.vcpu, maxVcpu],
    ["memory_mib", memoryMib, has.memoryMib, most.memoryMib, maxMemoryMib],
  ] as const;
  for (const [field, wanted, now, limit, wantedLimit] of rows) {
    if (wanted < now)
      throw refused(name, field, `has ${now}: a machine that runs takes more, and never less`);
    if (wanted > limit)
      throw refused(name, field, `has room for ${limit}, which is fixed while it runs`);
    if (wantedLimit !== limit)
      throw refused(name, `max_${field}`, `has room for ${limit}, which is fixed while it runs`);
  }
  const more = memoryMib - has.memoryMib;
  if (more % memoryBlockMib === 0) return;
  throw new PodnetError("INVALID_ARGUMENT", `A machine that runs does not take ${more} MiB more`, {
    field: "resources.memory_mib",
    hint: `Its memory grows in steps of ${memoryBlockMib} MiB: ask for ${has.memoryMib + Math.ceil(more / memoryBlockMib) * memoryBlockMib}`,
  });
}

const refused = (name: string, field: string, why: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `Pod "${name}" runs and ${why}`, {
    field: `resources.${field}`,
    hint: `Stop it, update it, and start it: podnet stop ${name}`,
  });

/**
 * Lets a running machine grow: first its row says so, then its jail has room, then the machine has
 * it and its guest switches it on. What fails leaves the row with what the machine has. The caller
 * has the pod's turn.
 */
export async function grow(live: LivePod, next: PodContents, watch: Supervision): Promise<void> {
  const { records } = watch;
  const wanted = sizeText(sizeOf(next.plan.vm));
  records.replan(live, { ...next, text: `being resized to ${wanted}` });
  try {
    await growMachine(live, watch);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    await writeDownSize(live, watch, `not resized to ${wanted}: ${error.message}`, thrown);
    throw error;
  }
  await switchOn(live, watch);
  records.note(live.plan, `resized to ${wanted}`);
}

/**
 * After a start: completes a growth that the podnetd before may have begun. The caller has the
 * pod's turn. The guest's part follows when its agent has been reached.
 */
export async function finishGrowth(live: LivePod, watch: Supervision): Promise<void> {
  const { podId } = live.plan;
  try {
    await growMachine(live, watch);
  } catch (thrown) {
    const row = watch.records.get(podId);
    if (row !== undefined) keepTrying(row, tooSmall, thrown, watch, () => growMachine(live, watch));
  }
  const later = (): Promise<void> =>
    watch.locks.run(podId, async () => {
      if (!live.ended.signal.aborted) await switchOn(live, watch);
    });
  watch.retries.add(`pod ${podId}: switch on`, later, agentMs);
}

const tooSmall = "its machine is not as large as asked for";
const switchedOff = "its guest has not switched on all that its machine has";

/** Raises the limits of the jail, and plugs in what is missing. */
async function growMachine({ vm, plan }: LivePod, { over, records }: Supervision): Promise<void> {
  if (vm === undefined) throw new PodnetError("INTERNAL", "The machine has not been started");
  raiseLimits(plan.vm.jail?.cgroups ?? []);
  const taken = await vm.grow(sizeOf(plan.vm), limited(resizeMs, over));
  if (taken === "ignored")
    records.note(plan, "the guest has not looked at its new processors or memory yet");
}

/** Has the guest's agent switch on what is new; another guest does so by itself, or not at all. */
async function switchOn(live: LivePod, watch: Supervision): Promise<void> {
  if (!guestOf(live.plan).hasAgent) return;
  const ask = (): Promise<void> => requireGuest(live).online(limited(resizeMs, watch.over));
  try {
    await ask();
  } catch (thrown) {
    const row = watch.records.get(live.plan.podId);
    if (row !== undefined) keepTrying(row, switchedOff, thrown, watch, ask);
  }
}

/** Writes down what a machine has that could not grow, and lowers its jail's limits to that. */
async function writeDownSize(
  live: LivePod,
  watch: Supervision,
  text: string,
  thrown: unknown,
): Promise<void> {
  const { records, over } = watch;
  const work = async (): Promise<void> => {
    const { vm, plan, spec } = live;
    if (vm === undefined) return;
    const size = await vm.size(limited(resizeMs, over));
    const resources = validateResources({ ...spec.resources, ...size });
    const after = { ...plan, vm: grownTo(plan.vm, size) };
    records.replan(live, { plan: after, spec: { ...spec, resources }, text });
    makeCgroups(after.vm.jail?.cgroups ?? []);
  };
  await work().catch(() => {
    const row = records.get(live.plan.podId);
    if (row !== undefined) keepTrying(row, tooSmall, thrown, watch, work);
  });
}
