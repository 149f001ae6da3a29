import type { Guest, GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { NicPlan, RunningVm, VmPlan } from "../../../hypervisor/driver.ts";

/** A clone that has run until its code was translated, and is stopped. It is no pod's yet. */
export interface ParkedMachine {
  /** As its QEMU was started: the NIC has `templateNicMac`. */
  readonly plan: VmPlan & { readonly nic: NicPlan };
  readonly vm: RunningVm;
  readonly guest: Guest;
  readonly identity: GuestIdentity;
  /** It stands. */
  readonly time: GuestTime;
}
