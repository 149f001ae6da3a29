import type { OverlayDesired, OverlayPeer, OverlaySide } from "../model/overlay.ts";
import { type Surroundings, wantedSide, type WantedSide } from "./wanted.ts";

export interface PeerNews {
  readonly gone: readonly OverlayPeer[];
  readonly come: readonly OverlayPeer[];
}

/** Which peers are not those of before: told by the objects themselves, for there are thousands and few are new. */
export function peerNews(before: readonly OverlayPeer[], after: readonly OverlayPeer[]): PeerNews {
  const least = Math.min(before.length, after.length);
  let from = 0;
  while (from < least && before[from] === after[from]) from++;
  let behind = 0;
  while (behind < least - from && before.at(-1 - behind) === after.at(-1 - behind)) behind++;
  const was = new Set(before.slice(from, before.length - behind));
  const come = after.slice(from, after.length - behind).filter((peer) => !was.delete(peer));
  return { gone: [...was], come };
}

/** A side before and after news, as far as the two can differ, and all of it after them. */
export interface SideStep {
  readonly from: WantedSide;
  readonly to: WantedSide;
  readonly wanted: WantedSide;
}

/**
 * What news of peers make of a side: `wanted` itself, brought up to date by them alone. Where a peer is refused, was refused or
 * has what another has, all of them are looked at, for who comes first has it.
 */
export function takeNews(
  desired: OverlayDesired,
  side: OverlaySide,
  surroundings: Surroundings,
  wanted: WantedSide,
  { gone, come }: PeerNews,
): SideStep {
  const from = wantedSide(desired, { ...side, peers: gone }, surroundings);
  const to = wantedSide(desired, { ...side, peers: come }, surroundings);
  const apart =
    wanted.refused.length + to.refused.length === 0 &&
    // One of several leases of a host may go: what it shares with the others stays.
    wanted.sharesMac !== true &&
    to.sharesMac !== true &&
    tables.every((table) => isApart(wanted[table], from[table], to[table]));
  if (!apart) {
    const whole = wantedSide(desired, side, surroundings);
    return { from: wanted, to: whole, wanted: whole };
  }
  replace(wanted.neighbours, from.neighbours, to.neighbours);
  replace(wanted.fdb, from.fdb, to.fdb);
  replace(wanted.routes, from.routes, to.routes);
  replace(wanted.tunnel ?? new Map(), from.tunnel ?? new Map(), to.tunnel ?? new Map());
  replace(wanted.senders ?? new Map(), from.senders ?? new Map(), to.senders ?? new Map());
  return { from, to, wanted };
}

const tables = ["neighbours", "fdb", "routes", "tunnel", "senders"] as const;

type Keys = ReadonlyMap<unknown, unknown> | undefined;

/** Whether what comes has nothing that somebody who stays has. */
function isApart(all: Keys, less: Keys, more: Keys): boolean {
  for (const key of more?.keys() ?? [])
    if (all?.has(key) === true && less?.has(key) !== true) return false;
  return true;
}

function replace<K, V>(all: Map<K, V>, less: ReadonlyMap<K, V>, more: ReadonlyMap<K, V>): void {
  for (const key of less.keys()) all.delete(key);
  for (const [key, value] of more) all.set(key, value);
}
