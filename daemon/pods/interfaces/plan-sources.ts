import { ipOf } from "../../../core/address.ts";
import type { PodFragment, SourceDesired } from "../../../network/model/desired.ts";
import { type InterfacePlan, type PodPlan, staying, withNic } from "../store/pod-plan.ts";

/**
 * A pod's fragment with the addresses of its `lo`: it may send from them by each of its ports on podnet's networks. (Its
 * other addresses are of its networks' subnets, or refused.) A pod that never had any has no such list. Pure.
 */
export function withSources(
  fragment: PodFragment,
  interfaces: readonly InterfacePlan[],
): PodFragment {
  const sources = sourcesOf(staying(interfaces));
  if (sources.length === 0 && fragment.sources === undefined) return fragment;
  return { ...fragment, published: fragment.published ?? [], sources };
}

/** The fragment that takes away what the pod has had of these, where a plan from before does not speak of them. */
export const sourcesAlso = (fragment: PodFragment): PodFragment => ({
  ...fragment,
  published: fragment.published ?? [],
  sources: fragment.sources ?? [],
});

/** A plan that is gone back to: where the one before it has a list of these, it has one, so that drift looks at them. */
export const afterSources = (next: PodPlan, had: PodPlan): PodPlan =>
  had.ports.sources === undefined ? next : { ...next, ports: sourcesAlso(next.ports) };

/** Whether a pod may send from others by another plan. */
export const sourcesDiffer = (one: PodPlan, other: PodPlan): boolean =>
  JSON.stringify(one.ports.sources ?? []) !== JSON.stringify(other.ports.sources ?? []);

function sourcesOf(interfaces: readonly InterfacePlan[]): SourceDesired[] {
  const given = interfaces
    .filter(({ nic }) => nic === undefined)
    .flatMap(({ addresses }) => addresses.map(ipOf));
  return withNic(interfaces)
    .filter(({ network, bridge }) => network !== undefined && bridge !== undefined)
    .flatMap(({ nic: { tap } }) => given.map((address) => ({ tap, address })));
}
