import { metricOf } from "../../../api/validate/unique-interfaces.ts";
import type { OwnRoute } from "../../../api/validate/interface-change.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { GuestRoute } from "../../../guest-init/protocol/configure.ts";
import { planRoute } from "./plan-routes.ts";
import type { InterfacePlan } from "../store/pod-plan.ts";

/** Routes by an interface. Throws `INVALID_ARGUMENT` for one that the pod has already. */
export function ownRoutes(
  routes: readonly OwnRoute[],
  by: InterfacePlan,
  others: readonly GuestRoute[],
): GuestRoute[] {
  const place = ({ destination, metric }: Pick<GuestRoute, "destination" | "metric">): string =>
    `${destination} ${metricOf(metric, familyOf(destination))}`;
  const taken = new Set(others.map(place));
  return routes.map(({ destination, gateway, metric }, i) => {
    const field = `routes[${i}]`;
    const asked = {
      destination,
      interface: by.guestName,
      ...(gateway === undefined ? {} : { gateway }),
      ...(metric === undefined ? {} : { metric }),
    };
    const route = planRoute(asked, field, [by]);
    if (taken.has(place(route)))
      throw new PodnetError("INVALID_ARGUMENT", `There is a route to ${destination} already`, {
        field: `${field}.destination`,
        hint: "Leave one of the two out, or give each another metric",
      });
    taken.add(place(route));
    return route;
  });
}
