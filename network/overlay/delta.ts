import type { OverlayPeer, OverlayShape, PeerDelta, SideShape } from "../model/overlay.ts";
import { type Surroundings, wantedSide, type WantedSide } from "./wanted.ts";

/** A side before and after a delta, as far as the two can differ, and all of it after it. */
export interface SideStep {
  readonly from: WantedSide;
  readonly to: WantedSide;
  readonly wanted: WantedSide;
}

/**
 * Applies a delta of peers to the wanted state of an address family: returns `wanted` itself,
 * updated for these peers only. If a peer is refused, was refused, or conflicts with another, all
 * peers (`all`, the delta included) are evaluated again, because the first one wins.
 */
export function applyDelta(
  desired: OverlayShape,
  side: SideShape,
  surroundings: Surroundings,
  wanted: WantedSide,
  { removed, added }: PeerDelta,
  all: () => readonly OverlayPeer[],
): SideStep {
  const from = wantedSide(desired, { ...side, peers: removed }, surroundings);
  const to = wantedSide(desired, { ...side, peers: added }, surroundings);
  const apart =
    wanted.refused.length + to.refused.length === 0 &&
    // One of several leases of a host may be removed: entries shared with its other leases stay.
    wanted.sharesMac !== true &&
    to.sharesMac !== true &&
    tables.every((table) => isApart(wanted[table], from[table], to[table]));
  if (!apart) {
    const whole = wantedSide(desired, { ...side, peers: all() }, surroundings);
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

/** Whether the new entries conflict with no remaining peer. */
function isApart(all: Keys, less: Keys, more: Keys): boolean {
  for (const key of more?.keys() ?? [])
    if (all?.has(key) === true && less?.has(key) !== true) return false;
  return true;
}

function replace<K, V>(all: Map<K, V>, less: ReadonlyMap<K, V>, more: ReadonlyMap<K, V>): void {
  for (const key of less.keys()) all.delete(key);
  for (const [key, value] of more) all.set(key, value);
}
