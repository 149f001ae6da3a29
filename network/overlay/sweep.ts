import { contains, familyOf, ipOf } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { mark } from "../model/desired.ts";
import type { OverlayChange } from "./change.ts";
import { type OverlayShape, sideFamily } from "../model/overlay.ts";
import type { OverlayNetlink } from "./kernel.ts";

/**
 * The changes that remove routes with our protocol number outside of every overlay's network, such
 * as a former network's. Routes on the device of an overlay with their family are left to that
 * overlay's own comparison.
 */
export async function orphanRoutes(
  netlink: OverlayNetlink,
  known: readonly OverlayShape[],
): Promise<readonly OverlayChange[]> {
  const sides = known.flatMap((desired) => desired.sides);
  const devices = new Set<string>();
  for (const side of sides) {
    const { vtep } = side;
    const link = vtep === undefined ? undefined : await netlink.link(vtep.device);
    if (link !== undefined) devices.add(`${sideFamily(side)} ${link.index}`);
  }
  const changes: OverlayChange[] = [];
  for (const route of await netlink.routes({ table: 254, protocol: mark.routeProtocol })) {
    const { destination, gateway, link = 0, onlink, protocol, metric } = route;
    if (devices.has(`${familyOf(ipOf(destination))} ${link}`)) continue;
    if (sides.some(({ network }) => contains(network, ipOf(destination)))) continue;
    const name = (await netlink.link(link))?.name as IfName | undefined;
    if (name === undefined) continue;
    changes.push({
      kind: "remove-route",
      destination,
      ...(gateway === undefined ? {} : { gateway }),
      link: name,
      onlink,
      protocol,
      metric,
    });
  }
  return changes;
}
