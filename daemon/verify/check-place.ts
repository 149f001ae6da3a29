import { isPodnetError } from "../../core/errors.ts";
import { type Check, checker } from "./check.ts";
import { compareThere } from "./compare.ts";
import type { ExpectedInterface } from "./expectation.ts";
import { queryHostSource } from "./query-host-source.ts";

/**
 * A machine's tap and link in a namespace of CNI plugins, and the addresses and routes taken over
 * from the link, as an independent check finds them there. The check cannot see the redirect
 * between the two; `podnet diff` shows it.
 */
export async function checkPlace(
  expected: ExpectedInterface,
  signal: AbortSignal,
): Promise<Check[]> {
  const { elsewhere, tap } = expected;
  if (elsewhere === undefined) return [];
  const { netns, link } = elsewhere;
  try {
    return compareThere(expected, link, await queryHostSource([tap, link], signal, netns));
  } catch (error) {
    if (!isPodnetError(error) || signal.aborted) throw error;
    return [checker("netlink")(`links in ${netns}`, "seen", error.message)];
  }
}
