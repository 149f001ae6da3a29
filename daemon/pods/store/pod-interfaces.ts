import type { InterfaceSpec } from "../../../api/pod-spec.ts";
import type { InterfacePlan } from "./pod-plan.ts";
import type { PodContents, PodRow } from "./pod-row.ts";

/** An interface of a pod, as requested and as planned. */
export interface PodInterface {
  /** Undefined in a damaged row, whose undo goes on with the plan alone. */
  readonly request: InterfaceSpec | undefined;
  readonly plan: InterfacePlan;
}

/** A pod's interfaces. Spec and plan store them in one order, on which only this file relies. */
export const interfacesOf = ({ spec, plan }: PodContents): PodInterface[] =>
  plan.interfaces.map((planned, i) => ({ request: spec.interfaces[i], plan: planned }));

/** A pod's interfaces without those that are being removed. */
export const stayingOf = (pod: PodContents): PodInterface[] =>
  interfacesOf(pod).filter(({ plan }) => plan.leaving !== true);

/** What was requested of interfaces. */
export const requestsOf = (interfaces: readonly PodInterface[]): InterfaceSpec[] =>
  interfaces.flatMap(({ request }) => request ?? []);

/** The pod with these interfaces. */
export const withInterfaces = (
  { spec, plan }: PodContents,
  interfaces: readonly PodInterface[],
): PodContents => ({
  spec: { ...spec, interfaces: requestsOf(interfaces) },
  plan: { ...plan, interfaces: interfaces.map((each) => each.plan) },
});

/**
 * The contents of a pod without a machine: changes that were under way are over, and `leaving` NICs
 * are gone. Undefined when nothing changes.
 */
export function withoutMachine(row: PodRow): PodContents | undefined {
  const pod = row.before ?? row;
  const isLeaving = pod.plan.interfaces.some(({ leaving }) => leaving === true);
  return row.before === undefined && !isLeaving ? undefined : withInterfaces(pod, stayingOf(pod));
}
