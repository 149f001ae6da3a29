import { metricOf } from "../../../api/validate/unique-interfaces.ts";
import {
  type Cidr,
  contains,
  familyOf,
  type Ip,
  ipOf,
  type Mac,
  networkOf,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { routeAttributes } from "../../../guest-init/protocol/attributes.ts";
import type { GuestDns, GuestRoute } from "../../../guest-init/protocol/configure.ts";
import { forGuest } from "../../../network/tc-redirect/for-guest.ts";
import type { TakenOver, TakenRoute } from "../../../network/tc-redirect/adopted.ts";
import type { PodContents } from "../store/pod-row.ts";
import type { CniPlan, SandboxPlan, TakenPlan } from "./cni-plan.ts";
import { guestOf } from "../guest/guest-of.ts";
import { routesOf } from "./plan-routes.ts";
import { type InterfacePlan, type PodPlan, staying } from "../store/pod-plan.ts";

/** The pod with a namespace before its plugins run, after ADD, or after DEL. Pure. */
export const withSandbox = (
  { plan }: Pick<PodContents, "plan">,
  position: number,
  sandbox: SandboxPlan,
): PodPlan => withCni(plan, position, (cni) => ({ ...cni, sandbox }));

/**
 * The pod with what its guest gets from a link: MAC, MTU, addresses, routes, neighbours and, where
 * no network of podnet's says otherwise, name servers. A plain hyperstart speaks no IPv6 and gets
 * none. A route that the pod has by another interface stays as it is. Pure. Throws `MAC_IN_USE`:
 * the agent distinguishes interfaces by their MACs.
 */
export function withTaken(
  { plan }: Pick<PodContents, "plan">,
  position: number,
  found: TakenOver,
  dns: GuestDns | undefined,
): PodPlan {
  const link = forGuest(found, { ipv6: guestOf(plan).takesIpv6 });
  const bare = withoutTaken(plan, position);
  const at = bare.interfaces.find((each) => each.position === position);
  if (at?.nic === undefined) return bare;
  const interfaceName = at.guestName;
  const has = new Set(routesOf(bare).map(placeOf));
  const taken: TakenPlan = {
    ...(link.noArp === true ? { noArp: true as const } : {}),
    routes: guestRoutes(link, interfaceName).filter((route) => !has.has(placeOf(route))),
    neighbours: link.neighbours.map((each) => ({ ...each, interface: interfaceName })),
    ...(dns === undefined ? {} : { dns }),
  };
  const { addresses, mtu, mac } = link;
  refuseOwnMac(bare, position, mac);
  const nic = { ...at.nic, mac };
  return withCni(bare, position, (cni) => ({ ...cni, taken }), { addresses, mtu, nic });
}

function refuseOwnMac({ interfaces }: PodPlan, position: number, mac: Mac): void {
  const holder = interfaces.find(
    ({ position: at, nic }) => at !== position && nic !== undefined && nic.mac === mac,
  );
  if (holder === undefined) return;
  throw new PodnetError("MAC_IN_USE", `MAC ${mac} is interface ${holder.guestName}'s of this pod`, {
    field: `interfaces[${position}].cni`,
    hint: "Have the plugins that make the links give each another MAC",
    details: { holder: holder.guestName },
  });
}

/**
 * The pod without what its guest got from a link: the link's MAC and addresses are not the pod's.
 * Pure.
 */
export function withoutTaken(plan: PodPlan, position: number): PodPlan {
  const at = plan.interfaces.find((each) => each.position === position);
  if (at?.cni?.taken === undefined) return plan;
  return withCni(plan, position, ({ taken: _gone, ...cni }) => cni, { addresses: [] });
}

const withCni = (
  plan: PodPlan,
  position: number,
  change: (cni: CniPlan) => CniPlan,
  more: Partial<InterfacePlan> = {},
): PodPlan => ({
  ...plan,
  interfaces: plan.interfaces.map((each) =>
    each.position === position && each.cni !== undefined
      ? { ...each, ...more, cni: change(each.cni) }
      : each,
  ),
});

/** The name servers that plugins offer a pod on none of podnet's networks. */
export function offeredByPlugins({ interfaces }: PodPlan): GuestDns | undefined {
  const there = staying(interfaces);
  if (there.some(({ network }) => network !== undefined)) return undefined;
  return there.find(({ cni }) => cni?.taken?.dns !== undefined)?.cni?.taken?.dns;
}

/** Two routes of the same place cannot both be. */
const placeOf = ({ destination, metric }: Pick<GuestRoute, "destination" | "metric">): string =>
  `${destination} ${metricOf(metric, familyOf(destination))}`;

/**
 * A link's routes as they are sent to a guest: on-link routes first, with a route to each gateway
 * that no address or route covers.
 */
function guestRoutes({ routes, addresses }: TakenOver, guestName: string): GuestRoute[] {
  const direct = routes.filter(({ gateway }) => gateway === undefined);
  const reached = [...addresses.map(networkOf), ...direct.map(({ destination }) => destination)];
  const lacking = new Set<Ip>();
  for (const { gateway } of routes)
    if (
      gateway !== undefined &&
      !gateway.startsWith("fe80:") &&
      !reached.some((cidr) => contains(cidr, gateway))
    )
      lacking.add(gateway);
  const ways = [...lacking].map((gateway): TakenRoute => ({ destination: hostOf(gateway) }));
  const byGateway = routes.filter(({ gateway }) => gateway !== undefined);
  const own = new Set<Ip>(addresses.map(ipOf));
  return [...ways, ...direct, ...byGateway].map(
    ({ destination, gateway, metric, source, ...more }) => ({
      destination,
      ...(gateway === undefined ? {} : { gateway }),
      interface: guestName,
      ...(metric === undefined ? {} : { metric }),
      // The guest's kernel would refuse a source address that it does not have.
      ...routeAttributes({ ...more, ...(source !== undefined && own.has(source) && { source }) }),
    }),
  );
}

const hostOf = (ip: Ip): Cidr => `${ip}/${familyOf(ip) === 4 ? 32 : 128}` as Cidr;
