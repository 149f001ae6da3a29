import { PodnetError } from "../core/errors.ts";
import { relayPorts } from "./decide.ts";
import { nameOfRules, ownerOfRules, type RulesOwner } from "./inline.ts";
import type { Policy, Rule } from "./model.ts";
import { isKubernetesObject, readNetworkPolicies } from "./read-network-policy.ts";
import { readDirections, readPolicy } from "./read-policy.ts";

/**
 * Reads one policy from a file's contents: podnet's own form, a NetworkPolicy object, or rules of a
 * pod or network by the name that they have (`pod:web`). Throws `INVALID_ARGUMENT`,
 * `UNKNOWN_FIELD`, `ADDRESS_INVALID` or `UNSUPPORTED`, each with the field.
 */
export function readDocument(document: unknown): Policy {
  if (isKubernetesObject(document)) return onlyOne(readNetworkPolicies(document));
  const inline = inlineDocument(document);
  return inline === undefined
    ? checked(readPolicy(document))
    : readInlineRules(inline.rules, inline.owner, "");
}

/**
 * Reads rules that a pod or a network has of its own: what a policy file has without `name` and
 * `applies_to`. `path` is their place in its file. Throws as `readDocument` does.
 */
export const readInlineRules = (value: unknown, owner: RulesOwner, path = "policy"): Policy =>
  checked({ name: nameOfRules(owner), ...readDirections(value, path) }, path);

/** A document whose name says that a pod or network owns its rules; undefined for any other. */
export function inlineDocument(
  document: unknown,
): { readonly owner: RulesOwner; readonly rules: Readonly<Record<string, unknown>> } | undefined {
  if (typeof document !== "object" || document === null) return undefined;
  const { name, ...rules } = document as Readonly<Record<string, unknown>>;
  const owner = typeof name === "string" ? ownerOfRules(name) : undefined;
  return owner && { owner, rules };
}

/** Rules of a pod or network as a document that `readDocument` reads. */
export const documentOf = (owner: RulesOwner, rules: object): object => ({
  name: nameOfRules(owner),
  ...rules,
});

function checked(policy: Policy, path = ""): Policy {
  for (const [i, rule] of (policy.egress?.rules ?? []).entries())
    if ((rule.peers?.domains.length ?? 0) > 0 && !isRead(rule))
      throw unread(rule.name, `${path === "" ? "" : `${path}.`}rules[${i}]`);
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

const unread = (rule: string, path: string): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    `Rule "${rule}" matches domains, and other connections than those to TCP ports 80 and 443`,
    {
      field: `${path}.ports`,
      hint: "Leave protocol and ports out, or set ports to 80 and 443; for other ports name addresses: cidrs",
    },
  );
