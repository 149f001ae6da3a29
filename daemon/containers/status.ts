import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { cniError } from "../../cni/protocol/refusal.ts";
import type { AttachmentWorld } from "./plan/gather.ts";

/**
 * Throws, with CNI's error 50, why a network cannot take a container now. Without a name it is the
 * configured network.
 */
export function refuseUnready(
  name: string | undefined,
  { networks, addresses, config }: Pick<AttachmentWorld, "networks" | "addresses" | "config">,
): void {
  try {
    const network = networks.find(name ?? config.network.name);
    networks.refuseChanging([network.name]);
    const full = network.subnets.find(
      ({ cidr }) => addresses.nextFree(network.name, cidr, 1).length === 0,
    );
    if (full !== undefined)
      throw new PodnetError(
        "POOL_EXHAUSTED",
        `Network "${network.name}" has no address left in ${full.cidr}`,
        {
          hint: "Delete pods or end containers that are not needed, or give the network more addresses",
          details: { network: network.name, subnet: full.cidr },
        },
      );
  } catch (thrown) {
    throw toPodnetError(thrown).with({ details: { cni: cniError.notAvailable } });
  }
}
