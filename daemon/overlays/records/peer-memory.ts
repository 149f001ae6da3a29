import type { Cidr, Mac } from "../../../core/address.ts";
import { guarded } from "../../../core/guard.ts";
import type { Clock } from "../../../core/clock.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import type { OverlayDesired, OverlayShape } from "../../../network/model/overlay.ts";
import type { Database } from "../../store/database.ts";
import { forgetPeers, type KnownPeers, knownPeers, writePeers } from "./overlay-peers.ts";

/**
 * The time from a change of peers to their storage, in milliseconds. It is long because a start
 * finds most peers in the kernel.
 */
const laterMs = 30_000;
/**
 * Peers where podnetd itself moves the packets: a killed podnetd leaves no peer in the kernel.
 */
const ownTableMs = 1000;
/** The limit for peers of each family: more would write megabytes at each change. */
const most = 8192;

/** Whether the table of peers is podnetd's own, and ends with it. */
export const ownsTable = ({ backend }: Pick<OverlayDesired, "backend">): boolean =>
  backend.kind === "udp";

export interface PeerMemoryParts {
  readonly db: Database;
  readonly overlay: string;
  /** This boot of the host. */
  readonly bootId: string;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The other hosts as they were last made known to the kernel, for a boot without etcd: the kernel
 * has forgotten them by then. Within a boot the kernel itself knows better, whatever ended podnetd.
 * The backend udp is different: its table of peers is podnetd's own and ends with podnetd, so that
 * the written peers are needed after each start.
 */
export class PeerMemory implements Disposable {
  readonly #parts: PeerMemoryParts;
  readonly #former: KnownPeers | undefined;
  /** The MACs of the former peers by their subnets, once they are asked for. */
  #formerMacs: ReadonlyMap<Cidr, Mac | undefined> | undefined;
  /** Made in this boot, and not written yet. */
  #made: (() => OverlayDesired | undefined) | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: PeerMemoryParts) {
    this.#parts = parts;
    this.#former = knownPeers(parts.db, parts.overlay);
  }

  /**
   * When an earlier podnetd stored the peers (wall clock, milliseconds), and whether in this boot.
   * Undefined if it stored none.
   */
  get former(): { readonly writtenMs: number; readonly sameBoot: boolean } | undefined {
    const former = this.#former;
    if (former === undefined) return undefined;
    return { writtenMs: former.writtenMs, sameBoot: former.bootId === this.#parts.bootId };
  }

  /**
   * The overlay with the peers that an earlier podnetd wrote down; undefined when the kernel still
   * has them, or none are written.
   */
  recall(desired: OverlayShape): OverlayDesired | undefined {
    const former = this.#former;
    if (former === undefined) return undefined;
    if (former.bootId === this.#parts.bootId && !ownsTable(desired)) return undefined;
    const sides = desired.sides.map((side) => {
      const known = former.sides.find(({ network }) => network === side.network);
      return { ...side, peers: known?.peers ?? [] };
    });
    return { ...desired, sides };
  }

  /** Whether an earlier podnetd knew a host by a subnet, with one of these MACs or none. */
  had(network: Cidr, macs: readonly Mac[]): boolean {
    this.#formerMacs ??= new Map(
      (this.#former?.sides ?? []).flatMap(({ peers }) =>
        peers.map(({ subnet, vtepMac }) => [subnet, vtepMac]),
      ),
    );
    const mac = this.#formerMacs.get(network);
    return this.#formerMacs.has(network) && (mac === undefined || macs.includes(mac));
  }

  /** Peers are made: `whole` has them when they are written down, after a while or at the end. */
  note(shape: Pick<OverlayShape, "backend">, whole: () => OverlayDesired | undefined): void {
    this.#made = whole;
    const ms = ownsTable(shape) ? ownTableMs : laterMs;
    this.#timer ??= setTimeout(
      guarded("overlay", () => this.#write()),
      ms,
    ).unref();
  }

  forget(): void {
    this.#made = undefined;
    forgetPeers(this.#parts.db, this.#parts.overlay);
  }

  [Symbol.dispose](): void {
    this.#write();
  }

  #write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const desired = this.#made?.();
    this.#made = undefined;
    if (desired === undefined) return;
    const { db, overlay, bootId, clock, log } = this.#parts;
    const sides = desired.sides.map(({ network, peers }) => ({
      network,
      peers: peers.slice(0, most),
    }));
    try {
      writePeers(db, overlay, { bootId, writtenMs: clock.now(), sides });
    } catch (thrown) {
      // The stored peers are only used in a boot without etcd.
      log.warn({ overlay, err: toPodnetError(thrown) }, "Failed to record the other hosts");
    }
  }
}
