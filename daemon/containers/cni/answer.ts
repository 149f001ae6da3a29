import type { CniInterface, CniResult, CniRoute } from "../../../cni/protocol/result.ts";
import { noDns } from "../../../cni/protocol/result.ts";
import { familyOf } from "../../../core/address.ts";
import type {
  AttachmentObserved,
  ObservedEnd,
  RouteDesired,
} from "../../../network/containers/desired.ts";
import { routesOf } from "../attachment-fragment.ts";
import type { AttachmentPlan } from "../attachment-plan.ts";

/** The result of an ADD: the interfaces of earlier plugins in the list, then podnet's. Pure. */
export function resultOf(
  plan: AttachmentPlan,
  observed: AttachmentObserved,
  before: CniResult | undefined,
): CniResult {
  const { addresses, gateways, netns, ifName, mac, mtu } = plan;
  const had = before?.interfaces ?? [];
  // OpenShift's plugin makes the end inside itself, from this answer.
  const guest = observed.guest ?? { name: ifName, mac, mtu };
  const interfaces: CniInterface[] = [
    ...had,
    endOf(observed.bridge),
    endOf(observed.host),
    { ...endOf(guest), sandbox: netns },
  ];
  return {
    interfaces,
    ips: [
      ...(before?.ips ?? []),
      ...addresses.map((address) => {
        const gateway = gateways.find((each) => familyOf(each) === familyOf(address));
        return {
          address,
          ...(gateway === undefined ? {} : { gateway }),
          interface: interfaces.length - 1,
        };
      }),
    ],
    routes: [
      ...(before?.routes ?? []),
      ...routesOf(plan)
        .map((route) => asMade(route, observed.behind))
        .map(
          ({ destination, gateway, ...rest }): CniRoute => ({
            dst: destination,
            ...(gateway === undefined ? {} : { gw: gateway }),
            ...rest,
          }),
        ),
    ],
    dns: plan.dns.nameservers.length > 0 ? plan.dns : (before?.dns ?? { ...noDns, ...plan.dns }),
  };
}

/** A route with the metric that puts it behind another link's. */
const asMade = (route: RouteDesired, behind: readonly RouteDesired[] = []): RouteDesired =>
  behind.find(
    ({ destination, table }) => destination === route.destination && table === route.table,
  ) ?? route;

const endOf = ({ name, mac, mtu }: ObservedEnd): CniInterface => ({ name, mac, mtu });
