import type { Family } from "../../../core/address.ts";
import {
  type OverlayDelta,
  type OverlayPeer,
  type PeerDelta,
  peerKey,
} from "../../../network/model/overlay.ts";
import type { Peer, PeerChange } from "../../../overlay/peers.ts";
import { sidePeer } from "./make-desired.ts";

interface Pending {
  readonly removed: Map<string, OverlayPeer>;
  readonly added: Map<string, OverlayPeer>;
}

/**
 * The changes of peers that are not applied yet, as one delta: a peer that came and went meanwhile
 * is not in it.
 */
export class PeerDeltas {
  readonly #sides = new Map<Family, Pending>([
    [4, { removed: new Map(), added: new Map() }],
    [6, { removed: new Map(), added: new Map() }],
  ]);

  note(changes: readonly PeerChange[]): void {
    for (const change of changes) {
      if (change.kind === "removed") this.#remove(change.peer);
      if (change.kind === "changed") this.#remove(change.before);
      if (change.kind !== "removed") this.#add(change.peer);
    }
  }

  get pending(): boolean {
    return [...this.#sides.values()].some(({ removed, added }) => removed.size + added.size > 0);
  }

  /** Returns all recorded changes, and forgets them. */
  take(): OverlayDelta {
    const delta = new Map<Family, PeerDelta>();
    for (const [family, { removed, added }] of this.#sides)
      if (removed.size + added.size > 0)
        delta.set(family, { removed: [...removed.values()], added: [...added.values()] });
    this.clear();
    return delta;
  }

  /** Forgets the recorded changes, because all peers are made again. */
  clear(): void {
    for (const { removed, added } of this.#sides.values()) {
      removed.clear();
      added.clear();
    }
  }

  #remove(peer: Peer): void {
    for (const [family, { removed, added }] of this.#sides)
      for (const each of sidePeer(peer, family))
        if (!added.delete(peerKey(each))) removed.set(peerKey(each), each);
  }

  #add(peer: Peer): void {
    for (const [family, { removed, added }] of this.#sides)
      for (const each of sidePeer(peer, family))
        if (!removed.delete(peerKey(each))) added.set(peerKey(each), each);
  }
}
