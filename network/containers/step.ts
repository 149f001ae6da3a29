import type { PodnetError } from "../../core/errors.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { Deviation } from "../model/deviation.ts";
import type { RouteDesired, InsidePart } from "./desired.ts";
import type { InsideNetlink } from "./kernel.ts";

/** A deviation, and the request to the kernel that repairs it. */
export interface Step {
  readonly deviation: Deviation;
  readonly request: Request;
  /** The part of the inside that it changes, if a later plugin may have changed it. */
  readonly part?: InsidePart;
  /**
   * The request to use instead if the kernel answers EEXIST, computed from all routes of the
   * namespace.
   */
  readonly behind?: (found: readonly Route[]) => RouteBehind;
}

/** A route that is made with a larger metric, because another link has its place. */
export interface RouteBehind {
  readonly request: Request;
  /** The route as it is made. */
  readonly route: RouteDesired;
}

/**
 * Takes all steps of a namespace in order, and throws the first failure: a step may depend on
 * earlier ones. If another link has the place of a route
 * (EEXIST), the route is made behind it. Returns these routes.
 */
export async function takeInsideSteps(
  steps: readonly Step[],
  netlink: Pick<InsideNetlink, "tryBatch" | "routes">,
): Promise<readonly RouteDesired[]> {
  const outcomes = await trySteps(steps, netlink);
  const taken = steps.map(({ behind }, at) => (isTaken(outcomes[at]) ? behind : undefined));
  throwFirst(outcomes.filter((_outcome, at) => taken[at] === undefined));
  const refused = taken.filter((behind) => behind !== undefined);
  if (refused.length === 0) return [];
  const found = await netlink.routes();
  const behind = refused.map((place) => place(found));
  throwFirst(await netlink.tryBatch(behind.map(({ request }) => request)));
  return behind.map(({ route }) => route);
}

const trySteps = async (
  steps: readonly Step[],
  netlink: Pick<InsideNetlink, "tryBatch">,
): Promise<readonly (PodnetError | undefined)[]> =>
  steps.length === 0 ? [] : netlink.tryBatch(steps.map(({ request }) => request));

const isTaken = (outcome: PodnetError | undefined): boolean =>
  outcome?.details["errno"] === "EEXIST";

function throwFirst(outcomes: readonly (PodnetError | undefined)[]): void {
  const failure = outcomes.find((outcome) => outcome !== undefined);
  if (failure !== undefined) throw failure;
}
