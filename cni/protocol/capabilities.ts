import {
  type Cidr,
  type Ip,
  type Mac,
  networkOf,
  parseIp,
  parseIpPrefix,
  parseUnicastMac,
} from "../../core/address.ts";
import type { IpPrefix } from "../../core/address.ts";
import {
  asObject,
  countAt,
  type JsonObject,
  listAt,
  member,
  objectAt,
  read,
  readAt,
  textAt,
  textsAt,
} from "./json.ts";
import { cniError, refusal } from "./refusal.ts";
import type { CniDns } from "./result.ts";

export interface CniPort {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: "tcp" | "udp" | "sctp";
  /** Absent: every address of the host. */
  readonly hostIp?: Ip;
}

/** Rates in bits a second, bursts in bits; ingress is towards the container. No rate, no limit. */
export interface CniBandwidth {
  readonly ingressRate?: number;
  readonly ingressBurst?: number;
  readonly egressRate?: number;
  readonly egressBurst?: number;
}

export interface CniIpRange {
  readonly subnet: Cidr;
  readonly rangeStart?: Ip;
  readonly rangeEnd?: Ip;
  readonly gateway?: Ip;
}

/**
 * A runtime's requests alongside the configuration (`runtimeConfig`), in one form for all runtimes.
 */
export interface Capabilities {
  readonly portMappings: readonly CniPort[];
  readonly bandwidth?: CniBandwidth;
  /** Addresses asked for, with or without a length. */
  readonly ips: readonly (Ip | IpPrefix)[];
  readonly mac?: Mac;
  readonly dns?: CniDns;
  /** One set of ranges for each address that is asked for. */
  readonly ipRanges: readonly (readonly CniIpRange[])[];
  /** Further names of the container in this network (podman). */
  readonly aliases: readonly string[];
  /** `io.kubernetes.cri.pod-annotations` (containerd). */
  readonly annotations: ReadonlyMap<string, string>;
}

export const noCapabilities: Capabilities = {
  portMappings: [],
  ips: [],
  ipRanges: [],
  aliases: [],
  annotations: new Map(),
};

const annotationsKey = "io.kubernetes.cri.pod-annotations";

/**
 * Reads `runtimeConfig` of a network's configuration of that name. Throws with CNI's error 6 or 7.
 */
export function parseCapabilities(
  object: JsonObject,
  network: string,
  field = "runtimeConfig",
): Capabilities {
  const at = (name: string): string => `${field}.${name}`;
  const bandwidth = parseBandwidth(objectAt(object, "bandwidth", at("bandwidth")), at("bandwidth"));
  const mac = readAt(object, "mac", at("mac"), parseUnicastMac);
  const dns = parseRuntimeDns(objectAt(object, "dns", at("dns")), at("dns"));
  return {
    portMappings: listAt(object, "portMappings", at("portMappings")).flatMap((value, i) => {
      const port = parsePort(value, `${field}.portMappings[${i}]`);
      return port === undefined ? [] : [port];
    }),
    ...(bandwidth === undefined ? {} : { bandwidth }),
    ips: parseIps(object, "ips", at("ips")),
    ...(mac === undefined ? {} : { mac }),
    ...(dns === undefined ? {} : { dns }),
    ipRanges: listAt(object, "ipRanges", at("ipRanges")).map((value, i) =>
      parseRangeSet(value, `${field}.ipRanges[${i}]`),
    ),
    aliases: aliasesIn(member(object, "aliases"), network),
    annotations: parseAnnotations(objectAt(object, annotationsKey, at(annotationsKey)), field),
  };
}

/** Addresses with or without a length, one by one. */
export const parseIps = (
  object: JsonObject,
  name: string,
  field: string,
): readonly (Ip | IpPrefix)[] =>
  textsAt(object, name, field).map((text, i) => read(text, `${field}[${i}]`, parseWantedIp));

/** An address with or without its length. */
export const parseWantedIp = (text: string, field: string): Ip | IpPrefix =>
  text.includes("/") ? parseIpPrefix(text, field) : parseIp(text, field);

/** Aliases read of one container, so that names stay few. */
const mostAliases = 32;

