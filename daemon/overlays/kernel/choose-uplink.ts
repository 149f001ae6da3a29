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

/** What of the host decides. */
export interface HostLinks {
  readonly links: readonly HostLink[];
  /**
   * How the address that is to be reached would be: undefined without such a wish, or without a
   * route.
   */
  readonly reach?: { readonly link: number; readonly source?: Ip };
  /** The link of each family's default route. */
  readonly defaults: Readonly<Partial<Record<Family, number>>>;
}

/** The interface that is used, and by what address others send to this host. */
export interface Uplink {
  readonly link: IfName;
  readonly index: number;
  readonly mtu: number;
  /** Addresses of the interface: what leaves for other hosts leaves with them. */
  readonly address?: Ip;
  readonly address6?: Ip;
  /** What the lease says: those addresses, unless the configuration says otherwise. */
  readonly publicIp?: Ip;
  readonly publicIp6?: Ip;
}

/**
 * The interface by which the others are reached: that of the first wish, in flannel's order, which
 * leads to one with an address of each of `families`. Pure; `observeHostLinks` gives what it looks
 * at. Throws `PREFLIGHT_FAILED`, which says what was tried.
 */
export function chooseUplink(
  wishes: InterfaceChoice,
  host: HostLinks,
  families: readonly Family[],
): Uplink {
  const tried: string[] = [];
  for (const { what, field, find } of searches(wishes, families)) {
    const found = find(host);
    const whole = found.find((one) => missingFamily(one, families) === undefined);
    if (whole !== undefined) return uplinkOf(whole, wishes, families);
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
  /** The address that the wish was about, if it was about one. */
  readonly address?: Ip;
}

interface Search {
  readonly field: string;
  readonly what: string;
  /** What fits, best first. */
  readonly find: (host: HostLinks) => readonly Found[];
}

/** What is looked for, in this order. */
function searches(wishes: InterfaceChoice, families: readonly Family[]): Search[] {
  const { interfaces, patterns, canReach } = wishes;
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
  const publicIp = families.includes(4) ? wishes.publicIp : wishes.publicIp6;
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

/** The one the wish was about, or the one that is preferred. */
function addressIn({ link, address }: Found, family: Family): Ip | undefined {
  if (address !== undefined && familyOf(address) === family) return address;
  return link.addresses.find((ip) => familyOf(ip) === family);
}

/** (What the host has of a family that the overlay has not may come and go as it likes.) */
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

/** Whether two choices come to the same. */
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
