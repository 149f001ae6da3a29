import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  type Network,
  type NetworkSpec,
  NetworkSpecSchema,
  type SubnetSpec,
  SubnetSpecSchema,
} from "../../api/gen/podnet/v1/network_service_pb.ts";
import { RateLimitsSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { FlagWriter, type GivenFlags } from "./given.ts";
import { limitPartsFrom, limitsFrom } from "./limit-flags.ts";
import { collect, parseCount } from "../parse.ts";
import { readRulesFile } from "../pod-file.ts";
import { usage } from "../usage.ts";

/** The flags that say what a network is. */
export interface NetworkFlags {
  readonly bridge?: string;
  readonly cidr?: readonly string[];
  readonly range?: readonly string[];
  readonly reserve?: readonly string[];
  readonly mtu?: string;
  readonly dns?: readonly string[];
  readonly dnsSearch?: readonly string[];
  readonly nat?: boolean;
  readonly isolated?: boolean;
  readonly vlanFiltering?: boolean;
  readonly resolver?: boolean;
  readonly cloudMetadata?: boolean;
  readonly acceptTranslated?: boolean;
  readonly admit?: readonly string[];
  readonly hostAccess?: readonly string[];
  readonly connections?: string;
  readonly limit?: string;
  readonly policy?: string;
}

/** Adds the flags to a command. */
export const addNetworkFlags = (command: Command): Command =>
  command
    .option(
      "--cidr <subnet>",
      "its addresses; with host bits that one is the gateway, else the first; one IPv4 and one IPv6 at most",
      collect,
    )
    .option(
      "--range <addresses>",
      "automatic addresses come from here alone: FIRST-LAST, a network or an address; may be repeated",
      collect,
    )
    .option("--reserve <addresses>", "never given, in the same forms; may be repeated", collect)
    .option("--mtu <bytes>", "MTU of the bridge and its ports; default 1500")
    .option("--dns <ip>", "a name server for guests; default the host's; may be repeated", collect)
    .option("--dns-search <domain>", "a search domain for guests; may be repeated", collect)
    .option("--resolver", "pods ask the gateway for names; default as podnetd is configured")
    .option("--no-resolver", "pods ask the name servers themselves")
    .option("--no-nat", "what leaves the host keeps the pod's address")
    .option("--isolated", "pods reach the gateway but not each other")
    .option(
      "--vlan-filtering",
      "the bridge filters VLANs, so that interfaces can be members of one",
    )
    .option(
      "--cloud-metadata",
      "pods reach 169.254.0.0/16 outside of this host, where clouds keep a machine's metadata and keys",
    )
    .option(
      "--accept-translated",
      "connections that other programs on this host translate (hostPort, NodePort) reach pods too; containers in any case",
    )
    .option(
      "--admit <subnet>",
      "from these sources all of the network is reached, such as pods of other nodes; may be repeated",
      collect,
    )
    .option(
      "--host-access <ports>",
      "host ports open to pods: tcp/PORT, udp/FIRST-LAST, all; may be repeated",
      collect,
    )
    .option(
      "--connections <count>",
      "limit for each pod: 512, 2048, 8192, 32768 or 0; default 8192",
    )
    .option(
      "--limit <parts>",
      "of interfaces that do not say otherwise: in=RATE,out=RATE,pps=COUNT,burst=BYTES; none",
    )
    .option(
      "--policy <file>",
      "rules of its own for all on it, before policies: default, rules, ingress; none",
    );

/** The network a create asks for. */
export async function specOf(
  name: string,
  flags: NetworkFlags,
  record: GivenFlags,
): Promise<NetworkSpec> {
  const { cidr = [], bridge = "" } = flags;
  const spec = create(NetworkSpecSchema, {
    name,
    bridge,
    subnets: cidr.map((each) => ({ cidr: each })),
  });
  return overlay(spec, flags, record);
}

/** Throws when addresses of a subnet are named, and the subnet is not. */
export function refuseWithoutSubnet({ range, reserve }: NetworkFlags): void {
  const flag = range !== undefined ? "--range" : reserve !== undefined ? "--reserve" : undefined;
  if (flag !== undefined)
    throw usage(`${flag} needs --cidr`, "Give the subnet too, such as --cidr 10.20.0.0/24");
}

/** Throws when none of the flags is given. */
export function refuseNothing(flags: NetworkFlags): void {
  const { cidr, range, reserve, mtu, dns, dnsSearch, nat, isolated, vlanFiltering, resolver } =
    flags;
  const { cloudMetadata, acceptTranslated, admit, hostAccess, connections, limit, policy } = flags;
  const reach = [cloudMetadata, acceptTranslated, admit, hostAccess, connections, limit, policy];
  const rules = [nat, isolated, vlanFiltering, resolver, ...reach];
  const given = [cidr, range, reserve, mtu, dns, dnsSearch, ...rules];
  if (given.every((flag) => flag === undefined))
    throw usage("Nothing is to be changed", "Give what is to be another: podnet network update -h");
}

/** The network's spec after an update: unchanged except for the flags. */
export async function updatedSpec(
  network: Network | undefined,
  flags: NetworkFlags,
  record: GivenFlags,
): Promise<NetworkSpec> {
  const { name, mtu, dns, dnsSearch, masquerade, isolated, vlanFiltering, resolver } =
    network ?? {};
  const was = (network?.subnets ?? []).map(({ cidr, gateway, ranges, reservations }) =>
    create(SubnetSpecSchema, {
      // The gateway as host bits: the same again, whichever it is.
      cidr: `${gateway}${cidr.slice(cidr.indexOf("/"))}`,
      ranges,
      reserved: reservations,
    }),
  );
  const subnets = flags.cidr?.map(
    (cidr) => was.find((each) => each.cidr === cidr) ?? create(SubnetSpecSchema, { cidr }),
  );
  const spec = create(NetworkSpecSchema, {
    ...(name === undefined ? {} : { name }),
    subnets: subnets ?? was,
    ...(mtu === undefined ? {} : { mtu }),
    dns: dns ?? [],
    dnsSearch: dnsSearch ?? [],
    masquerade: masquerade ?? true,
    isolated: isolated ?? false,
    vlanFiltering: vlanFiltering ?? false,
    cloudMetadata: network?.cloudMetadata ?? false,
    acceptTranslated: network?.acceptTranslated ?? false,
    admit: network?.admit ?? [],
    hostAccess: network?.hostAccess ?? [],
    ...(network === undefined ? {} : { connections: network.connections }),
    ...(network?.limits === undefined ? {} : { limits: network.limits }),
    ...(network?.policy === undefined ? {} : { policy: network.policy }),
    ...(resolver === undefined ? {} : { resolver }),
  });
  return overlay(spec, flags, record);
}

/** Flags that are on or off, and lists that `none` empties, each with its field. */
const switches = [
  ["nat", "masquerade", "masquerade"],
  ["isolated", "isolated", "isolated"],
  ["vlanFiltering", "vlanFiltering", "vlan_filtering"],
  ["resolver", "resolver", "resolver"],
  ["cloudMetadata", "cloudMetadata", "cloud_metadata"],
  ["acceptTranslated", "acceptTranslated", "accept_translated"],
] as const;
const lists = [
  ["dns", "dns", "dns"],
  ["dnsSearch", "dnsSearch", "dns_search"],
  ["admit", "admit", "admit"],
  ["hostAccess", "hostAccess", "host_access"],
] as const;

async function overlay(
  spec: NetworkSpec,
  given: NetworkFlags,
  record: GivenFlags,
): Promise<NetworkSpec> {
  const flags = new FlagWriter(given, record);
  flags.put("bridge", "bridge", () => {});
  flags.put("cidr", "subnets", () => {});
  for (const [key, into, field] of switches)
    flags.put(key, field, (value) => {
      spec[into] = value;
    });
  for (const [key, into, field] of lists)
    flags.put(key, field, (values) => {
      spec[into] = listed(values);
    });
  flags.put("range", perSubnet(spec, "ranges"), (values) =>
    divide(spec.subnets, "ranges", values, "--range"),
  );
  flags.put("reserve", perSubnet(spec, "reserved"), (values) =>
    divide(spec.subnets, "reserved", values, "--reserve"),
  );
  flags.put("mtu", "mtu", (text) => {
    spec.mtu = parseCount("--mtu", text);
  });
  flags.put("connections", "connections", (text) => {
    spec.connections = parseCount("--connections", text);
  });
  flags.put("limit", "limits", (text) => {
    const parts = limitPartsFrom("--limit", text);
    spec.limits = create(RateLimitsSchema, limitsFrom(parts, spec.limits));
  });
  const { policy } = given;
  const rules = policy === undefined || policy === "none" ? undefined : await readRulesFile(policy);
  flags.put("policy", "policy", () => {
    if (rules === undefined) delete spec.policy;
    else spec.policy = rules;
  });
  return spec;
}

/** A field of each subnet. */
const perSubnet = (spec: NetworkSpec, key: "ranges" | "reserved"): string[] =>
  spec.subnets.map((_, i) => `subnets[${i}].${key}`);

/** `none` alone is an empty list. */
const listed = (values: readonly string[]): string[] =>
  values.length === 1 && values[0] === "none" ? [] : [...values];

const isIpv6 = (text: string): boolean => text.includes(":");

/** Gives each subnet what is of its family. */
function divide(
  subnets: readonly SubnetSpec[],
  key: "ranges" | "reserved",
  values: readonly string[],
  flag: string,
): void {
  const given = listed(values);
  for (const subnet of subnets)
    subnet[key] = given.filter((text) => isIpv6(text) === isIpv6(subnet.cidr));
  const nowhere = given.find((text) => subnets.every(({ cidr }) => isIpv6(cidr) !== isIpv6(text)));
  if (nowhere !== undefined)
    throw usage(`${flag} ${nowhere} is of no subnet's family`, "Name addresses of its subnets");
}
