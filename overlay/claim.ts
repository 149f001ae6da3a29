import type { Ip, Ipv4, Ipv6 } from "../core/address.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import { leaseKey, sameSubnets, type Subnets } from "./flannel/key.ts";
import type { Prefix } from "./flannel/prefix.ts";
import { type BackendAttributes, leaseValue } from "./flannel/value.ts";
import { type OwnerId, ownerOf } from "./owner.ts";
import type { Lease, Leases } from "./registry.ts";
import type { LeaseWrite } from "./store.ts";
import { sameFamilies, standInAddress } from "./subnets.ts";

/** The data about a host in its lease, for other hosts. */
export interface Host {
  readonly owner: OwnerId;
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
  readonly attributes: BackendAttributes;
}

/** The new value of a lease's key, or the reason why it must not be written. */
export type Claim =
  | { readonly kind: "write"; readonly write: LeaseWrite }
  /** Another host's lease names this host's public address. */
  | { readonly kind: "shared"; readonly ip: Ip; readonly holder: Lease }
  /**
   * The subnets are of other families than the configuration: a key of both wedges hosts that know
   * IPv4 alone.
   */
  | { readonly kind: "families" }
  /** The host has no public address of a family that the overlay has. */
  | { readonly kind: "address"; readonly family: 4 | 6 };

export interface Claimed {
  readonly prefix: Prefix;
  readonly config: OverlayConfig;
  /** Without an owner, it is the future holder of the addresses, of which nothing else is known. */
  readonly host: Omit<Host, "owner"> & { readonly owner?: OwnerId };
  readonly subnets: Subnets;
  readonly leases: Leases;
  /** The host's own keys, and keys that are deleted with it: they are ignored. */
  readonly without: ReadonlySet<string>;
}

/**
 * The only function that makes a key below `subnets`. Every flannel can read the result: key and
 * value consist of checked parts, of the configuration's families, and of an address that no other
 * host's lease names.
 */
export function leaseWrite(claimed: Claimed): Claim {
  const { prefix, config, host, subnets, leases, without } = claimed;
  if (!sameFamilies(subnets, config)) return { kind: "families" };
  // An overlay without IPv4 is told apart by stand-ins.
  const publicIp =
    config.v4 === undefined && subnets.v6 !== undefined
      ? standInAddress(subnets.v6, config)
      : host.publicIp;
  if (publicIp === undefined) return { kind: "address", family: 4 };
  const publicIp6 = config.v6 === undefined ? undefined : host.publicIp6;
  if (config.v6 !== undefined && publicIp6 === undefined) return { kind: "address", family: 6 };
  const key = leaseKey(prefix, subnets);
  const own = leases.get(key);
  for (const ip of [publicIp, publicIp6]) {
    // An address that the key already has is taken from no other host.
    if (ip === undefined || (own?.kind === "lease" && names(own, ip))) continue;
    const holder = leases
      .at(ip)
      .find(
        (lease) =>
          lease.key !== key &&
          !without.has(lease.key) &&
          (host.owner === undefined || ownerOf(lease.grant) !== host.owner),
      );
    if (holder !== undefined) return { kind: "shared", ip, holder };
  }
  const value = leaseValue(publicIp, publicIp6, inFamilies(host.attributes, config));
  return { kind: "write", write: { key, value } as LeaseWrite };
}

/** The backend's data, for the families that the overlay has. */
const inFamilies = (attributes: BackendAttributes, { v4, v6 }: OverlayConfig): BackendAttributes =>
  attributes.type === "vxlan" || attributes.type === "wireguard"
    ? ({
        ...attributes,
        v4: v4 && attributes.v4,
        v6: v6 && attributes.v6,
      } as BackendAttributes)
    : attributes;

const names = ({ value }: Lease, ip: Ip): boolean =>
  value.publicIp === ip || value.publicIp6 === ip;

/** The present value of a lease's key, to be written again. */
export const sameWrite = ({ key, text }: Lease): LeaseWrite => ({ key, value: text }) as LeaseWrite;

/**
 * The leases of this host: leases with its mark, if its address or its records confirm it (machines
 * are cloned, marks included), and leases with its address that bear no mark, as flannel writes
 * them, or the mark of a host that is gone.
 */
export function leasesOf(
  host: Host,
  previous: Subnets | undefined,
  config: OverlayConfig,
  leases: Leases,
  isGone: (owner: OwnerId) => boolean = () => false,
): Lease[] {
  const ip = config.v4 === undefined ? host.publicIp6 : host.publicIp;
  const isRemembered = ({ subnets }: Lease): boolean =>
    previous !== undefined && sameSubnets(subnets, previous);
  const marked = leases
    .of(host.owner)
    .filter((lease) => isRemembered(lease) || (ip !== undefined && names(lease, ip)));
  const unmarked = (ip === undefined ? [] : leases.at(ip)).filter(
    ({ grant }) => ownerOf(grant) === undefined,
  );
  const addresses = [config.v4 && host.publicIp, config.v6 && host.publicIp6];
  const left = new Set(
    addresses
      .flatMap((one) => (one === undefined ? [] : leases.at(one)))
      .filter(({ grant }) => {
        const owner = ownerOf(grant);
        return owner !== undefined && owner !== host.owner && isGone(owner);
      }),
  );
  return [...marked, ...unmarked, ...left];
}
