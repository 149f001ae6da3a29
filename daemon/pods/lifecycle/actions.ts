import { limited } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { withoutAttributes } from "../../../guest-init/protocol/attributes.ts";
import type { Wake } from "../../../guest-init/channel/guest.ts";
import {
  agentFeatures,
  type GuestConfig,
  type ObservedGuest,
} from "../../../guest-init/protocol/configure.ts";
import { type RunningVm, templateNicMac } from "../../../hypervisor/driver.ts";
import { addSandboxes, joinSandboxes } from "../interfaces/act-sandboxes.ts";
import { answerPort } from "../interfaces/answer-guest.ts";
import { portsOf } from "../interfaces/pod-ports.ts";
import { makeDisks, plugDisk } from "../disks/act-disks.ts";
import { compareGuest } from "../guest/compare-guest.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { writeFiles } from "../guest/guest-files.ts";
import { mountShares } from "../guest/guest-shares.ts";
import { guestOf, guestThatIs } from "../guest/guest-of.ts";
import { freshEntropy, wakeOf } from "../guest/wake.ts";
import { plannedKind, queuesOfTap } from "../interfaces/kinds/kind-of.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import type { Tap } from "../../../linux/tun.ts";
import { startProcess } from "../process/start-process.ts";
import { unmark } from "../pool/markers.ts";
import type { Host } from "./host.ts";
import { adoptVm, type LivePod, requireGuest } from "./live-pod.ts";
import { type NicInterface, type PodPlan, withNic } from "../store/pod-plan.ts";
import { publishedText } from "../../published/published-text.ts";
import { machineOf, templateNicOf } from "../plan/plan-seed.ts";
import type { StepKind, StepOf } from "../plan/steps.ts";

/** Does one step; answers a word about it for people. */
type Action<K extends StepKind> = (
  step: StepOf<K>,
  live: LivePod,
  host: Host,
  signal: AbortSignal,
) => Promise<string>;

/** The actions of all steps. */
export const actions: { readonly [K in StepKind]: Action<K> } = {
  "publish.hold": async (_step, { plan }, host) => {
    await host.published.hold(plan.podId, plan.published);
    return (plan.published ?? []).map(publishedText).join(" ");
  },

  "cni.add": (_step, live, host, signal) => addSandboxes(live, host, signal),

  "netns.join": (_step, live, host, signal) => joinSandboxes(live, host, signal),

  "tap.open": async (_step, live, host) => {
    const interfaces = withNic(live.plan.interfaces).filter(
      (each) => plannedKind(each).replaced === undefined,
    );
    // QEMU has that of a parked machine's NIC already.
    for (const each of interfaces)
      if (!hasNic(live, each)) live.taps.set(each.position, openTapOf(each, live.plan, host));
    return interfaces.map(({ nic }) => nic.tap).join(" ");
  },

  "port.attach": async (_step, live, host, signal) => {
    const fragment = portsOf(live.plan, host.networks.list());
    await host.network.apply(fragment, signal);
    return [...new Set(fragment.ports.map(({ bridge }) => bridge))].join(" ");
  },

  "disk.make": (_step, live) => makeDisks(live),

  "vm.start": async (_step, live, host, signal) => {
    if (live.vm !== undefined) return claimVm(live, live.vm, host);
    const vm = await startVm(live, host, signal);
    return `pid ${vm.record.pid}${originText(live, vm)}`;
  },

  "vm.attach": async (_step, live, host, signal) => {
    const vm = await startVm(live, host, signal);
    return `pid ${vm.record.pid}, a foreign process`;
  },

  "guest.ready": async (_step, live, host, signal) => {
    const vm = started(live);
    if (live.guest !== undefined && live.identity !== undefined) {
      live.time.go();
      if (mayAnnounceUnheard(live)) live.configuring = configureEarly(live, host, signal);
      await vm.resume(signal);
      return `agent ${live.identity.agent}, which has waited`;
    }
    const machine = machineKindOf(live.plan.vm);
    live.guest = host.openGuest({
      ...machine.channels(vm),
      reattach: machine.guestIsUp,
      time: live.time,
      ...guestOf(live.plan).channel,
      ...(vm.asleep === true ? { wake: wakeClone(vm, live, host, signal) } : {}),
    });
    live.identity = await live.guest.ready(limited(host.timeouts.readyMs, signal));
    const { agent } = live.identity;
    return agent === undefined ? guestThatIs(live.identity).name : `agent ${agent}`;
  },

  "guest.mount": (_step, live, _host, signal) => mountShares(live, signal),

  "guest.write": async (_step, live, _host, signal) => `${await writeFiles(live, signal)} files`,

  "guest.configure": async (_step, live, host, signal) => {
    const early = live.configuring;
    delete live.configuring;
    live.observed = await (early ?? requireGuest(live).configure(guestMessage(live, host), signal));
    return live.plan.interfaces.flatMap(({ addresses }) => addresses).join(" ");
  },

  "nic.plug": async ({ position }, live, _host, signal) => {
    const { nic } = await plugNic(interfaceAt(live, position), live, signal);
    return `${nic.mac} in slot ${nic.slot}`;
  },

  "disk.plug": ({ name }, live, _host, signal) => plugDisk(live, name, signal),

  "guest.answer": async ({ position }, live, host) =>
    answerPort(live, interfaceAt(live, position), host),

  "vm.go": async (_step, live, _host, signal) => {
    await started(live).resume(signal);
    return "";
  },

  "guest.verify": async (_step, live) => {
    if (live.observed !== undefined)
      compareGuest(understood(guestConfigOf(live), live), live.observed);
    return "";
  },

  "process.start": (_step, live, host, signal) => startProcess(live, host, signal),
};

