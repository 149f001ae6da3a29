import type { InlineRules, PortSpec, WhiteLists } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IpRange, ipRangeText, parseIpRange } from "../../../core/ip-range.ts";
import { merged, without } from "../../../policy/ranges.ts";
import type { UserPod } from "./user-pod.ts";

/** Rules that came of white lists have names that begin so; no rules but these follow the ports. */
const prefix = "white-list-";

/** Networks of both lists. A rule has the gaps between them, of both families. */
const mostNetworks = 500;

/** What has ports. Anyone may ping, as with hyperd. */
const protocols = ["tcp", "udp", "sctp"] as const;

/** What decides about a port: its protocol, and where it is in the pod. */
type InsidePort = Pick<PortSpec, "podPort" | "count"> & { readonly protocol: string };

/** The white lists of a pod; undefined where both are empty, which means every network. Pure. */
export function whiteListsOf({ portmappingwhitelists: asked }: UserPod): WhiteLists | undefined {
  const { internalnetworks: internal = [], externalnetworks: external = [] } = asked ?? {};
  const count = internal.length + external.length;
  if (count === 0) return undefined;
  if (count > mostNetworks)
    throw new PodnetError("LIMIT_REACHED", `White lists may have ${mostNetworks} networks`, {
      field: "portmappingWhiteLists",
      hint: "Write neighboring networks as one",
      details: { limit: mostNetworks },
    });
  rangesOf(internal, "internalNetworks");
  rangesOf(external, "externalNetworks");
  return { internal, external };
}

/**
 * The rules of a pod that its white lists mean: internal networks reach all of its ports, external
 * ones its mapped ports, and others none. They only deny, because a pod's own rules come before all
 * policies: whoever may create a pod opens nothing by them that a policy closes. Pure.
 */
export function whiteListRules(
  { internal, external }: WhiteLists,
  published: readonly InsidePort[],
): InlineRules {
  const inside = rangesOf(internal, "internalNetworks");
  const outside = rangesOf(external, "externalNetworks");
  const others = everything.flatMap((all) => without(all, [...inside, ...outside]));
  const half = merged(outside).flatMap((range) => without(range, inside));
  const rules = protocols.flatMap((protocol) => {
    const closed = closedPorts(published.filter((each) => (each.protocol || "tcp") === protocol));
    return [
      { name: `${prefix}others-${protocol}`, reason: ofOthers, ranges: others, ports: undefined },
      { name: `${prefix}external-${protocol}`, reason: ofExternal, ranges: half, ports: closed },
    ]
      .filter(({ ranges, ports }) => ranges.length > 0 && ports?.length !== 0)
      .map(({ name, reason, ranges, ports }) => ({
        name,
        reason,
        action: "deny",
        cidrs: ranges.map(ipRangeText),
        protocol,
        ...(ports === undefined ? {} : { ports }),
      }));
  });
  return { ingress: { default: "allow", rules } };
}

const ofOthers = "The white lists of port mappings do not have the address";
const ofExternal = "The port is not mapped, and the address is not of an internal network";

/** Whether rules are those of white lists, and not of an administrator who changed them. Pure. */
export function areOfWhiteLists(rules: InlineRules | undefined): boolean {
  const { ingress, ...others } = rules ?? {};
  const { rules: list } = Object(ingress) as { readonly rules?: readonly { name?: string }[] };
  return (
    Object.keys(others).length === 0 &&
    list !== undefined &&
    list.every(({ name }) => name?.startsWith(prefix) === true)
  );
}

const everything: readonly IpRange[] = ["0.0.0.0/0", "::/0"].map((text) => parseIpRange(text));

const rangesOf = (networks: readonly string[], list: string): readonly IpRange[] =>
  networks.map((network, i) => parseIpRange(network, `portmappingWhiteLists.${list}[${i}]`));

/** The ports between those that are mapped; undefined where none is: all of the protocol. */
function closedPorts(mapped: readonly InsidePort[]): readonly string[] | undefined {
  if (mapped.length === 0) return undefined;
  const closed: string[] = [];
  let next = 1;
  for (const { podPort, count } of mapped.toSorted((a, b) => a.podPort - b.podPort)) {
    if (podPort > next) closed.push(rangeText(next, podPort - 1));
    next = Math.max(next, podPort + count);
  }
  return next > lastPort ? closed : [...closed, rangeText(next, lastPort)];
}

const lastPort = 65_535;
const rangeText = (first: number, last: number): string =>
  first === last ? String(first) : `${first}-${last}`;
