import { PodnetError } from "../../core/errors.ts";
import { absent, type Deviation } from "../model/deviation.ts";
import type { AttachmentFragment, RouteDesired, LaterChanges } from "./desired.ts";
import { lookInside, observeInside, planInside } from "./inside.ts";
import type { AttachmentKernel, Inside } from "./kernel.ts";
import { withoutMachineParts, carriesMachine, laterChanges, permitted } from "./later.ts";
import { partOf } from "./routes.ts";
import { observeMacvlan } from "./macvlan.ts";
import { areEnds, isPendingDelete, isOurs, type Pair } from "./pair.ts";
import { applySettings, planSettings, type SettingStep } from "./settings.ts";
import { type Step, takeInsideSteps } from "./step.ts";

/** Sets up the inside of a container. Returns the routes that are behind those of other links. */
export async function setUpLinks(
  kernel: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
  pair: Pair,
): Promise<readonly RouteDesired[]> {
  const { settings, steps } = await insideSteps(kernel, inside, fragment, pair);
  // Before the link is up: from then on neighbours are listened to.
  applySettings(settings, inside.sysctl);
  const behind = await takeInsideSteps(steps, inside.netlink);
  return behind;
}

/**
 * The deviations of a container's links: the pair and the inside. Changes nothing. Throws
 * `INTERFACE_NOT_FOUND` if the pair exists, and its inner end has another name or is elsewhere.
 */
export async function compareLinks(
  kernel: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
): Promise<Deviation[]> {
  const { hostLink, alias } = fragment;
  const { netlink } = kernel;
  const host = await netlink.link(hostLink);
  if (host === undefined || isPendingDelete(host)) return [lost(fragment)];
  const { guest, ...alongside } = await lookInside(inside.netlink, fragment);
  if (guest === undefined || !areEnds(host, guest)) throw elsewhere(fragment, isOurs(host, alias));
  const pair = { host, guest, alongside, isNew: false };
  const { settings, steps } = await insideSteps(kernel, inside, fragment, pair);
  return [...settings, ...steps].map(({ deviation }) => deviation);
}

const lost = ({ hostLink, guestLink }: AttachmentFragment): Deviation => ({
  subject: `link ${hostLink}`,
  found: absent,
  wanted: `there, with ${guestLink}`,
});

interface InsideSteps {
  readonly settings: readonly SettingStep[];
  readonly steps: readonly Step[];
}

/** The steps that podnetd may take to repair the inside. */
async function insideSteps(
  kernel: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
  pair: Pair,
): Promise<InsideSteps> {
  const { settings, steps } = await planSteps(kernel, inside, fragment, pair);
  return {
    settings: permitted(settings, fragment, pair),
    steps: permitted(steps, fragment, pair),
  };
}

async function planSteps(
  { netlink }: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
  { guest, alongside, isNew }: Pair,
): Promise<InsideSteps> {
  const macvlan = await observeMacvlan(netlink, inside, fragment, alongside);
  const wanted = { ...fragment, routes: [...fragment.routes, ...macvlan.routes] };
  const observed = await observeInside(inside.netlink, guest, alongside, isNew);
  // (A macvlan comes when it comes: its routes are no plugin's to have changed.)
  const byMacvlan = macvlan.routes.map(partOf);
  const planned = planInside(wanted, observed).map(
    ({ part, ...step }): Step =>
      part === undefined || byMacvlan.includes(part) ? step : { ...step, part },
  );
  const theirs = withoutMachineParts(planned);
  // Asked about only where it matters; no machine has a link upon one that was just made.
  const used =
    !isNew && theirs.length < planned.length && carriesMachine(await inside.netlink.links(), guest);
  return {
    settings: planSettings(fragment, inside.sysctl, observed.addresses, isNew),
    steps: [...macvlan.steps, ...(used ? theirs : planned)],
  };
}

/**
 * The changes that later plugins made in a container: all present deviations of the inside.
 * Undefined if they cannot be determined because the link is missing or down.
 */
export async function observeLater(
  kernel: AttachmentKernel,
  inside: Inside,
  fragment: AttachmentFragment,
): Promise<LaterChanges | undefined> {
  const host = await kernel.netlink.link(fragment.hostLink);
  const { guest, ...alongside } = await lookInside(inside.netlink, fragment);
  if (host === undefined || guest === undefined || !areEnds(host, guest) || !guest.up)
    return undefined;
  const pair = { host, guest, alongside, isNew: false };
  const { settings, steps } = await planSteps(kernel, inside, fragment, pair);
  return laterChanges([...settings, ...steps], guest);
}

/**
 * A pair ends as a whole: while the host's end is there the other one is somewhere, maybe in use.
 */
const elsewhere = ({ hostLink, guestLink }: AttachmentFragment, ours: boolean): PodnetError =>
  new PodnetError(
    "INTERFACE_NOT_FOUND",
    ours
      ? `The other end of "${hostLink}" is not "${guestLink}" in its container any more`
      : `Link "${hostLink}" is foreign by now`,
    {
      hint: ours
        ? "It was renamed or moved; podnetd takes over no foreign link. Give it back its name, or end the container"
        : "Delete or rename that link; podnetd then makes the container's anew",
      details: { link: guestLink, hostLink },
    },
  );
