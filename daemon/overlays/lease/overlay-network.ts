import { type NetworkName, parseIfName } from "../../../core/names.ts";
import type { Networks } from "../../networks/networks.ts";
import type { OverlayMemory } from "../records/overlay-memory.ts";

/** Until the overlay says what fits through it. */
const usualMtu = 1500;

/**
 * The network of one of several overlays, which has its name: made without a subnet unless it is
 * there from an earlier start. Throws `NAME_IN_USE` when somebody else made it, and what the host
 * says.
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
 * Takes it away with the last that is known of its overlay; not from under pods. Throws what the
 * host says.
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
