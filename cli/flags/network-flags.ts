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
export async function specOf(name: string, flags: NetworkFlags): Promise<NetworkSpec> {
  const { cidr = [], bridge = "" } = flags;
  const spec = create(NetworkSpecSchema, {
    name,
    bridge,
    subnets: cidr.map((each) => ({ cidr: each })),
  });
  return overlay(spec, flags);
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
  return overlay(spec, flags);
}

async function overlay(spec: NetworkSpec, flags: NetworkFlags): Promise<NetworkSpec> {
  const { range, reserve, mtu, dns, dnsSearch, nat, isolated, vlanFiltering, resolver } = flags;
  if (range !== undefined) divide(spec.subnets, "ranges", range, "--range");
  if (reserve !== undefined) divide(spec.subnets, "reserved", reserve, "--reserve");
  if (mtu !== undefined) spec.mtu = parseCount("--mtu", mtu);
  if (dns !== undefined) spec.dns = listed(dns);
  if (dnsSearch !== undefined) spec.dnsSearch = listed(dnsSearch);
  if (nat !== undefined) spec.masquerade = nat;
  if (isolated !== undefined) spec.isolated = isolated;
  if (vlanFiltering !== undefined) spec.vlanFiltering = vlanFiltering;
  if (resolver !== undefined) spec.resolver = resolver;
  if (flags.cloudMetadata !== undefined) spec.cloudMetadata = flags.cloudMetadata;
  if (flags.acceptTranslated !== undefined) spec.acceptTranslated = flags.acceptTranslated;
  if (flags.admit !== undefined) spec.admit = listed(flags.admit);
  if (flags.hostAccess !== undefined) spec.hostAccess = listed(flags.hostAccess);
  if (flags.connections !== undefined)
    spec.connections = parseCount("--connections", flags.connections);
  if (flags.limit !== undefined) {
    const parts = limitPartsFrom("--limit", flags.limit);
    spec.limits = create(RateLimitsSchema, limitsFrom(parts, spec.limits));
  }
  if (flags.policy === "none") delete spec.policy;
  else if (flags.policy !== undefined) spec.policy = await readRulesFile(flags.policy);
  return spec;
}

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
