import type { Answer } from "dns-packet";
import {
  type Cidr,
  contains,
  familyOf,
  type Ip,
  ipOf,
  lengthOf,
  parseCidr,
} from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Query } from "./query.ts";
import { parseReverseName, type ReverseName } from "./reverse-name.ts";

/** Seconds an answer may be kept: pods come and go. */
const ttl = 5;

/** RFC 1035 section 3.2, RFC 3596, RFC 4034, RFC 8482. */
const types = { a: 1, ns: 2, soa: 6, ptr: 12, aaaa: 28, ixfr: 251, axfr: 252, any: 255 } as const;
/**
 * Questions about a top-level domain itself, such as `com`: its servers (NS, SOA) and its keys (DS,
 * DNSKEY).
 */
const zoneTypes: ReadonlySet<number> = new Set([types.ns, types.soa, 43, 48]);
const internet = 1;

/** Pods of other hosts, where a network of this one is part of an overlay. */
export interface OtherHosts {
  /** The pools of all overlays: their addresses belong only to pods. */
  pools(): readonly Cidr[];
  /**
   * The addresses of a pod that runs on another host of a network's overlay; undefined when there
   * is none.
   */
  addressesOf(network: NetworkName, pod: string): readonly Ip[] | undefined;
  /** The pod that runs elsewhere on the overlay of a network with this address. */
  nameAt(network: NetworkName, ip: Ip): string | undefined;
}

/** Facts about the pods that share a network with the asker. */
export interface Zone {
  /** Suffix of pods' names, in lower case. */
  readonly domain: string;
  /**
   * The networks it may be reported: the one at whose gateway it asks, then its others in the order
   * of its interfaces.
   */
  networks(): readonly NetworkName[];
  /** The pools of this node's networks: their addresses belong only to pods. */
  pools(): readonly Cidr[];
  /** The addresses of a pod that runs on a network; undefined when there is none. */
  addressesOf(network: NetworkName, pod: string): readonly Ip[] | undefined;
  /** The addresses of a service of a network; undefined when there is none. */
  serviceAddresses?:
    | ((network: NetworkName, service: string) => readonly Ip[] | undefined)
    | undefined;
  /** The pod that runs on a network with this address. */
  nameAt(network: NetworkName, ip: Ip): string | undefined;
  /** Used where none of this host's pods has the name or the address. */
  readonly others?: OtherHosts | undefined;
}

/** The result for a question. */
export type Found =
  | { readonly kind: "records"; readonly records: readonly Answer[] }
  /** There is such a name, and nothing of this type. */
  | { readonly kind: "no-data"; readonly soa: Answer }
  | { readonly kind: "no-name"; readonly soa: Answer }
  /** Other servers know. */
  | { readonly kind: "elsewhere" }
  | { readonly kind: "refused" };

/** Looks a question up among what podnet knows. Pure. */
export function lookUp({ name, type, class: asked }: Query, zone: Zone): Found {
  const wanted = name.toLowerCase().replace(/\.$/, "");
  const { domain } = zone;
  // Other servers know no host without a dot in its name, and are not to learn the names that pods
  // ask for.
  const bare = /^[^.]+$/.test(wanted) && !zoneTypes.has(type);
  const own = bare || wanted === domain || wanted.endsWith(`.${domain}`);
  const reverse = own ? undefined : parseReverseName(wanted);
  const found = own
    ? forward(wanted, name, type, zone)
    : reverse === undefined
      ? elsewhere
      : backward(reverse, name, type, zone);
  if (found.kind === "elsewhere") return found;
  // Nothing is handed over whole, and there are no other classes.
  return type === types.axfr || type === types.ixfr || (asked !== internet && asked !== types.any)
    ? { kind: "refused" }
    : found;
}

const elsewhere: Found = { kind: "elsewhere" };

/**
 * The label between a service's name and the domain, unless the asker has a network of that name.
 */
const serviceLabel = "service";

