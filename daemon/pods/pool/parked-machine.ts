import type { Guest, GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { NicPlan, RunningVm, VmPlan } from "../../../hypervisor/driver.ts";

/** A machine with a marker: it comes into being, waits, or is to end. */
export interface MarkedMachine {
  /** As its QEMU is started: the NIC has `templateNicMac`. */
  readonly plan: VmPlan & { readonly nic: NicPlan };
  /** Undefined before its start. */
  readonly vm?: RunningVm | undefined;
  readonly guest?: Guest | undefined;
}

/** A clone that has run until its code was translated, and is stopped. It is no pod's yet. */
export interface ParkedMachine extends MarkedMachine {
  readonly vm: RunningVm;
  readonly guest: Guest;
  readonly identity: GuestIdentity;
  /** It stands. */
  readonly time: GuestTime;
}