/**
 * Whether no neighbour has to hear the guest announce its addresses, so that it may be configured
 * before its ports are ready: nothing had them before. Files of the pod come first.
 */
const mayAnnounceUnheard = ({ plan, spec }: LivePod): boolean =>
  spec.files === undefined && withNic(plan.interfaces).every(({ fresh }) => fresh === true);

/** A clone whose agent need not say who it is finds its configuration behind its names. */
function wakeClone(vm: RunningVm, live: LivePod, host: Host, signal: AbortSignal): Wake {
  const wake = wakeOf(vm, host, signal);
  const { twin } = wake;
  if (twin === undefined || !mayAnnounceUnheard(live)) return wake;
  return {
    ...wake,
    async resume() {
      live.identity = twin.identity;
      live.configuring = configureEarly(live, host, signal);
      await wake.resume();
    },
  };
}

/** Sends the configuration to a machine that is about to run again. */
function configureEarly(live: LivePod, host: Host, signal: AbortSignal): Promise<ObservedGuest> {
  const answer = requireGuest(live).configure(guestMessage(live, host), signal);
  // Awaited by its step; a rejection before that would be unhandled.
  answer.catch(() => {});
  return answer;
}

async function startVm(live: LivePod, host: Host, signal: AbortSignal): Promise<RunningVm> {
  const first = templateNicOf(live.plan);
  const tap = first === undefined ? undefined : live.taps.get(first.position);
  const vm = await host.driver.start(machineOf(live), signal, tap?.fd);
  adoptVm(live, vm);
  host.recordRun(live.plan, vm.record);
  return vm;
}

/**
 * Makes a machine of the pool the pod's: its record is durable before its marker goes, so that a
 * podnetd that starts in between finds the row.
 */
function claimVm({ plan }: LivePod, { record }: RunningVm, host: Host): string {
  host.recordRun(plan, record);
  unmark(plan.vm);
  return `pid ${record.pid}, from the pool`;
}

