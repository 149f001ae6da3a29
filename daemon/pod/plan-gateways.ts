import type { InterfaceSpec, PodSpec } from "../../api/pod-spec.ts";
import {
  contains,
  type Family,
  familyOf,
  type Ip,
  type IpPrefix,
  ipOf,
  networkOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkSnapshot } from "./snapshot.ts";

interface Draft {
  readonly wanted: InterfaceSpec;
  readonly position: number;
  readonly network: NetworkSnapshot;
  readonly addresses: readonly IpPrefix[];
}

/**
 * The gateway of each interface that carries a default route, by position. A gateway that is asked for wins; else
 * the first automatic interface of a family takes its network's. An interface with an address of its own asks for
 * its route itself. Throws `GATEWAY_CONFLICT`, `ADDRESS_OUT_OF_RANGE`, `ADDRESS_INVALID`.
 */
export function defaultGateways(spec: PodSpec, drafts: readonly Draft[]): Map<number, Ip> {
  const chosen = new Map<number, Ip>();
  const owner = new Map<Family, string>();
  spec.routes.forEach((route, i) => {
    if (!route.destination.endsWith("/0")) return;
    claim(owner, familyOf(route.destination), `routes[${i}]`);
  });
  for (const { wanted, position, addresses } of drafts) {
    if (wanted.gateway === undefined) continue;
    const field = `interfaces[${position}].gateway`;
    checkGateway(wanted.gateway, addresses, field);
    claim(owner, familyOf(wanted.gateway), field);
    chosen.set(position, wanted.gateway);
  }
  for (const { wanted, position, network } of drafts) {
    const [subnet] = network.subnets;
    if (subnet === undefined || wanted.address !== undefined || wanted.gateway !== undefined)
      continue;
    const family = familyOf(subnet.gateway);
    if (owner.has(family)) continue;
    owner.set(family, `interfaces[${position}]`);
    chosen.set(position, ipOf(subnet.gateway));
  }
  return chosen;
}

function claim(owner: Map<Family, string>, family: Family, field: string): void {
  const other = owner.get(family);
  if (other !== undefined) {
    throw new PodnetError(
      "GATEWAY_CONFLICT",
      `Two default routes are asked for: ${other} and ${field}`,
      {
        field,
        hint: "Only one interface or route of a pod may carry the default route of an address family",
      },
    );
  }
  owner.set(family, field);
}

function checkGateway(gateway: Ip, addresses: readonly IpPrefix[], field: string): void {
  const address = addresses.find((each) => contains(networkOf(each), gateway));
  if (address === undefined) {
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      `Gateway ${gateway} is not in the interface's network ${addresses.map(networkOf).join(", ")}`,
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
