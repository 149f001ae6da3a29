import type { Family } from "../../core/address.ts";
import { assertNever } from "../../core/brand.ts";
import type { OverlayBackend } from "../model/overlay.ts";

/** Outer addresses, UDP, VXLAN and the inner Ethernet header. */
const vxlanOverhead: Readonly<Record<Family, number>> = { 4: 50, 6: 70 };

/** Outer addresses and UDP. */
const udpOverhead = 28;

/**
 * The overlay's MTU in one family, if the parent's is `parentMtu`. A tunnel over IPv6 has longer
 * headers: otherwise the kernel would reduce its device's MTU, and pods would be sent too large an
 * MTU.
 */
export function sideMtu(backend: OverlayBackend, family: Family, parentMtu: number): number {
  switch (backend.kind) {
    case "vxlan":
      return Math.min(backend.mtu ?? parentMtu, parentMtu) - vxlanOverhead[family];
    case "udp":
      return parentMtu - udpOverhead;
    case "host-gw":
    case "none":
      return parentMtu;
    default:
      return assertNever(backend);
  }
}

/** The MTU of every pod of the overlay, in all of its families. */
export const overlayMtu = (
  backend: OverlayBackend,
  families: readonly Family[],
  parentMtu: number,
): number => Math.min(parentMtu, ...families.map((family) => sideMtu(backend, family, parentMtu)));
