import {
  type Ip,
  type IpPrefix,
  ipOf,
  ipToBytes,
  type Mac,
  macFromBytes,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { AttachmentSnapshot } from "./snapshot.ts";
import type { AttachmentRequest } from "../cni/attachment-request.ts";

/**
 * A MAC made of an address as Kubernetes' plugins make it: 0a:58 and the address's last four bytes,
 * in which addresses differ. Pure.
 */
export const madeMac = (ip: Ip): Mac =>
  macFromBytes(Uint8Array.of(0x0a, 0x58, ...ipToBytes(ip).slice(-4)));

/**
 * The requested MAC; else one made of the first address, IPv4 before IPv6, which belongs to one
 * container as the address does. Where that MAC was requested by another container before, a drawn
 * one is used: other hosts know the container by its address. Pure. Throws `MAC_IN_USE`.
 */
export function chooseMac(
  { mac }: Pick<AttachmentRequest, "mac">,
  addresses: readonly IpPrefix[],
  { macHolder, drawnMac }: Pick<AttachmentSnapshot, "macHolder" | "drawnMac">,
): Mac {
  if (mac === undefined) {
    const [first = "0.0.0.0/0" as IpPrefix] = addresses;
    return drawnMac ?? madeMac(ipOf(first));
  }
  if (macHolder === undefined) return mac;
  throw new PodnetError("MAC_IN_USE", `MAC ${mac} is held by ${macHolder}`, {
    field: "mac",
    hint: "Ask for another one, or for none",
    details: { holder: macHolder },
  });
}
