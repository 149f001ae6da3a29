import { PodnetError } from "../../core/errors.ts";
import type { Policy } from "../../policy/model.ts";
import { isKubernetesObject, readNetworkPolicies } from "../../policy/read-network-policy.ts";
import { readPolicy } from "../../policy/read-policy.ts";

/**
 * Reads one policy from a file's contents: podnet's own form, or a NetworkPolicy object. Throws
 * `INVALID_ARGUMENT`, `UNKNOWN_FIELD` or `ADDRESS_INVALID`, each with the field.
 */
export function readDocument(document: unknown): Policy {
  const policy = isKubernetesObject(document)
    ? onlyOne(readNetworkPolicies(document))
    : readPolicy(document);
  for (const [direction, rules] of [
    ["rules", policy.egress],
    ["ingress.rules", policy.ingress],
  ] as const)
    for (const [i, { name, peers }] of (rules?.rules ?? []).entries())
      if ((peers?.domains.length ?? 0) > 0) throw withDomains(name, `${direction}[${i}].domains`);
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

/** A rule that is passed over could have closed something, so it is refused until names decide. */
const withDomains = (rule: string, field: string): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    `Rule "${rule}" matches domains, which this podnet cannot decide by yet`,
    {
      field,
      hint: "Name the addresses instead: cidrs",
    },
  );
