import { overlaps } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";

/** The configuration of each overlay of this host. */
export type Claims = Map<string, OverlayConfig>;

/**
 * Records an overlay's configuration, unless it conflicts with another one of this host: by
 * addresses that both hand out, or by their VXLAN id. Returns the conflict.
 */
export function conflictWith(
  wanted: OverlayConfig,
  claims: Claims,
  name: string,
): PodnetError | undefined {
  for (const [other, config] of claims) {
    if (other === name) continue;
    const what = commonOf(wanted, config);
    if (what === undefined) continue;
    claims.delete(name);
    return new PodnetError(
      "OVERLAY_CONFLICT",
      `Overlay "${other}" of this host has ${what} already`,
      {
        field: "Network",
        hint: "Give each overlay addresses, and a VNI, of its own",
        details: { overlay: name, other },
      },
    );
  }
  claims.set(name, wanted);
  return undefined;
}

function commonOf(a: OverlayConfig, b: OverlayConfig): string | undefined {
  for (const family of ["v4", "v6"] as const) {
    const [mine, others] = [a[family]?.network, b[family]?.network];
    if (mine !== undefined && others !== undefined && overlaps(mine, others)) return others;
  }
  if (a.backend.type === "vxlan" && b.backend.type === "vxlan" && a.backend.vni === b.backend.vni)
    return `VXLAN ${b.backend.vni}`;
  return undefined;
}
