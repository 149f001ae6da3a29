import type { PodnetError } from "../../core/errors.ts";
import type { Request } from "../../linux/rtnetlink/message.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import type { Deviation } from "../model/deviation.ts";
import type { RouteDesired, InsidePart } from "./desired.ts";
import type { InsideNetlink } from "./kernel.ts";

/** What is not as it should be, and what the kernel is to be asked to make it so. */
export interface Step {
  readonly deviation: Deviation;
  readonly request: Request;
  /** What of the inside it is about, where that may be a later plugin's. */
  readonly part?: InsidePart;
  /** What to ask for when the kernel answers EEXIST, given all routes of the namespace. */
  readonly behind?: (found: readonly Route[]) => RouteBehind;
}

/** A route that is made with a larger metric, because another link has its place. */
export interface RouteBehind {
  readonly request: Request;
  /** The route as it is made. */
  readonly route: RouteDesired;
}

/** Takes all steps in order, and throws the first failure: later ones may need what earlier ones did. */
export async function takeSteps(
  steps: readonly Step[],
  netlink: Pick<InsideNetlink, "tryBatch">,
): Promise<void> {
  throwFirst(await trySteps(steps, netlink));
}

/**
 * Takes the steps of a namespace as `takeSteps` does. A route whose place another link has (EEXIST) is made behind it. Returns
 * the routes that were made behind others.
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