/** How the machine came to be, for people. */
function originText({ plan }: LivePod, vm: RunningVm): string {
  const why = plan.vm.factory === "pool" ? "; the pool had none like it" : "";
  if (vm.asleep !== true) return why;
  return `, a clone${vm.firstNic === undefined ? "" : " with its NIC"}${why}`;
}

/** Whether the machine has the interface's NIC since its start. */
const hasNic = ({ vm }: LivePod, { nic }: NicInterface): boolean => vm?.firstNic === nic.nicId;

/** Opens the host's end of a NIC: a tap of podnet's own, or a foreign one. */
export const openTapOf = (each: NicInterface, { vm }: Pick<PodPlan, "vm">, host: Host): Tap =>
  host.openTap(each.nic.tap, {
    kept: plannedKind(each).foreignTap === true,
    queues: queuesOfTap(each, vm),
  });

/** Plugs a NIC whose tap is open. */
async function plugNic(
  each: NicInterface,
  live: LivePod,
  signal: AbortSignal,
): Promise<NicInterface> {
  const { nic, position } = each;
  const tap = live.taps.get(position);
  if (tap === undefined && hasNic(live, each)) {
    live.plugged.add(position);
    return each;
  }
  if (tap === undefined) throw new PodnetError("INTERNAL", `Tap "${nic.tap}" is not open`);
  await started(live).plug(nic, tap.fds, signal);
  live.plugged.add(position);
  live.ejected.delete(position);
  live.taps.delete(position);
  // QEMU has its own descriptor now: when it ends, however it ends, the kernel removes the tap.
  await tap.close();
  return each;
}

/**
 * The guest's configuration with the time and fresh randomness of this moment. NICs that the guest
 * ejected are left out, as the agent would wait for them in vain.
 */
export function guestMessage(live: LivePod, host: Host): GuestConfig {
  const { plan, ejected } = live;
  const { interfaces, routes, loopback, ...guest } = guestConfigOf(live);
  const inTemplate = parks(live) ? templateNicOf(plan)?.nic.mac : undefined;
  const gone = new Set<string>(
    plan.interfaces.filter(({ position }) => ejected.has(position)).map((each) => each.guestName),
  );
  const message = {
    ...guest,
    ...loopbackPart(loopback, live),
    interfaces: interfaces
      .filter(({ name }) => !gone.has(name))
      .map((each) => (each.mac === inTemplate ? { ...each, pluggedAs: templateNicMac } : each)),
    routes: routes.filter((route) => !gone.has(route.interface)),
    clockMs: host.clock.now(),
    entropy: freshEntropy(host),
  };
  return understood(message, live);
}

const parks = ({ identity }: LivePod): boolean =>
  identity?.features?.includes(agentFeatures.parking) === true;

/**
 * Drops what the agent does not understand of the configuration taken from CNI links: a pod works
 * without it.
 */
const understood = (config: GuestConfig, { identity }: LivePod): GuestConfig =>
  identity?.features?.includes(agentFeatures.attributes) === true
    ? config
    : withoutAttributes(config);

/** Addresses of `lo`, which agents of earlier podnets cannot set. Throws `UNSUPPORTED`. */
function loopbackPart(
  loopback: GuestConfig["loopback"],
  { identity }: LivePod,
): Pick<GuestConfig, "loopback"> {
  if (loopback === undefined) return {};
  if (identity?.features?.includes(agentFeatures.loopback) === true) return { loopback };
  if (loopback.length === 0) return {};
  throw new PodnetError("UNSUPPORTED", "The guest's agent sets no addresses of lo", {
    hint: "Use an image with this podnet's agent",
  });
}

function interfaceAt(live: LivePod, position: number): NicInterface {
  const found = withNic(live.plan.interfaces).find((each) => each.position === position);
  if (found === undefined) throw new RangeError(`The plan has no interface ${position}`);
  return found;
}

function started(live: LivePod): NonNullable<LivePod["vm"]> {
  if (live.vm === undefined) throw new PodnetError("INTERNAL", "The machine has not been started");
  return live.vm;
}
