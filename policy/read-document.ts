import { PodnetError } from "../core/errors.ts";
import { relayPorts } from "./decide.ts";
import type { Policy, Rule } from "./model.ts";
import { isKubernetesObject, readNetworkPolicies } from "./read-network-policy.ts";
import { readPolicy } from "./read-policy.ts";

/**
 * Reads one policy from a file's contents: podnet's own form, or a NetworkPolicy object. Throws
 * `INVALID_ARGUMENT`, `UNKNOWN_FIELD`, `ADDRESS_INVALID` or `UNSUPPORTED`, each with the field.
 */
export function readDocument(document: unknown): Policy {
  const policy = isKubernetesObject(document)
    ? onlyOne(readNetworkPolicies(document))
    : readPolicy(document);
  for (const [i, rule] of (policy.egress?.rules ?? []).entries())
    if ((rule.peers?.domains.length ?? 0) > 0 && !isRead(rule)) throw unread(rule.name, i);
  return policy;
}

function onlyOne(policies: readonly Policy[]): Policy {
  const [policy, ...others] = policies;
  if (policy !== undefined && others.length === 0) return policy;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    `There are ${policies.length} policies in one document`,
    {
      field: "document",
      hint: "Apply them one by one: podnet policy apply -f does so for a file with several",
    },
  );
}

/** Whether a rule is about connections that say a name: others are known by their address alone. */
const isRead = ({ services }: Rule): boolean =>
  services === undefined ||
  (services.some(({ protocol }) => protocol === "tcp") &&
    services.every(
      ({ ports }) =>
        ports !== undefined && ports.first === ports.last && relayPorts.includes(ports.first),
    ));

const unread = (rule: string, index: number): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    `Rule "${rule}" matches domains, and other connections than those to TCP ports 80 and 443`,
    {
      field: `rules[${index}].ports`,
      hint: "Leave protocol and ports out, or set ports to 80 and 443; for other ports name addresses: cidrs",
    },
  );
