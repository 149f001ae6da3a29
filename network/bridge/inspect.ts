import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import { applyAll } from "./apply.ts";
import type { Change, ChangeOf } from "../model/change.ts";
import { type Comparison, compareFragment, compareLinks, type View } from "./compare.ts";
import type { Fragment, PortDesired } from "../model/desired.ts";
import { type Deviation, deviations, needsSight } from "../model/deviation.ts";
import { observeLinks } from "./observe.ts";

export interface InspectOptions {
  /** Whether to repair the deviations. */
  readonly heal: (found: readonly Deviation[]) => boolean;
  /** Leaves the firewall alone, which costs most to look at. */
  readonly linksOnly: boolean;
}

/** The result of inspecting a fragment. */
export interface Inspection {
  /** The deviations. */
  readonly found: readonly Deviation[];
  /** Whether the deviations were repaired. */
  readonly healed: boolean;
  /** Why it cannot be compared, or has not been put right. */
  readonly error: PodnetError | undefined;
}

/** All is as planned. */
export const nothingFound: Inspection = { found: [], healed: true, error: undefined };

/** Observes without repairs. */
export const onlyLook = (): boolean => false;

/** The deviations that a look has found, and their repair. */
export interface Finding {
  readonly found: readonly Deviation[];
  mend(): Promise<void>;
}

/** Inspects, and repairs deviations if requested. Throws only when the signal of `look` aborts. */
export async function mending(
  heal: InspectOptions["heal"],
  look: () => Promise<Finding>,
): Promise<Inspection> {
  let found: readonly Deviation[] = [];
  try {
    const finding = await look();
    ({ found } = finding);
    if (found.length === 0) return nothingFound;
    if (!heal(found)) return { found, healed: false, error: undefined };
    await finding.mend();
    return { found, healed: true, error: undefined };
  } catch (thrown) {
    if (isPodnetError(thrown, "CANCELLED", "DEADLINE_EXCEEDED")) throw thrown;
    return { found, healed: false, error: toPodnetError(thrown) };
  }
}

/**
 * Compares a fragment with the host and, if asked to, heals it. Does not throw, but when the signal
 * aborts.
 */
export function inspect(
  view: View,
  fragment: Fragment,
  { heal, linksOnly }: InspectOptions,
  signal: AbortSignal,
): Promise<Inspection> {
  const compare = linksOnly ? compareLinks(view, fragment) : compareFragment(view, fragment);
  const ports = fragment.kind === "network" ? [] : fragment.ports;
  return inspectBy(compare, view, ports, heal, signal);
}

/** Inspects, as `inspect` does, the objects that `compare` compares; `ports` are among them. */
export async function inspectBy(
  compare: Comparison,
  view: View,
  ports: readonly PortDesired[],
  heal: InspectOptions["heal"],
  signal: AbortSignal,
): Promise<Inspection> {
  let found: readonly Deviation[] = [];
  for (let attempt = 1; ; attempt++) {
    try {
      const changes = await compare(signal);
      if (changes.length === 0) return { ...nothingFound, found };
      found = await describe(changes, view);
      refuseUnmarked(ports, changes);
      if (!heal(found)) return { found, healed: false, error: undefined };
      const others = changes.find(isOthers);
      const own = changes.filter((change) => !isOthers(change));
      await applyAll(own, view, signal, { done: [] });
      return { found, healed: others === undefined, error: others && downByOthers(others.name) };
    } catch (thrown) {
      if (isPodnetError(thrown, "CANCELLED", "DEADLINE_EXCEEDED")) throw thrown;
      // Another program may have written the firewall since it was read: see `ensure`.
      if (attempt === 1 && isPodnetError(thrown, "FIREWALL_FAILED")) continue;
      return { found, healed: false, error: toPodnetError(thrown) };
    }
  }
}

/**
 * An adopted bridge that is down was taken down by its owner. A start of podnetd sets it up, once.
 */
const isOthers = (change: Change): change is ChangeOf<"set-adopted"> =>
  change.kind === "set-adopted";

const downByOthers = (bridge: string): PodnetError =>
  new PodnetError("BRIDGE_CONFLICT", `Bridge "${bridge}" is down, and is not podnet's`, {
    hint: `Bring it up when that was not meant: ip link set ${bridge} up`,
    details: { bridge },
  });

async function describe(changes: readonly Change[], { netlink }: View): Promise<Deviation[]> {
  // (A list of all links costs more with each of them; rules of containers change all the time.)
  if (!changes.some(needsSight))
    return changes.flatMap((change) => deviations(change, { links: [], addresses: [] }));
  const links = await observeLinks(netlink);
  const addresses = (await netlink.addresses()).map(({ index, prefix }) => ({
    link: index,
    prefix,
  }));
  return changes.flatMap((change) => deviations(change, { links, addresses }));
}

/**
 * A link of a port's name that bears neither mark is another's, made after ours was deleted: a tap
 * of ours has both from the moment its pod was made. A create must take a link without marks; a
 * repair must not.
 */
function refuseUnmarked(ports: readonly PortDesired[], changes: readonly Change[]): void {
  const strange = changes.find(
    (change) =>
      change.kind === "set-link" &&
      change.set.alias !== undefined &&
      change.set.group !== undefined &&
      ports.some(({ tap }) => tap === change.name),
  );
  if (strange?.kind !== "set-link") return;
  throw new PodnetError("NAME_IN_USE", `Link "${strange.name}" belongs to another program now`, {
    hint: "Delete or rename that link, and start the pod again",
    details: { tap: strange.name },
  });
}
