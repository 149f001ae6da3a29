/** A pod that certainly held an address all this time: from its create's answer to the first word of its delete. */
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
