import { limited } from "../../../core/aborting.ts";
import { type Cidr, type IpPrefix, ipOf, parseMac } from "../../../core/address.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { Guest } from "../../../guest-init/channel/guest.ts";
import { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { parseIfName } from "../../../core/names.ts";
import {
  type Driver,
  type RunningVm,
  templateNicMac,
  type VmPlan,
} from "../../../hypervisor/driver.ts";
import type { Tap } from "../../../linux/tun.ts";
import { nicWaitMs } from "../guest/guest-config.ts";
import { freshEntropy, wakeOf } from "../guest/wake.ts";
import type { Host } from "../lifecycle/host.ts";
import { mark, unmark } from "./markers.ts";
import type { MarkedMachine, ParkedMachine } from "./parked-machine.ts";
import type { RehearsalRoom } from "./rehearsal-room.ts";

/**
 * Addresses of documentation (RFC 5737), for a link that leads nowhere: the guest does once what a
 * pod's configuration and its first neighbour will ask of it, so that its code is translated by
 * then.
 */
const rehearsal = {
  address: "192.0.2.2/24" as IpPrefix,
  gateway: "192.0.2.1/24" as IpPrefix,
  everywhere: "0.0.0.0/0" as Cidr,
};

/** Of documentation, too (RFC 7042). A machine that waits has `templateNicMac` again. */
export const rehearsalMac = parseMac("00:00:5e:00:53:01");

/**
 * Starts a clone, lets it rehearse its configuration and, where there is a room for that, answer a
 * neighbour, and stops it. Its NIC's link is down. A marker says that no row is to be expected of
 * it: a podnetd that starts ends it. On failure `end` is given what there is of it. Throws
 * `UNSUPPORTED` when the image's agent cannot be parked.
 */
export async function park(
  plan: ParkedMachine["plan"],
  host: Host,
  room: RehearsalRoom | undefined,
  signal: AbortSignal,
  end: (machine: MarkedMachine) => Promise<unknown>,
): Promise<ParkedMachine> {
  const begun: Begun = { plan, vm: undefined, guest: undefined };
  try {
    mark(plan);
    return await rehearse(begun, host, room, signal);
  } catch (thrown) {
    await end(begun);
    throw thrown;
  }
}

/** What there is already of a machine that is being made. */
interface Begun extends MarkedMachine {
  vm: RunningVm | undefined;
  guest: Guest | undefined;
}

async function rehearse(
  begun: Begun,
  host: Host,
  room: RehearsalRoom | undefined,
  signal: AbortSignal,
): Promise<ParkedMachine> {
  const { plan } = begun;
  const vm = await startClone(plan, host, room, signal);
  begun.vm = vm;
  if (vm.firstNic === undefined || vm.asleep !== true) throw cannotPark();
  const time = new GuestTime();
  const guest = host.openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach: false,
    time,
    wake: wakeOf(vm, host, signal),
  });
  begun.guest = guest;
  const limit = limited(host.timeouts.readyMs, signal);
  const identity = await guest.ready(limit);
  await guest.configure(rehearsalOf(plan, host), limit);
  await room?.visit(plan.nic.tap, rehearsal.gateway, ipOf(rehearsal.address));
  await runProgram(guest, limit);
  await guest.configure(parkedConfig, limit);
  // Once more: a pod's configuration, too, finds a link that was parked.
  await guest.configure(rehearsalOf(plan, host), limit);
  await guest.configure(parkedConfig, limit);
  time.stop();
  await vm.pause(limit);
  await room?.release(plan.nic.tap);
  return { plan, vm, guest, identity, time };
}

/**
 * Starts a program, and waits for its end: the guest's kernel does once what a main process or an
 * exec asks of it. The agent's own program is there whatever the image has, and runs none of the
 * image's code before there is a pod. A guest that refuses waits without it.
 */
async function runProgram(guest: Guest, signal: AbortSignal): Promise<void> {
  const args = ["/proc/self/exe", "--version"];
  try {
    const program = await guest.exec({ args, env: {}, workdir: "/", terminal: false }, signal);
    for await (const { kind } of program.events) if (kind === "exit") return;
  } catch (thrown) {
    if (!isPodnetError(thrown, "AGENT_REFUSED", "UNSUPPORTED")) throw thrown;
  }
}

/**
 * Ends a machine that is no pod's. Its marker goes last: where it could not be ended, this can be
 * tried again, and a podnetd that starts knows it.
 */
export async function unpark(
  { plan, vm, guest }: MarkedMachine,
  driver: Pick<Driver, "reap">,
): Promise<void> {
  await guest?.close();
  // (A start that failed may have been unable to undo itself.)
  if (vm === undefined) await driver.reap(undefined, plan);
  else await vm.stop({ graceMs: 0 });
  unmark(plan);
}

async function startClone(
  plan: ParkedMachine["plan"],
  host: Host,
  room: RehearsalRoom | undefined,
  signal: AbortSignal,
): Promise<RunningVm> {
  const open = (): Tap => host.openTap(plan.nic.tap);
  // QEMU has its own descriptor afterwards: the tap ends with it.
  await using tap = room === undefined ? open() : room.within(open);
  return await host.driver.start(plan, signal, tap.fd);
}

const name = parseIfName("eth0");
const nothing = { routes: [], neighbours: [], waitMs: nicWaitMs };

const rehearsalOf = ({ podId }: VmPlan, host: Host): GuestConfig => ({
  ...nothing,
  clockMs: host.clock.now(),
  entropy: freshEntropy(host),
  requestId: podId,
  hostname: "parked",
  interfaces: [
    { mac: rehearsalMac, pluggedAs: templateNicMac, name, addresses: [rehearsal.address] },
  ],
  routes: [
    { destination: rehearsal.everywhere, gateway: ipOf(rehearsal.gateway), interface: name },
  ],
});

const parkedConfig: GuestConfig = {
  ...nothing,
  requestId: "park",
  interfaces: [{ mac: templateNicMac, pluggedAs: rehearsalMac, name, parked: true, addresses: [] }],
};

const cannotPark = (): PodnetError =>
  new PodnetError("UNSUPPORTED", "The machine booted without a template that can wait", {
    hint: "See podnetd's log for a template that failed; else build the image with this podnet's agent",
  });
