import { type Cidr, type Family, familyOf, type Ip, isIp, parseIp } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName, printable } from "../../../core/names.ts";
import type { InterfaceChoice } from "../../config/overlay.ts";

/** A link of the host that others could be reached by. */
export interface HostLink {
  readonly index: number;
  readonly name: string;
  readonly mtu: number;
  /** Addresses that other hosts can send to, in the order of preference. */
  readonly addresses: readonly Ip[];
}

/** The properties of the host on which the choice depends. */
export interface HostLinks {
  readonly links: readonly HostLink[];
  /**
   * The route to the address that has to be reachable; undefined if the configuration names no such
   * address, or there is no route.
   */
  readonly reach?: { readonly link: number; readonly source?: Ip };
  /** The link of each family's default route. */
  readonly defaults: Readonly<Partial<Record<Family, number>>>;
}

/** The interface that is used, and the address to which other hosts send. */
export interface Uplink {
  readonly link: IfName;
  readonly index: number;
  readonly mtu: number;
  /** The interface's address of this family: the source of packets to other hosts. */
  readonly address?: Ip;
  readonly address6?: Ip;
  /** The address in the lease: the interface's, unless the configuration names another. */
  readonly publicIp?: Ip;
  readonly publicIp6?: Ip;
}

/**
 * Chooses the interface for traffic to other hosts: the first criterion, in flannel's order, that
 * leads to an interface with an address of each of `families`. Pure; `observeHostLinks` returns the
 * input. Throws `PREFLIGHT_FAILED`, which names the criteria that were tried.
 */
export function chooseUplink(
  choice: InterfaceChoice,
  host: HostLinks,
  families: readonly Family[],
): Uplink {
  const tried: string[] = [];
  for (const { what, field, find } of searches(choice, families)) {
    const found = find(host);
    const whole = found.find((one) => missingFamily(one, families) === undefined);
    if (whole !== undefined) return uplinkOf(whole, choice, families);
    const lacking = found.map(
      (one) => `${printable(one.link.name)} has no address of IPv${missingFamily(one, families)}`,
    );
    tried.push(`${field} ${what}: ${lacking.join(", ") || "none"}`);
  }
  throw new PodnetError(
    "PREFLIGHT_FAILED",
    "No interface leads to the other hosts of the overlay",
    {
      field: "overlay.interface",
      hint: "Name an interface that is there, or give the host a default route",
      details: {
        tried: tried.join("; "),
        interfaces: host.links.map(({ name }) => printable(name)).join(" "),
      },
    },
  );
}

interface Found {
  readonly link: HostLink;
  /** The address that the criterion names, if it names one. */
  readonly address?: Ip;
}

interface Search {
  readonly field: string;
  readonly what: string;
  /** The interfaces that match, best first. */
  readonly find: (host: HostLinks) => readonly Found[];
}

/** The criteria, in order. */
function searches(choice: InterfaceChoice, families: readonly Family[]): Search[] {
  const { interfaces, patterns, canReach } = choice;
  const named = [
    ...interfaces.map((what) => ({ field: "interface", what, find: byNameOrAddress(what) })),
    ...patterns.map((regex) => {
      const find = byRegex(regex, families);
      return { field: "interface_regex", what: regex.source, find };
    }),
    ...(canReach === undefined
      ? []
      : [{ field: "can_reach", what: canReach, find: byReach(canReach) }]),
  ];
  if (named.length > 0) return named;
  const publicIp = families.includes(4) ? choice.publicIp : choice.publicIp6;
  if (publicIp !== undefined)
    return [{ field: "public_ip", what: publicIp, find: byAddress(publicIp) }];
  // (The default route of the first family decides for both, as an overlay goes by one interface.)
  const family = families.includes(4) ? 4 : 6;
  return [{ field: "default route", what: `of IPv${family}`, find: byDefault(family) }];
}

const byAddress =
  (address: Ip): Search["find"] =>
  ({ links }) =>
    links.filter(({ addresses }) => addresses.includes(address)).map((link) => ({ link, address }));

function byNameOrAddress(text: string): Search["find"] {
  if (isIp(text)) return byAddress(parseIp(text));
  return ({ links }) => links.filter(({ name }) => name === text).map((link) => ({ link }));
}

/** Addresses that match, of a family that is wanted, then names. */
const byRegex =
  (regex: RegExp, families: readonly Family[]): Search["find"] =>
  ({ links }) => [
    ...links.flatMap((link) =>
      link.addresses
        .filter((ip) => families.includes(familyOf(ip)) && regex.test(ip))
        .map((address) => ({ link, address })),
    ),
    ...links.filter(({ name }) => regex.test(name)).map((link) => ({ link })),
  ];

const byReach =
  (target: Ip): Search["find"] =>
  ({ links, reach }) => {
    const source = reach?.source;
    const address =
      source !== undefined && familyOf(source) === familyOf(target) ? { address: source } : {};
    return links.filter(({ index }) => index === reach?.link).map((link) => ({ link, ...address }));
  };

const byDefault =
  (family: Family): Search["find"] =>
  ({ links, defaults }) =>
    links.filter(({ index }) => index === defaults[family]).map((link) => ({ link }));

const missingFamily = (found: Found, families: readonly Family[]): Family | undefined =>
  families.find((family) => addressIn(found, family) === undefined);

/** The address that the criterion names, or the preferred one. */
function addressIn({ link, address }: Found, family: Family): Ip | undefined {
  if (address !== undefined && familyOf(address) === family) return address;
  return link.addresses.find((ip) => familyOf(ip) === family);
}

/**
 * Addresses of a family that the overlay does not have are ignored, so that their changes have no
 * effect.
 */
function uplinkOf(
  found: Found,
  { publicIp, publicIp6 }: InterfaceChoice,
  families: readonly Family[],
): Uplink {
  const { link } = found;
  const address = families.includes(4) ? addressIn(found, 4) : undefined;
  const address6 = families.includes(6) ? addressIn(found, 6) : undefined;
  return {
    link: parseIfName(link.name, "overlay.interface"),
    index: link.index,
    mtu: link.mtu,
    ...(address === undefined ? {} : { address, publicIp: publicIp ?? address }),
    ...(address6 === undefined ? {} : { address6, publicIp6: publicIp6 ?? address6 }),
  };
}

/** Whether two choices are equal. */
export const sameUplink = (a: Uplink, b: Uplink): boolean =>
  a.link === b.link &&
  a.index === b.index &&
  a.mtu === b.mtu &&
  a.address === b.address &&
  a.address6 === b.address6 &&
  a.publicIp === b.publicIp &&
  a.publicIp6 === b.publicIp6;

/** Whether a route to `destination` may be how an address is reached. */
export const isDefault = (destination: Cidr): boolean =>
  destination === "0.0.0.0/0" || destination === "::/0";
