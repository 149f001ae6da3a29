import type { Cidr } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Overlap } from "../../../network/bridge/overlap.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";

/**
 * The reason why an overlay cannot have its configured networks here: the host uses addresses of
 * them, which `network create` refuses, too. Networks already in use are not checked again.
 * Undefined if there is no conflict. Throws the errors of the look.
 */
export async function refuseOverlap(
  { v4, v6 }: Pick<OverlayConfig, "v4" | "v6">,
  inForce: readonly (Cidr | undefined)[],
  overlaps: (networks: readonly Cidr[]) => Promise<readonly Overlap[]>,
): Promise<PodnetError | undefined> {
  const networks = [v4?.network, v6?.network].filter((network) => network !== undefined);
  const judged = networks.filter((network) => !inForce.includes(network));
  const [first, ...more] = judged.length === 0 ? [] : await overlaps(judged);
  if (first === undefined) return undefined;
  const others = more.length === 0 ? "" : ` and ${more.length} more`;
  return new PodnetError(
    "OVERLAY_CONFLICT",
    `The overlay's network ${first.subnet} overlaps with ${first.with}${others} of this host`,
    {
      field: "Network",
      hint: "Give the overlay addresses that no host uses, or set overlay.allow_overlap: existing destinations there may become unreachable",
      details: { network: first.subnet, overlaps: first.with },
    },
  );
}
