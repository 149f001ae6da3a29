import {
  type Cidr,
  familyOf,
  type Ip,
  ipFromBigInt,
  ipOf,
  ipToBigInt,
} from "../../../core/address.ts";
import { assertNever } from "../../../core/brand.ts";
import type { BackendType } from "../../../overlay/flannel/backend.ts";
import type { Peer } from "../../../overlay/peers.ts";

/** The first address after a subnet's base: its bridge's, as every host of an overlay has it. */
const gateway = (subnet: Cidr): Ip => ipFromBigInt(familyOf(subnet), ipToBigInt(ipOf(subnet)) + 1n);

/**
 * The addresses of a peer that answer if packets reach its pods' bridge, the likeliest first. They
 * are addresses of the overlay wherever there is a path through it: a reachable host does not prove
 * that its pods are reachable.
 */
export function probeTargets(
  { subnets, publicIp, publicIp6 }: Pick<Peer, "subnets" | "publicIp" | "publicIp6">,
  backend: BackendType,
): readonly Ip[] {
  const subnet = subnets.v4 ?? subnets.v6;
  switch (backend) {
    // A device of the overlay has the base, whether there is a bridge yet or not.
    case "vxlan":
    case "udp":
    case "ipip":
    case "wireguard":
      return subnet === undefined ? [] : [ipOf(subnet), gateway(subnet)];
    case "host-gw":
    case "extension":
    case "ipsec":
      return subnet === undefined ? [] : [gateway(subnet)];
    // No way through it that podnet knows of.
    case "alloc": {
      const host = subnets.v4 === undefined ? publicIp6 : publicIp;
      return host === undefined ? [] : [host];
    }
    default:
      return assertNever(backend);
  }
}
