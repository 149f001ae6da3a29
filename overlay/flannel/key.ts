import { type Cidr, type Family, familyOf, ipOf, lengthOf, parseCidr } from "../../core/address.ts";
import { readable } from "./config.ts";
import { leasesPrefix, type Prefix } from "./prefix.ts";

/** A host's subnets: of one family or of both. */
export type Subnets =
  | { readonly v4: Cidr; readonly v6: Cidr | undefined }
  | { readonly v4: undefined; readonly v6: Cidr };

/** Searched as flannel does: at the key's end, after any prefix. */
const pattern = /([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)-([0-9]+)(?:&([0-9a-f:]+)-([0-9]+))?$/;

/** The placeholder for the IPv4 subnet of a host that has none. */
const none = "0.0.0.0-0";

const part = (subnet: Cidr): string => `${ipOf(subnet)}-${lengthOf(subnet)}`;

/** The last part of a lease's key, and the name by which a host's subnets are reported. */
export function subnetsText({ v4, v6 }: Subnets): string {
  const first = v4 === undefined ? none : part(v4);
  return v6 === undefined ? first : `${first}&${part(v6)}`;
}

/** The key of the lease of these subnets. */
export const leaseKey = (prefix: Prefix, subnets: Subnets): string =>
  `${leasesPrefix(prefix)}/${subnetsText(subnets)}`;

/**
 * The subnets that a lease's key is of; undefined when flannel, or a kernel's route, could not make
 * them of it.
 */
export function parseLeaseKey(key: string): Subnets | undefined {
  // Keys are short: a long one is not a lease's key, and is not searched.
  const match = key.length > 512 ? null : pattern.exec(key);
  if (match === null) return undefined;
  const [, ip4 = "", length4 = "", ip6, length6 = ""] = match;
  const v6 = ip6 === undefined ? undefined : subnetOf(ip6, length6, 6);
  if (`${ip4}-${length4}` === none) return v6 && { v4: undefined, v6 };
  const v4 = subnetOf(ip4, length4, 4);
  return v4 === undefined || (ip6 !== undefined && v6 === undefined) ? undefined : { v4, v6 };
}

function subnetOf(ip: string, length: string, family: Family): Cidr | undefined {
  const subnet = readable(() => parseCidr(`${ip}/${length}`));
  return subnet !== undefined && familyOf(subnet) === family ? subnet : undefined;
}

export const sameSubnets = (a: Subnets, b: Subnets): boolean => a.v4 === b.v4 && a.v6 === b.v6;
