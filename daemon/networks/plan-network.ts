import type { NetworkSpec } from "../../api/network-spec.ts";
import { type Cidr, overlaps } from "../../core/address.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { parseIfName } from "../../core/names.ts";
import type { Overlap } from "../../network/bridge/overlap.ts";
import { readInlineRules } from "../../policy/read-document.ts";
import { divideRanges, parseSubnet } from "../config/cidr.ts";
import type { NetworkDefinition, SubnetDefinition } from "../config/network-definition.ts";

/**
 * Decides everything about a network that was asked for. Pure. `others` are the networks there are
 * alongside it, `before` is what it was. Throws `NAME_IN_USE`, `INVALID_ARGUMENT`,
 * `ADDRESS_INVALID`, `ADDRESS_RESERVED`, and as `readInlineRules`.
 */
export function planNetwork(
  spec: NetworkSpec,
  others: readonly NetworkDefinition[],
  before: NetworkDefinition | undefined,
  force: boolean,
): NetworkDefinition {
  const { name, dns, dnsSearch, mtu, masquerade, isolated, vlanFiltering, resolver } = spec;
  const { cloudMetadata, acceptTranslated, admit, hostAccess, connections, limits, policy } = spec;
  if (policy !== undefined) readInlineRules(policy, { kind: "network", name });
  if (before !== undefined && spec.bridge !== undefined && spec.bridge !== before.bridge)
    throw new PodnetError("INVALID_ARGUMENT", `The bridge of a network stays "${before.bridge}"`, {
      field: "bridge",
      hint: "Leave it out, or make another network",
    });
  const bridge = before?.bridge ?? spec.bridge ?? parseIfName(`pn-${name}`.slice(0, 15));
  const holder = others.find((each) => each.bridge === bridge);
  if (holder !== undefined)
    throw new PodnetError("NAME_IN_USE", `Bridge "${bridge}" is network "${holder.name}"'s`, {
      field: "bridge",
      hint: "Name another bridge",
      details: { holder: holder.name },
    });
  return {
    name,
    bridge,
    subnets: spec.subnets.map((subnet, i) => planSubnet(subnet, `subnets[${i}]`)),
    mtu,
    dns,
    dnsSearch,
    masquerade,
    isolated,
    vlanFiltering,
    ...(resolver === undefined ? {} : { resolver }),
    ...(cloudMetadata === undefined ? {} : { cloudMetadata }),
    ...(acceptTranslated === undefined ? {} : { acceptTranslated }),
    ...(admit === undefined ? {} : { admit }),
    ...(hostAccess === undefined ? {} : { hostAccess }),
    ...(connections === undefined ? {} : { connections }),
    ...(limits === undefined ? {} : { limits }),
    ...(policy === undefined ? {} : { policy }),
    mayOverlap: force || before?.mayOverlap === true,
  };
}

function planSubnet(asked: NetworkSpec["subnets"][number], field: string): SubnetDefinition {
  const { cidr, gateway } = parseSubnet(asked.cidr, `${field}.cidr`);
  const divide = (key: "ranges" | "reserved") =>
    inField(`${field}.${key}`, () => divideRanges(asked[key], [cidr])(cidr));
  return { cidr, gateway, ranges: divide("ranges"), reserved: divide("reserved") };
}

/** Adds the field to thrown errors. */
function inField<T>(field: string, body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    throw toPodnetError(thrown).with({ field });
  }
}

/** Other networks of podnet whose addresses these are too. Pure. */
export const overlapsOfNetworks = (
  subnets: readonly Cidr[],
  others: readonly NetworkDefinition[],
): Overlap[] =>
  others.flatMap((other) =>
    other.subnets.flatMap(({ cidr }) =>
      subnets
        .filter((subnet) => overlaps(subnet, cidr))
        .map((subnet) => ({ subnet, with: `network "${other.name}" (${cidr})` })),
    ),
  );

/** Subnets of services' addresses that these overlap with. Pure. */
export const overlapsOfServices = (
  subnets: readonly Cidr[],
  serviceCidrs: readonly Cidr[],
): Overlap[] =>
  serviceCidrs.flatMap((cidr) =>
    subnets
      .filter((each) => overlaps(each, cidr))
      .map((subnet) => ({ subnet, with: `service_cidrs (${cidr})` })),
  );

/** Throws `NETWORK_OVERLAP` naming the first of them. */
export function refuseOverlaps(subnets: readonly Cidr[], found: readonly Overlap[]): void {
  const [first] = found;
  if (first === undefined) return;
  const more = found.length > 1 ? ` and ${found.length - 1} more` : "";
  throw new PodnetError(
    "NETWORK_OVERLAP",
    `Subnet ${first.subnet} overlaps with ${first.with}${more}`,
    {
      field: `subnets[${subnets.indexOf(first.subnet)}].cidr`,
      hint: "Choose addresses that the host does not use yet, or use force: existing destinations there may become unreachable",
      details: { subnet: first.subnet, overlaps: first.with },
    },
  );
}
