import type { InlineRules, PortSpec, WhiteLists } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { readInlineRules } from "../../../policy/read-document.ts";
import type { UserPod } from "./user-pod.ts";

/** Rules that came of white lists have names that begin so; no rules but these follow the ports. */
const prefix = "white-list-";

/** What decides about a port: its protocol, and where it is in the pod. */
type InsidePort = Pick<PortSpec, "podPort" | "count"> & { readonly protocol: string };

/** The white lists of a pod; undefined where both are empty, which means every network. Pure. */
export function whiteListsOf({ portmappingwhitelists: asked }: UserPod): WhiteLists | undefined {
  const { internalnetworks: internal = [], externalnetworks: external = [] } = asked ?? {};
  if (internal.length + external.length === 0) return undefined;
  const lists = { internal, external };
  checkNetworks(internal, "internalNetworks");
  checkNetworks(external, "externalNetworks");
  return lists;
}

/**
 * The rules of a pod that its white lists mean: internal networks reach all of it, external ones
 * its mapped ports, everyone may ping, and all else is refused. Pure.
 */
export function whiteListRules(
  { internal, external }: WhiteLists,
  published: readonly InsidePort[],
): InlineRules {
  const byProtocol = Map.groupBy(published, ({ protocol }) => protocol || "tcp");
  return {
    ingress: {
      default: "deny",
      rules: [
        { name: `${prefix}ping`, action: "allow", protocol: "icmp" },
        ...(internal.length === 0
          ? []
          : [{ name: `${prefix}internal`, action: "allow", cidrs: internal }]),
        ...(external.length === 0
          ? []
          : [...byProtocol].map(([protocol, ports]) => ({
              name: `${prefix}external-${protocol}`,
              action: "allow",
              cidrs: external,
              protocol,
              ports: [...new Set(ports.map(rangeText))],
            }))),
      ],
    },
  };
}

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

const rangeText = ({ podPort, count }: InsidePort): number | string =>
  count === 1 ? podPort : `${podPort}-${podPort + count - 1}`;

/** A policy reads them, whose errors are about its own fields: each network is read by itself. */
function checkNetworks(networks: readonly string[], list: string): void {
  for (const [i, network] of networks.entries())
    try {
      const rule = { name: `${prefix}networks`, action: "allow", cidrs: [network] };
      readInlineRules({ ingress: { rules: [rule] } }, { kind: "pod", name: "" });
    } catch (thrown) {
      if (!(thrown instanceof PodnetError)) throw thrown;
      throw new PodnetError(thrown.code, thrown.message, {
        field: `portmappingWhiteLists.${list}[${i}]`,
        hint: "Give a subnet, such as 10.0.0.0/8",
        cause: thrown,
      });
    }
}
