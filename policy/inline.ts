/** What has rules of its own. */
export interface RulesOwner {
  readonly kind: "pod" | "network";
  readonly name: string;
}

const inlineName = /^(pod|network):(.+)$/s;

/**
 * The name under which a pod's or a network's own rules are shown as a policy: `pod:web`. No named
 * policy has such a name, neither podnet's own form nor `NAMESPACE/NAME` of Kubernetes.
 */
export const nameOfRules = ({ kind, name }: RulesOwner): string => `${kind}:${name}`;

/** Whose rules have this name; undefined for a named policy. */
export function ownerOfRules(policy: string): RulesOwner | undefined {
  const [, kind, name] = inlineName.exec(policy) ?? [];
  return (kind === "pod" || kind === "network") && name !== undefined ? { kind, name } : undefined;
}