/**
 * Further names: a list, as the conventions of CNI have it (CONVENTIONS.md, `aliases`), or a map
 * from networks' names to such lists, as podman 4 and its plugin dnsname have it. Names are a
 * convenience: what is something else is passed over, and fails no ADD.
 */
function aliasesIn(value: unknown, network: string): readonly string[] {
  const list: unknown =
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.hasOwn(value, network)
      ? (value as JsonObject)[network]
      : value;
  if (!Array.isArray(list)) return [];
  const texts = list.filter((each): each is string => typeof each === "string");
  return [...new Set(texts)].slice(0, mostAliases);
}

/** Undefined for what is not published: a host port of 0, which kubelet sends. */
function parsePort(value: unknown, field: string): CniPort | undefined {
  const object = asObject(value, field);
  const hostPort = countAt(object, "hostPort", `${field}.hostPort`, 0, 65535) ?? 0;
  if (hostPort === 0) return undefined;
  const containerPort = countAt(object, "containerPort", `${field}.containerPort`, 1, 65535);
  if (containerPort === undefined)
    throw refusal(`${field} has no port of the container`, {
      cni: cniError.config,
      field: `${field}.containerPort`,
      hint: "Write a port from 1 to 65535",
    });
  const protocol = (textAt(object, "protocol", `${field}.protocol`) ?? "tcp").toLowerCase();
  if (protocol !== "tcp" && protocol !== "udp" && protocol !== "sctp")
    throw refusal(`${field}.protocol is none podnet knows`, {
      cni: cniError.config,
      field: `${field}.protocol`,
      hint: "Write tcp, udp or sctp",
    });
  const hostIp = readAt(object, "hostIP", `${field}.hostIP`, parseIp);
  return { hostPort, containerPort, protocol, ...(hostIp === undefined ? {} : { hostIp }) };
}

function parseBandwidth(object: JsonObject, field: string): CniBandwidth | undefined {
  const limits: Partial<Record<keyof CniBandwidth, number>> = {};
  for (const direction of ["ingress", "egress"] as const) {
    const rate = countAt(object, `${direction}Rate`, `${field}.${direction}Rate`) ?? 0;
    const burst = countAt(object, `${direction}Burst`, `${field}.${direction}Burst`) ?? 0;
    if (rate === 0) continue;
    limits[`${direction}Rate`] = rate;
    if (burst > 0) limits[`${direction}Burst`] = burst;
  }
  return Object.keys(limits).length === 0 ? undefined : limits;
}

/** The capability `dns` names its members otherwise than results do: servers, searches, options. */
function parseRuntimeDns(object: JsonObject, field: string): CniDns | undefined {
  const nameservers = textsAt(object, "servers", `${field}.servers`);
  const search = textsAt(object, "searches", `${field}.searches`);
  const options = textsAt(object, "options", `${field}.options`);
  const none = nameservers.length + search.length + options.length === 0;
  return none ? undefined : { nameservers, search, options };
}

function parseRangeSet(value: unknown, field: string): readonly CniIpRange[] {
  return listAt({ set: value }, "set", field).map((entry, i) => {
    const at = `${field}[${i}]`;
    const object = asObject(entry, at);
    const subnet = readAt(object, "subnet", `${at}.subnet`, parseIpPrefix);
    if (subnet === undefined)
      throw refusal(`${at} has no subnet`, {
        cni: cniError.config,
        field: `${at}.subnet`,
        hint: "Write a network, such as 10.0.0.0/24",
      });
    const ips = (["rangeStart", "rangeEnd", "gateway"] as const).flatMap((name) => {
      const ip = readAt(object, name, `${at}.${name}`, parseIp);
      return ip === undefined ? [] : [[name, ip]];
    });
    return { subnet: networkOf(subnet), ...Object.fromEntries(ips) };
  });
}

function parseAnnotations(object: JsonObject, field: string): ReadonlyMap<string, string> {
  const at = `${field}.${annotationsKey}`;
  return new Map(
    Object.keys(object).flatMap((key) => {
      const value = member(object, key);
      return value === undefined ? [] : [[key, textAt({ value }, "value", at) ?? ""]];
    }),
  );
}
