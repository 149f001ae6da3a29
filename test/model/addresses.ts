import { type Call, describe } from "./history.ts";

/**
 * A pod that certainly held an address all this time: from its create's answer to the first word of
 * its delete.
 */
export interface Holding {
  readonly address: string;
  readonly id: string;
  readonly from: number;
  readonly until: number;
}

/** Pairs of pods that held one address at the same time (promise 7), in words. */
export function heldTwice(holdings: readonly Holding[]): readonly string[] {
  const found: string[] = [];
  for (const [address, all] of Map.groupBy(holdings, (one) => one.address)) {
    const inOrder = all.toSorted((a, b) => a.from - b.from);
    let latest: Holding | undefined;
    for (const next of inOrder) {
      if (latest !== undefined && next.from < latest.until && next.id !== latest.id)
        found.push(
          `${address} was held by ${latest.id} until ${latest.until} and by ${next.id} from ${next.from}`,
        );
      if (latest === undefined || next.until > latest.until) latest = next;
    }
  }
  return found;
}

/**
 * Creates that were refused for want of addresses although fewer than `capacity` can have been held
 * at any moment of the call, in words. Whoever rests makes room, so nothing but pods counts: from
 * their create's beginning, when it may have taken one, to the end of their delete, when it may
 * still have had it.
 */
export function exhaustedTooSoon(
  calls: readonly Call[],
  capacity: number,
  more: readonly { readonly from: number; readonly until: number }[] = [],
): readonly string[] {
  const gone = new Map<string, number>();
  for (const { outcome, returned } of calls)
    if (outcome.kind === "deleted")
      gone.set(outcome.id, Math.min(returned, gone.get(outcome.id) ?? Infinity));
  const pods = calls.flatMap(({ outcome, invoked, returned }) => {
    if (outcome.kind === "cut") return [{ from: invoked, until: returned }];
    if (outcome.kind !== "created") return [];
    return [{ from: invoked, until: gone.get(outcome.id) ?? Infinity }];
  });
  const held = [...pods, ...more];
  return calls
    .filter(({ outcome }) => outcome.kind === "exhausted")
    .flatMap((call) => {
      const alongside = held.filter(
        ({ from, until }) => from <= call.returned && until >= call.invoked,
      );
      // It grows only where one begins.
      const moments = [call.invoked, ...alongside.map(({ from }) => Math.max(from, call.invoked))];
      const most = Math.max(
        ...moments.map(
          (at) => alongside.filter(({ from, until }) => from <= at && at <= until).length,
        ),
      );
      return most >= capacity ? [] : [`${describe(call)}: ${most} of ${capacity} can be held`];
    });
}