/** `POD.DOMAIN`, `POD.NETWORK.DOMAIN`, `POD`, and `SERVICE.service.DOMAIN`. */
function forward(wanted: string, name: string, type: number, zone: Zone): Found {
  const { domain } = zone;
  const soa = authority(domain);
  const above =
    wanted === domain
      ? ""
      : wanted.endsWith(`.${domain}`)
        ? wanted.slice(0, -domain.length - 1)
        : wanted;
  if (above === "")
    return type === types.soa || type === types.any
      ? { kind: "records", records: [soa] }
      : { kind: "no-data", soa };
  const [pod = "", ...rest] = above.split(".");
  const networks = zone.networks();
  const named = rest.length === 0 ? networks : networks.filter((each) => each === rest.join("."));
  // Addresses on the network that is asked by come first: most ask for one alone, or try them in
  // turn.
  const knownTo = ({ addressesOf }: Pick<Zone, "addressesOf">): (readonly Ip[])[] =>
    named.flatMap((network) => {
      const addresses = addressesOf(network, pod);
      return addresses === undefined ? [] : [addresses];
    });
  const { serviceAddresses } = zone;
  const isService =
    rest.join(".") === serviceLabel && networks.every((each) => each !== serviceLabel);
  const own = isService
    ? networks.flatMap((network) => {
        const addresses = serviceAddresses?.(network, pod);
        return addresses === undefined ? [] : [addresses];
      })
    : knownTo(zone);
  const found = own.length === 0 && zone.others !== undefined ? knownTo(zone.others) : own;
  if (found.length === 0)
    // Names may end with a network's, and with the label of services.
    return [...networks, serviceLabel].some((each) => each === above)
      ? { kind: "no-data", soa }
      : { kind: "no-name", soa };
  const addresses = [...new Set(found.flat())];
  const records = addresses.flatMap((ip): Answer[] => {
    const four = familyOf(ip) === 4;
    if (type !== types.any && type !== (four ? types.a : types.aaaa)) return [];
    return [{ type: four ? "A" : "AAAA", name, ttl, class: "IN", data: ip }];
  });
  return records.length === 0 ? { kind: "no-data", soa } : { kind: "records", records };
}

function backward(
  { ip, network }: ReverseName,
  name: string,
  type: number,
  { domain, pools, networks, nameAt, others }: Zone,
): Found {
  const known = [...pools(), ...(others?.pools() ?? [])];
  const pool = known.find((each) => covers(each, network));
  if (pool === undefined) return elsewhere;
  const soa = authority(name);
  const pod = ip === undefined ? undefined : nameOn(networks(), ip, { nameAt, others });
  if (pod !== undefined)
    return type === types.ptr || type === types.any
      ? {
          kind: "records",
          records: [{ type: "PTR", name, ttl, class: "IN", data: `${pod}.${domain}` }],
        }
      : { kind: "no-data", soa };
  // Other servers know nothing of private addresses, and must not receive questions about them (RFC
  // 6303).
  if (!isPrivate(pool)) return elsewhere;
  return ip === undefined ? { kind: "no-data", soa } : { kind: "no-name", soa };
}

function nameOn(
  networks: readonly NetworkName[],
  ip: Ip,
  { nameAt, others }: Pick<Zone, "nameAt" | "others">,
): string | undefined {
  for (const known of [{ nameAt }, ...(others === undefined ? [] : [others])])
    for (const network of networks) {
      const name = known.nameAt(network, ip);
      if (name !== undefined) return name;
    }
  return undefined;
}

/** Says for how long it may be kept that there is nothing (RFC 2308). */
const authority = (name: string): Answer => ({
  type: "SOA",
  name,
  ttl,
  class: "IN",
  data: {
    mname: name,
    rname: `hostmaster.${name}`.slice(0, 253),
    serial: 1,
    refresh: 3600,
    retry: 600,
    expire: 86_400,
    minimum: ttl,
  },
});

const covers = (pool: Cidr, network: Cidr): boolean =>
  familyOf(pool) === familyOf(network) &&
  lengthOf(pool) <= lengthOf(network) &&
  contains(pool, ipOf(network));

/** RFC 1918, RFC 6598, RFC 3927, RFC 4193. */
const privates = [
  "10.0.0.0/8",
  "172.16.0.0/12",
  "192.168.0.0/16",
  "100.64.0.0/10",
  "169.254.0.0/16",
  "fc00::/7",
].map((text) => parseCidr(text));

const isPrivate = (pool: Cidr): boolean => privates.some((each) => covers(each, pool));
