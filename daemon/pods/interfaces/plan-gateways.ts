import type { InterfaceSpec } from "../../../api/pod-spec.ts";
import { metricOf } from "../../../api/validate/unique-interfaces.ts";
import {
  type Cidr,
  contains,
  type Family,
  familyOf,
  type Ip,
  type IpPrefix,
  ipOf,
  networkOf,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import type { GatewayPlan, InterfacePlan } from "../store/pod-plan.ts";

/** A route that is asked for, with its field. */
interface AskedRoute {
  readonly destination: Cidr;
  readonly metric?: number;
  readonly field: string;
}

/** The pod that interfaces are planned for. */
export interface PodOfInterfaces {
  /** The interfaces that it has, without the one that is changed. */
  readonly others: readonly InterfacePlan[];
  /** All its routes that are asked for. */
  readonly routes: readonly AskedRoute[];
  /** The interface that the request changes. */
  readonly was?: InterfacePlan;
}

/**
 * The gateways of each planned interface, in the order of the requests. A requested gateway wins,
 * and a metric alone requests the network's gateway; else the first automatic interface gets those
 * of its network. An interface with addresses of its own has to request its route. Two gateways of
 * one family must differ in their metric.
 *
 * Throws `GATEWAY_CONFLICT`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`.
 */
export function planGateways(
  planned: readonly InterfacePlan[],
  requests: readonly InterfaceSpec[],
  fieldOf: (i: number) => string,
  { others, routes, was }: PodOfInterfaces,
  snapshot: Snapshot,
): (readonly GatewayPlan[])[] {
  const claims = new Claims();
  for (const { guestName, gateways } of others)
    for (const each of gateways) claims.add(each, `interface ${guestName}`);
  for (const { destination, metric, field } of routes)
    if (destination.endsWith("/0")) claims.claim({ family: familyOf(destination), metric, field });
  const requested = planned.map((each, i) => {
    const { gateway, metric } = requests[i] ?? {};
    const ofNetwork = gatewaysOfNetwork(each, snapshot);
    // The gateways of a changed interface are changed already.
    const asked = was?.gateways ?? askedGateways({ gateway, metric }, ofNetwork);
    const field = `${fieldOf(i)}.${gateway === undefined ? "metric" : "gateway"}`;
    for (const { gateway: by, metric: weight } of asked ?? []) {
      checkGateway(by, each.addresses, field);
      claims.claim({ family: familyOf(by), metric: weight, field });
    }
    return asked;
  });
  return planned.map((each, i) => {
    const asked = requested[i];
    if (asked !== undefined || requests[i]?.addresses !== undefined) return asked ?? [];
    const free = gatewaysOfNetwork(each, snapshot).filter(
      ({ gateway }) => !claims.has(familyOf(gateway)),
    );
    for (const one of free) claims.add(one, fieldOf(i));
    return free;
  });
}

/** The network's gateways, one of each address family that the interface has an address of. */
function gatewaysOfNetwork(
  { network, addresses }: InterfacePlan,
  { networks }: Snapshot,
): GatewayPlan[] {
  const { subnets = [] } = networks.find(({ name }) => name === network) ?? {};
  return subnets
    .filter(({ cidr }) => addresses.some((address) => contains(cidr, ipOf(address))))
    .map(({ gateway }) => ({ gateway: ipOf(gateway) }));
}

/** The requested gateways; undefined where the request names neither gateway nor metric. */
function askedGateways(
  { gateway, metric }: { readonly gateway: Ip | undefined; readonly metric: number | undefined },
  ofNetwork: readonly GatewayPlan[],
): readonly GatewayPlan[] | undefined {
  if (gateway === undefined && metric === undefined) return undefined;
  const gateways = gateway === undefined ? ofNetwork : [{ gateway }];
  return gateways.map((each) => (metric === undefined ? each : { ...each, metric }));
}

interface Claim {
  readonly family: Family;
  readonly metric: number | undefined;
  /** The field of the claim, for the error. */
  readonly field: string;
}

/** Default routes that are there so far. */
class Claims {
  readonly #owners = new Map<string, string>();

  has(family: Family): boolean {
    return [...this.#owners.keys()].some((key) => key.startsWith(`${family} `));
  }

  add({ gateway, metric }: GatewayPlan, owner: string): void {
    const family = familyOf(gateway);
    this.#owners.set(`${family} ${metricOf(metric, family)}`, owner);
  }

  claim({ family, metric, field }: Claim): void {
    const key = `${family} ${metricOf(metric, family)}`;
    const other = this.#owners.get(key);
    if (other !== undefined) {
      throw new PodnetError(
        "GATEWAY_CONFLICT",
        `Two default routes are asked for: ${other} and ${field}`,
        {
          field,
          hint: "Default routes of one address family need different metrics: leave one out, or give it another",
        },
      );
    }
    this.#owners.set(key, field);
  }
}

function checkGateway(gateway: Ip, addresses: readonly IpPrefix[], field: string): void {
  // A router's link-local address is on every link.
  if (gateway.startsWith("fe80:")) return;
  const address = addresses.find((each) => contains(networkOf(each), gateway));
  if (address === undefined) {
    const networks = addresses.map(networkOf).join(", ");
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      networks === ""
        ? `Gateway ${gateway} is of no use to an interface without addresses`
        : `Gateway ${gateway} is not in the interface's network ${networks}`,
      {
        field,
        hint: "A gateway must be reachable on the interface's own link",
      },
    );
  }
  if (gateway === ipOf(address)) {
    throw new PodnetError("ADDRESS_INVALID", `Gateway ${gateway} is the interface's own address`, {
      field,
      hint: "Name another machine's address, such as the network's gateway",
    });
  }
}
