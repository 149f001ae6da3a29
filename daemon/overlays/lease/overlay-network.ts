import { type NetworkName, parseIfName } from "../../../core/names.ts";
import type { Networks } from "../../networks/networks.ts";
import type { OverlayMemory } from "../records/overlay-memory.ts";

/** The MTU until the overlay's MTU is known. */
const usualMtu = 1500;

/**
 * Ensures the network of one of several overlays, which has the overlay's name. A new network has
 * no subnet. Throws `NAME_IN_USE` if a caller made a network of this name, and the errors of the
 * host.
 */
export async function ensureOverlayNetwork(
  name: NetworkName,
  networks: Pick<Networks, "list" | "create" | "lease">,
  memory: OverlayMemory,
): Promise<void> {
  const there = networks.list().find((network) => network.name === name);
  if (there === undefined || memory.record.network === undefined) {
    // Before it is made: a start that is cut short knows that it is its own.
    memory.remember({ network: { subnets: [], mtu: usualMtu } });
    try {
      await networks.create(
        {
          name,
          bridge: parseIfName(`pn-${name}`.slice(0, 15)),
          subnets: [],
          mtu: usualMtu,
          dns: [],
          dnsSearch: [],
          masquerade: false,
          isolated: false,
          vlanFiltering: false,
        },
        { force: false },
      );
    } catch (thrown) {
      memory.forget();
      throw thrown;
    }
  }
  networks.lease(name);
}

/**
 * Removes the network together with the last record of its overlay, but not while pods use it.
 * Throws the errors of the host.
 */
export async function dropOverlayNetwork(
  name: NetworkName,
  networks: Pick<Networks, "delete" | "release">,
  memory: OverlayMemory,
): Promise<void> {
  networks.release(name);
  await networks.delete(name);
  memory.forget();
}
