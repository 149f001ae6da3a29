import { metricOf } from "../../../api/unique-interfaces.ts";
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
import type { Draft } from "./kinds/place.ts";
import type { GatewayPlan, InterfacePlan } from "../store/pod-plan.ts";

/** A route that is asked for, with its field. */
export interface AskedRoute {
  readonly destination: Cidr;
  readonly metric?: number;
  readonly field: string;
}

/**
 * The gateways of each interface that carries default routes, by position. A requested gateway
 * wins, and a metric alone requests the network's gateway; else the first automatic interface gets
 * those of its network. An interface with addresses of its own has to request its route. Two
 * gateways of one family must differ in their metric.
 *
 * Throws `GATEWAY_CONFLICT`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`.
 */
export function planGateways(
  drafts: readonly Draft[],
  others: readonly InterfacePlan[],
  routes: readonly AskedRoute[],
): Map<number, readonly GatewayPlan[]> {
  const chosen = new Map<number, readonly GatewayPlan[]>();
  const claims = new Claims();
  for (const { guestName, gateways } of others)
    for (const each of gateways) claims.add(each, `interface ${guestName}`);
  for (const { destination, metric, field } of routes)
    if (destination.endsWith("/0")) claims.claim({ family: familyOf(destination), metric, field });
  for (const draft of drafts) {
    const asked = askedGateways(draft);
    if (asked === undefined) continue;
    const field = `${draft.field}.${draft.wanted.gateway === undefined ? "metric" : "gateway"}`;
    for (const { gateway, metric } of asked) {
      checkGateway(gateway, draft.addresses, field);
      claims.claim({ family: familyOf(gateway), metric, field });
    }
    chosen.set(draft.position, asked);
  }
  for (const draft of drafts) {
    if (draft.was !== undefined || draft.wanted.addresses !== undefined) continue;
    if (chosen.has(draft.position)) continue;
    const free = draft.place
      .gateways(draft.addresses)
      .filter(({ gateway }) => !claims.has(familyOf(gateway)));
    for (const each of free) claims.add(each, draft.field);
    if (free.length > 0) chosen.set(draft.position, free);
  }
  return chosen;
}

/** The requested gateways; of a changed interface its current ones with the changes. */
function askedGateways(draft: Draft): readonly GatewayPlan[] | undefined {
  const { gateway, metric } = draft.wanted;
  if (draft.was !== undefined) return draft.was.gateways;
  if (gateway === undefined && metric === undefined) return undefined;
  const gateways = gateway === undefined ? draft.place.gateways(draft.addresses) : [{ gateway }];
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
