import { overlaps } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";

/** What each overlay of this host is to be. */
export type Claims = Map<string, OverlayConfig>;

/**
 * Takes down what an overlay is to be, unless another of this host's has part of that already:
 * addresses that both hand out, or the same VXLAN. Answers why not.
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
