import { contains, ipOf } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { mark } from "../desired.ts";
import type { OverlayChange } from "./change.ts";
import type { OverlayDesired } from "./desired.ts";
import type { OverlayNetlink } from "./kernel.ts";

/** The changes that take away routes that bear our number and are in no overlay's network, nor on its device. */
export async function orphanRoutes(
  netlink: OverlayNetlink,
  known: readonly OverlayDesired[],
): Promise<readonly OverlayChange[]> {
  const sides = known.flatMap((desired) => desired.sides);
  const devices = new Set<number>();
  for (const { vtep } of sides) {
    const link = vtep === undefined ? undefined : await netlink.link(vtep.device);
    if (link !== undefined) devices.add(link.index);
  }
  const changes: OverlayChange[] = [];
  for (const route of await netlink.routes({ table: 254, protocol: mark.routeProtocol })) {
    const { destination, gateway, link = 0, onlink, protocol, metric } = route;
    if (devices.has(link)) continue;
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
