import type { Ip, Ipv4, Ipv6 } from "../core/address.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import { leaseKey, sameSubnets, type Subnets } from "./flannel/key.ts";
import type { Prefix } from "./flannel/prefix.ts";
import { type BackendAttributes, leaseValue } from "./flannel/value.ts";
import { type OwnerId, ownerOf } from "./owner.ts";
import type { Lease, Leases } from "./registry.ts";
import type { LeaseWrite } from "./store.ts";
import { sameFamilies, standInAddress } from "./subnets.ts";

/** What a host tells the others of itself. */
export interface Host {
  readonly owner: OwnerId;
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
  readonly attributes: BackendAttributes;
}

/** What a lease's key is to say, or why it must not. */
export type Claim =
  | { readonly kind: "write"; readonly write: LeaseWrite }
  /** Somebody else's lease names this host's public address. */
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
  /** Without an owner: whoever will have the addresses, of whom nothing else is known. */
  readonly host: Omit<Host, "owner"> & { readonly owner?: OwnerId };
  readonly subnets: Subnets;
  readonly leases: Leases;
  /** Keys that are the host's own, or are deleted with it: what they say does not count. */
  readonly without: ReadonlySet<string>;
}

/**
 * The one way to a key below `subnets`. What it makes can be read by every flannel: key and value
 * are made of checked parts, of the configuration's families, and of an address that no other
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
    // What the key says already is not taken from anybody.
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

/** What the backend tells, of the families that the overlay has. */
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

/** What stands in a lease's key already, to be written once more. */
export const sameWrite = ({ key, text }: Lease): LeaseWrite => ({ key, value: text }) as LeaseWrite;

/**
 * Leases that are this host's: those with its mark, if its address or its memory says so too
 * (machines are cloned, marks and all), and those with its address where nobody has put a mark, as
 * flannel tells, or the mark of a host that is gone.
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
