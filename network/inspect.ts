import { isPodnetError, PodnetError, toPodnetError } from "../core/errors.ts";
import { applyAll } from "./apply.ts";
import type { Change } from "./change.ts";
import { compareFragment, compareLinks, type View } from "./compare.ts";
import type { Fragment } from "./desired.ts";
import { type Deviation, deviations } from "./deviation.ts";
import { observeLinks } from "./observe.ts";

export interface InspectOptions {
  /** Puts right what differs; else only looks. */
  readonly heal: boolean;
  /** Leaves the firewall alone, which costs most to look at. */
  readonly linksOnly: boolean;
}

/** What a look at a fragment found. */
export interface Inspection {
  /** What was not as planned. */
  readonly found: readonly Deviation[];
  /** Why it cannot be compared, or has not been put right. */
  readonly error: PodnetError | undefined;
}

/** Compares a fragment with the host and, if asked to, heals it. Does not throw, but when the signal aborts. */
export async function inspect(
  view: View,
  fragment: Fragment,
  { heal, linksOnly }: InspectOptions,
  signal: AbortSignal,
): Promise<Inspection> {
  let found: readonly Deviation[] = [];
  try {
    const compare = linksOnly ? compareLinks(view, fragment) : compareFragment(view, fragment);
    const changes = await compare(signal);
    if (changes.length === 0) return { found, error: undefined };
    found = await describe(changes, view);
    refuseUnmarked(fragment, changes);
    if (heal) await applyAll(changes, view, signal, { done: [] });
    return { found, error: undefined };
  } catch (thrown) {
    if (isPodnetError(thrown, "CANCELLED", "DEADLINE_EXCEEDED")) throw thrown;
    return { found, error: toPodnetError(thrown) };
  }
}

async function describe(changes: readonly Change[], { netlink }: View): Promise<Deviation[]> {
  const links = await observeLinks(netlink);
  const addresses = (await netlink.addresses()).map(({ index, prefix }) => ({
    link: index,
    prefix,
  }));
  return changes.flatMap((change) => deviations(change, { links, addresses }));
}

/**
 * A link of a port's name that bears neither mark is another's, made after ours was deleted: a tap of ours has both
 * from the moment its pod was made. A create must take a link without marks; a repair must not.
 */
function refuseUnmarked(fragment: Fragment, changes: readonly Change[]): void {
  if (fragment.kind !== "pod") return;
  const strange = changes.find(
    (change) =>
      change.kind === "set-link" &&
      change.set.alias !== undefined &&
      change.set.group !== undefined &&
      fragment.ports.some(({ tap }) => tap === change.name),
  );
  if (strange?.kind !== "set-link") return;
  throw new PodnetError("NAME_IN_USE", `Link "${strange.name}" is another's by now`, {
    hint: "Delete or rename that link, and start the pod again",
    details: { tap: strange.name },
  });
}
