import type { NetworkName } from "../../../core/names.ts";
import type { RemotePods } from "../../../overlay/pods/remote-pods.ts";
import type { OtherHosts } from "../../dns/zone.ts";
import type { OverlayControl, OverlayView } from "../view.ts";
import { isElsewhere } from "./shared-hosts.ts";

/**
 * Pods of other hosts by name and address, as far as they are on an overlay that a network of this
 * host is part of.
 */
export function otherPods(
  overlays: Pick<OverlayControl, "list">,
  remote: Pick<RemotePods, "addressesOf" | "nameAt">,
): OtherHosts {
  const overlayOf = (network: NetworkName): OverlayView | undefined =>
    overlays.list().find((overlay) => overlay.network === network);
  return {
    pools: () => overlays.list().flatMap(({ networks }) => networks),
    addressesOf(network, pod) {
      const overlay = overlayOf(network);
      const addresses = overlay && remote.addressesOf(overlay.name, pod);
      const believed = overlay && addresses?.filter((ip) => isElsewhere(ip, overlay));
      return believed?.length === 0 ? undefined : believed;
    },
    nameAt(network, ip) {
      const overlay = overlayOf(network);
      return overlay !== undefined && isElsewhere(ip, overlay)
        ? remote.nameAt(overlay.name, ip)
        : undefined;
    },
  };
}
