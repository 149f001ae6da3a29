import type { Ip } from "../core/address.ts";
import { assertNever } from "../core/brand.ts";

type Labels = Readonly<Record<string, string>>;

/** One condition on labels, as Kubernetes has them (LabelSelectorRequirement). */
export type Requirement =
  | { readonly key: string; readonly operator: "In" | "NotIn"; readonly values: readonly string[] }
  | { readonly key: string; readonly operator: "Exists" | "DoesNotExist" };

/** Chooses pods by their labels and by those of their namespace: all conditions hold. */
export interface PodSelector {
  readonly labels: readonly Requirement[];
  readonly namespace: readonly Requirement[];
}

/** Chooses what gets a policy: all conditions hold. */
export interface PolicyTarget extends PodSelector {
  /** Absent: any name. */
  readonly pods?: readonly string[];
  /** It is on one of these networks. Absent: on any, or on none. */
  readonly networks?: readonly string[];
}

/** A pod or container, as far as policies look at it. */
export interface PodFacts {
  readonly name: string;
  readonly addresses: readonly Ip[];
  readonly labels: Labels;
  /** Absent: `default`. */
  readonly namespace?: string;
  /** Labels of the namespace besides its name. */
  readonly namespaceLabels?: Labels;
  /** podnet's networks that it is on. Absent: none. */
  readonly networks?: readonly string[];
}

/** The label with which every namespace says its name (Kubernetes 1.22). */
const namespaceNameLabel = "kubernetes.io/metadata.name";
/** The namespace of pods and of policies that name none. */
export const defaultNamespace = "default";

export const inNamespace = (name: string): Requirement => ({
  key: namespaceNameLabel,
  operator: "In",
  values: [name],
});

/** Whether the selector chooses the pod. */
export const selects = ({ labels, namespace }: PodSelector, pod: PodFacts): boolean =>
  labels.every((one) => holds(one, pod.labels)) &&
  namespace.every((one) =>
    holds(one, {
      ...pod.namespaceLabels,
      [namespaceNameLabel]: pod.namespace ?? defaultNamespace,
    }),
  );

/** Whether a pod or container gets the policy. */
export const isTarget = (target: PolicyTarget, pod: PodFacts): boolean =>
  selects(target, pod) &&
  (target.pods === undefined || target.pods.includes(pod.name)) &&
  (target.networks === undefined ||
    (pod.networks ?? []).some((name) => target.networks?.includes(name)));

/** `NotIn` holds where there is no such label, too. */
function holds(requirement: Requirement, labels: Labels): boolean {
  const value = Object.hasOwn(labels, requirement.key) ? labels[requirement.key] : undefined;
  switch (requirement.operator) {
    case "In":
      return value !== undefined && requirement.values.includes(value);
    case "NotIn":
      return value === undefined || !requirement.values.includes(value);
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    default:
      return assertNever(requirement);
  }
}
