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
  type GatewayPlan,
  inPlaceOf,
  type InterfacePlan,
  type PodPlan,
  staying,
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
    plannedKind(findInterface(pod.plan, change.name)).refuseChange?.("guest_name");
  const named = withNames(pod);
  const guest = guestOf(pod.plan);
  guest.refuseChange(change, machineKindOf(pod.plan.vm));
  const snapshot = guest.world(world, askedBy(pod, change), () => "interface");
  switch (change.kind) {
    case "add":
      return added(named, change, snapshot);
    case "set":
      return changed(named, change, snapshot);
    case "remove":
      return leaving(named, findInterface(pod.plan, change.name));
    default:
      return assertNever(change);
  }
}

/** The interfaces that a change depends on, as requests. */
export function askedBy({ plan, spec }: PodContents, change: InterfaceChange): InterfaceSpec[] {
  if (change.kind === "add") return [change.spec];
  const was = findInterface(plan, change.name);
  const asked = spec.interfaces[plan.interfaces.indexOf(was)];
  if (asked === undefined || change.kind === "remove") return [];
  const { addresses = was.addresses } = change;
  return [{ ...asked, addresses }];
}

/** The interface of this guest name that a pod has and keeps. */
function findInterface({ name: pod, interfaces }: PodPlan, name: string): InterfacePlan {
  const found = staying(interfaces).find(({ guestName }) => guestName === name);
  if (found !== undefined) return found;
  const names = staying(interfaces).map(({ guestName }) => guestName);
  throw new PodnetError("INTERFACE_NOT_FOUND", `Pod "${pod}" has no interface "${name}"`, {
    field: "guest_name",
    hint: names.length === 0 ? "It has none" : `Its interfaces are ${names.join(", ")}`,
  });
}

/** Positions change when interfaces go: the names that were made of them are kept. */
const withNames = ({ plan, spec }: PodContents): PodContents => ({
  plan,
  spec: {
    ...spec,
    interfaces: spec.interfaces.map((each, i) => {
      const guestName = plan.interfaces[i]?.guestName;
      return guestName === undefined ? each : withGuestName(each, guestName);
    }),
  },
});

function added({ plan, spec }: PodContents, change: AddInterface, snapshot: Snapshot): PodContents {
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
  const asked = withGuestName(change.spec, made.guestName);
  return assembled(
    { plan, spec: { ...spec, interfaces: [...spec.interfaces, asked] } },
    { interfaces: [...plan.interfaces, made], routes },
  );
}

function changed(
  { plan, spec }: PodContents,
  change: SetInterface,
  snapshot: Snapshot,
): PodContents {
  const was = findInterface(plan, change.name);
  const at = plan.interfaces.indexOf(was);
  const asked = spec.interfaces[at];
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
  const interfaces = plan.interfaces.with(at, made);
  return assembled(
    { plan, spec: { ...spec, interfaces: spec.interfaces.with(at, wanted) } },
    { interfaces, routes },
  );
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
  const held = published.find(({ at }) => at.some(({ podIp }) => lost.includes(podIp)));
  if (held === undefined) return;
  throw new PodnetError(
    "ADDRESS_IN_USE",
    `Published port ${held.hostPort} leads to an address of interface "${was.guestName}"`,
    {
      field: made === undefined ? "guest_name" : "addresses",
      hint: "Unpublish its ports first: podnet unpublish",
    },
  );
}

/** Marks an interface as leaving: nothing of the pod counts on it any more. */
export function leaving({ plan, spec }: PodContents, gone: InterfacePlan): PodContents {
  refuseUnpublished(plan, gone, undefined);
  return assembled(
    { plan, spec },
    {
      interfaces: plan.interfaces.map((each) =>
        each.position === gone.position ? { ...each, leaving: true, gateways: [] } : each,
      ),
      routes: plan.routes.filter((route) => route.interface !== gone.guestName),
    },
  );
}

/** The pod without an interface that has left. */
export function withoutLeft({ plan, spec }: PodContents, position: number): PodContents {
  const at = plan.interfaces.findIndex((each) => each.position === position);
  if (at < 0) return { plan, spec };
  return assembled(
    { plan, spec: { ...spec, interfaces: spec.interfaces.toSpliced(at, 1) } },
    {
      interfaces: plan.interfaces.toSpliced(at, 1),
      routes: plan.routes,
    },
  );
}

function assembled(
  { plan, spec }: PodContents,
  { interfaces, routes }: Pick<PodPlan, "interfaces" | "routes">,
): PodContents {
  return {
    plan: inPlaceOf({ ...plan, interfaces, routes }, plan),
    spec: { ...spec, routes },
  };
}
