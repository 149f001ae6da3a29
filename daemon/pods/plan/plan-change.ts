import { maxInterfaces } from "../../../api/validate/interfaces.ts";
import type {
  AddInterface,
  InterfaceChange,
  SetInterface,
} from "../../../api/validate/interface-change.ts";
import { bareIp, type InterfaceSpec } from "../../../api/pod-spec.ts";
import { assertNever } from "../../../core/brand.ts";
import { type Family, familyOf, ipOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { GuestRoute } from "../../../guest-init/protocol/configure.ts";
import type { PodContents } from "../store/pod-row.ts";
import { guestOf } from "../guest/guest-of.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { refuseAddition } from "../interfaces/kinds/cni.ts";
import { plannedKind } from "../interfaces/kinds/kind-of.ts";
import { withGuestName } from "../interfaces/kinds/loopback.ts";
import { planInterfaces } from "../interfaces/plan-interfaces.ts";
import { ownRoutes } from "../interfaces/plan-own-routes.ts";
import { takenRoutes } from "../interfaces/plan-routes.ts";
import {
  interfacesOf,
  type PodInterface,
  stayingOf,
  withInterfaces,
} from "../store/pod-interfaces.ts";
import {
  type GatewayPlan,
  inPlaceOf,
  type InterfacePlan,
  type PodPlan,
} from "../store/pod-plan.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * The whole pod after a change of an interface, as it is to be stored. Pure. A removed interface
 * stays in the plan, `leaving`, until its NIC is unplugged: see `withoutLeft`. Throws as `planPod`,
 * and `INTERFACE_NOT_FOUND`.
 */
export function planChange(
  pod: PodContents,
  change: InterfaceChange,
  world: Snapshot,
): PodContents {
  if (change.kind !== "add")
    plannedKind(findInterface(pod, change.name).plan).refuseChange?.("guest_name");
  const whole = withNames(pod);
  const guest = guestOf(pod.plan);
  guest.refuseChange(change, machineKindOf(pod.plan.vm));
  const snapshot = guest.world(world, askedBy(pod, change), () => "interface");
  switch (change.kind) {
    case "add":
      return added(whole, change, snapshot);
    case "set":
      return changed(whole, change, snapshot);
    case "remove":
      return leaving(whole, findInterface(whole, change.name).plan);
    default:
      return assertNever(change);
  }
}

/** The interfaces that a change depends on, as requests. */
export function askedBy(pod: PodContents, change: InterfaceChange): InterfaceSpec[] {
  if (change.kind === "add") return [change.spec];
  const { request, plan } = findInterface(pod, change.name);
  if (request === undefined || change.kind === "remove") return [];
  const { addresses = plan.addresses } = change;
  return [{ ...request, addresses }];
}

/** The interface of this guest name that a pod has and keeps. */
function findInterface(pod: PodContents, name: string): PodInterface {
  const interfaces = stayingOf(pod);
  const found = interfaces.find(({ plan }) => plan.guestName === name);
  if (found !== undefined) return found;
  const names = interfaces.map(({ plan }) => plan.guestName);
  throw new PodnetError(
    "INTERFACE_NOT_FOUND",
    `Pod "${pod.plan.name}" has no interface "${name}"`,
    {
      field: "guest_name",
      hint: names.length === 0 ? "It has none" : `Its interfaces are ${names.join(", ")}`,
    },
  );
}

/** Positions change when interfaces go: the names that were made of them are kept. */
const withNames = (pod: PodContents): PodContents =>
  withInterfaces(pod, interfacesOf(pod).map(named));

const named = ({ request, plan }: PodInterface): PodInterface => ({
  request: request && withGuestName(request, plan.guestName),
  plan,
});

function added(pod: PodContents, change: AddInterface, snapshot: Snapshot): PodContents {
  const { plan } = pod;
  if (plan.interfaces.length >= maxInterfaces)
    throw new PodnetError("INVALID_ARGUMENT", `The pod has ${plan.interfaces.length} interfaces`, {
      field: "interface",
      hint: `A pod has ${maxInterfaces} at most: remove one first`,
    });
  refuseAddition(change.spec, "interface");
  const others = [...plan.routes, ...takenRoutes(plan)];
  const routesAsked = [...others, ...change.routes].map((route, i) => ({
    ...route,
    field: i < others.length ? "the pod's routes" : `routes[${i - others.length}]`,
  }));
  const [made] = planInterfaces(
    [change.spec],
    () => "interface",
    { others: plan.interfaces, routes: routesAsked },
    snapshot,
  );
  if (made === undefined) throw new RangeError("One request gives one interface");
  const routes = [...plan.routes, ...ownRoutes(change.routes, made, others)];
  return assembled(
    pod,
    [...interfacesOf(pod), named({ request: change.spec, plan: made })],
    routes,
  );
}

function changed(pod: PodContents, change: SetInterface, snapshot: Snapshot): PodContents {
  const { plan } = pod;
  const { request: asked, plan: was } = findInterface(pod, change.name);
  if (asked === undefined) throw new RangeError("Every interface has been asked for");
  const wanted = changedSpec(asked, was, change);
  const others = plan.interfaces.filter((each) => each !== was);
  const gateways = changedGateways(was, change, asked.gateway !== undefined);
  const byOther = (route: GuestRoute): boolean => route.interface !== was.guestName;
  const kept = plan.routes.filter(byOther);
  const own = change.routes ?? plan.routes.filter((route) => !byOther(route));
  const elsewhere = [...kept, ...takenRoutes(plan)];
  const routesAsked = [...elsewhere, ...own].map((route) => ({ ...route, field: "routes" }));
  const [made] = planInterfaces(
    [wanted],
    () => `interfaces[${change.name}]`,
    { others, routes: routesAsked, was: { ...was, gateways } },
    snapshot,
  );
  if (made === undefined) throw new RangeError("One request gives one interface");
  refuseUnpublished(plan, was, made);
  const routes = [...kept, ...ownRoutes(own, made, elsewhere)];
  const interfaces = interfacesOf(pod).map((each) =>
    each.plan === was ? { request: wanted, plan: made } : each,
  );
  return assembled(pod, interfaces, routes);
}

/** The interface's spec after the change. */
function changedSpec(
  asked: InterfaceSpec,
  was: InterfacePlan,
  { mtu, addresses, gateway, metric }: SetInterface,
): InterfaceSpec {
  if (was.nic === undefined && (mtu ?? gateway ?? metric) !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", "lo has addresses alone", {
      field: mtu !== undefined ? "mtu" : gateway !== undefined ? "gateway" : "metric",
      hint: "Leave it out",
    });
  const { gateway: hadGateway, metric: hadMetric, ...rest } = asked;
  const toHave = gateway === undefined ? hadGateway : (gateway ?? undefined);
  const weight = metric === undefined ? hadMetric : (metric ?? undefined);
  return {
    ...rest,
    // The interface keeps its addresses, also those that the spec did not name.
    addresses: addresses ?? was.addresses,
    mtu: mtu ?? was.mtu,
    ...(toHave === undefined ? {} : { gateway: toHave }),
    ...(weight === undefined ? {} : { metric: weight }),
  };
}

