import type { PortSpec } from "../../api/pod-spec.ts";
import type { Ip, IpPrefix } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../core/names.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";
import type { NicPlan, VmPlan } from "../../hypervisor/driver.ts";
import type { PodFragment } from "../../network/desired.ts";
import { damaged, parseJson } from "../store/rows.ts";

/** Version of the stored form. A reader refuses what it does not know. */
export const planVersion = 1;

/**
 * Everything a pod will be, decided before anything happens: every name, address and message.
 * Plain JSON, stored with the pod; undo and recovery work from it alone.
 */
export interface PodPlan {
  readonly version: typeof planVersion;
  readonly podId: PodId;
  readonly name: PodName;
  readonly vm: VmPlan;
  /** The command line the driver will run, as `Driver.describe` said when planning. */
  readonly argv: readonly string[];
  readonly interfaces: readonly InterfacePlan[];
  /** The pod's part of the host's network. */
  readonly ports: PodFragment;
  /** Its published ports, in the order of the spec's. Absent when there are none, and in plans of an earlier podnetd. */
  readonly published?: readonly PublishedPlan[];
  /** The guest's network; clock and entropy are added at the moment of sending. */
  readonly guest: GuestConfig;
}

export interface InterfacePlan {
  readonly position: number;
  readonly network: NetworkName;
  readonly bridge: IfName;
  readonly addresses: readonly IpPrefix[];
  /** Gateway of the default route by this interface. */
  readonly gateway?: Ip;
  readonly mtu: number;
  readonly guestName: IfName;
  readonly nic: NicPlan;
}

/** Reads a stored plan. Throws `STATE_NEWER` when a newer podnetd wrote it, `STATE_CORRUPT` when none did. */
export function parseStoredPlan(text: string): PodPlan {
  const plan = parseJson(text, "a plan") as PodPlan | null;
  const version: unknown = plan?.version;
  if (plan === null || typeof version !== "number") throw damaged("a plan has no version");
  if (version !== planVersion) {
    throw new PodnetError(
      "STATE_NEWER",
      `A stored plan has version ${version}, this podnetd knows ${planVersion}`,
      {
        hint: "Run the podnetd that wrote it, or a newer one",
      },
    );
  }
  return plan;
}
