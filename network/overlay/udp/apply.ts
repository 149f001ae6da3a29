import type { Cidr, Ip } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import type { HostSysctl } from "../../kernel/kernel.ts";
import { writeOptional } from "../../bridge/observe.ts";
import type { OverlayChange, TunnelChange, TunnelPeerChange } from "../change.ts";
import type { OverlayKernel } from "../kernel.ts";
import type { Tunnels } from "./tunnels.ts";

export const isTunnelChange = (change: OverlayChange): change is TunnelChange =>
  change.kind === "open-tunnel" || change.kind === "close-tunnel";

export const isTunnelPeer = (change: OverlayChange): change is TunnelPeerChange =>
  change.kind === "set-peer" || change.kind === "remove-peer";

/**
 * Set before the device is up: no peer is accepted as a router, and the device speaks to peers by
 * no address but its own.
 */
export function keepToItself(device: IfName, sysctl: HostSysctl): void {
  writeOptional(sysctl, `net/ipv6/conf/${device}/accept_ra`, "0");
  writeOptional(sysctl, `net/ipv6/conf/${device}/addr_gen_mode`, "1");
}

/** Opens a tunnel, or closes it. Throws `SYSCALL_FAILED`. */
export async function applyTunnel(
  change: TunnelChange,
  { tunnels, sysctl }: Pick<OverlayKernel, "tunnels" | "sysctl">,
): Promise<void> {
  if (change.kind === "close-tunnel") await tunnels.close(change.overlay);
  else keepToItself(await tunnels.open(change.overlay, change.birth), sysctl);
}

/**
 * Sends the changes of peers to their tunnels, one message each. A tunnel that has gone gets all
 * peers when it is back.
 */
export function applyTunnelPeers(changes: readonly TunnelPeerChange[], tunnels: Tunnels): void {
  for (const [overlay, some] of Map.groupBy(changes, (change) => change.overlay)) {
    const set = new Map<Cidr, Ip>();
    const remove: Cidr[] = [];
    for (const change of some)
      if (change.kind === "set-peer") set.set(change.subnet, change.host);
      else remove.push(change.subnet);
    tunnels.get(overlay)?.setPeers(set, remove);
  }
}