/** A gateway that the spec does not name goes with the last address of its family. */
function changedGateways(
  { gateways: had }: InterfacePlan,
  { addresses, gateway, metric }: SetInterface,
  askedFor: boolean,
): readonly GatewayPlan[] {
  const served = new Set(addresses?.map((address) => familyOf(bareIp(address))));
  const gateways =
    addresses === undefined || askedFor
      ? had
      : had.filter((each) => served.has(familyOf(each.gateway)));
  const others = (family: Family): GatewayPlan[] =>
    gateways.filter((each) => familyOf(each.gateway) !== family);
  const now =
    gateway === undefined
      ? gateways
      : gateway === null
        ? []
        : [
            ...others(familyOf(gateway)),
            { ...gateways.find((each) => familyOf(each.gateway) === familyOf(gateway)), gateway },
          ];
  if (metric === undefined) return now;
  return now.map(({ gateway: by }) =>
    metric === null ? { gateway: by } : { gateway: by, metric },
  );
}

/** Refuses to remove addresses that published ports lead to. */
function refuseUnpublished(
  { published = [] }: PodPlan,
  was: InterfacePlan,
  made: InterfacePlan | undefined,
): void {
  const kept = new Set(made?.addresses.map(ipOf));
  const lost = was.addresses.map(ipOf).filter((ip) => !kept.has(ip));
  const ports = published
    .filter(({ at }) => at.some(({ podIp }) => lost.includes(podIp)))
    .map(({ hostPort }) => hostPort);
  if (ports.length === 0) return;
  throw new PodnetError(
    "ADDRESS_IN_USE",
    `Published port ${ports[0]} leads to an address of interface "${was.guestName}"`,
    {
      field: made === undefined ? "guest_name" : "addresses",
      hint: "Unpublish its ports first: podnet unpublish",
      details: { host_ports: ports.join(" ") },
    },
  );
}

/** Marks an interface as leaving: nothing of the pod counts on it any more. */
export function leaving(pod: PodContents, gone: InterfacePlan): PodContents {
  refuseUnpublished(pod.plan, gone, undefined);
  const interfaces = interfacesOf(pod).map(({ request, plan }) =>
    plan.position === gone.position
      ? { request, plan: { ...plan, leaving: true as const, gateways: [] } }
      : { request, plan },
  );
  const routes = pod.plan.routes.filter((route) => route.interface !== gone.guestName);
  return assembled(pod, interfaces, routes);
}

/** The pod without an interface that has left. */
export function withoutLeft(pod: PodContents, position: number): PodContents {
  const interfaces = interfacesOf(pod).filter(({ plan }) => plan.position !== position);
  return assembled(pod, interfaces, pod.plan.routes);
}

/** (The routes become requests too, each with the interface that was chosen for it.) */
function assembled(
  pod: PodContents,
  interfaces: readonly PodInterface[],
  routes: PodPlan["routes"],
): PodContents {
  const { spec, plan } = withInterfaces(pod, interfaces);
  return { spec: { ...spec, routes }, plan: inPlaceOf({ ...plan, routes }, pod.plan) };
}
