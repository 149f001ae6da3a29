import { limited } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { IpPrefix } from "../../../core/address.ts";
import type { Cidr, Ip } from "../../../core/address.ts";
import { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { parseIfName } from "../../../core/names.ts";
import { type RunningVm, templateNicMac, type VmPlan } from "../../../hypervisor/driver.ts";
import { nicWaitMs } from "../guest/guest-config.ts";
import { freshEntropy, wakeOf } from "../guest/wake.ts";
import type { Host } from "../lifecycle/host.ts";
import { mark, unmark } from "./markers.ts";
import type { ParkedMachine } from "./parked-machine.ts";

/**
 * Addresses of documentation (RFC 5737), for a link that leads nowhere: the guest does once what a
 * pod's configuration will ask of it, so that its code is translated by then.
 */
const rehearsal = {
  address: "192.0.2.2/24" as IpPrefix,
  gateway: "192.0.2.1" as Ip,
  everywhere: "0.0.0.0/0" as Cidr,
};

/**
 * Starts a clone, lets it rehearse its configuration, and stops it. Its NIC's link is down. A
 * marker says that no row is to be expected of it: a podnetd that starts ends it. On failure
 * nothing is left. Throws `UNSUPPORTED` when the image's agent cannot be parked.
 */
export async function park(
  plan: ParkedMachine["plan"],
  host: Host,
  signal: AbortSignal,
): Promise<ParkedMachine> {
  await using undo = new AsyncDisposableStack();
  mark(plan);
  undo.defer(() => unmark(plan));
  const vm = await startClone(plan, host, signal);
  undo.defer(() => vm.stop({ graceMs: 0 }));
  if (vm.firstNic === undefined || vm.asleep !== true) throw cannotPark();
  const time = new GuestTime();
  const guest = host.openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach: false,
    time,
    wake: wakeOf(vm, host, signal),
  });
  undo.defer(() => guest.close());
  const limit = limited(host.timeouts.readyMs, signal);
  const identity = await guest.ready(limit);
  await guest.configure(rehearsalOf(plan, host), limit);
  await guest.configure(parkedConfig, limit);
  time.stop();
  await vm.pause(limit);
  undo.move();
  return { plan, vm, guest, identity, time };
}

/** Ends a machine that is no pod's. */
export async function unpark({ plan, vm, guest }: ParkedMachine): Promise<void> {
  await guest.close();
  await vm.stop({ graceMs: 0 });
  unmark(plan);
}

async function startClone(
  plan: ParkedMachine["plan"],
  host: Host,
  signal: AbortSignal,
): Promise<RunningVm> {
  // QEMU has its own descriptor afterwards: the tap ends with it.
  await using tap = host.openTap(plan.nic.tap);
  return await host.driver.start(plan, signal, tap.fd);
}

const nic = { mac: templateNicMac, name: parseIfName("eth0") };
const nothing = { routes: [], neighbours: [], waitMs: nicWaitMs };

const rehearsalOf = ({ podId }: VmPlan, host: Host): GuestConfig => ({
  ...nothing,
  clockMs: host.clock.now(),
  entropy: freshEntropy(host),
  requestId: podId,
  hostname: "parked",
  interfaces: [{ ...nic, addresses: [rehearsal.address] }],
  routes: [{ destination: rehearsal.everywhere, gateway: rehearsal.gateway, interface: nic.name }],
});

const parkedConfig: GuestConfig = {
  ...nothing,
  requestId: "park",
  interfaces: [{ ...nic, parked: true, addresses: [] }],
};

const cannotPark = (): PodnetError =>
  new PodnetError("UNSUPPORTED", "The image's agent cannot wait in a pool", {
    hint: "Build the image with this podnet's agent",
  });
