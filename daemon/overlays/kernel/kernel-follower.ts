import { limited } from "../../../core/aborting.ts";
import type { Clock } from "../../../core/clock.ts";
import type { PodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import { changesText } from "../../../network/bridge/change-text.ts";
import type { Deviation } from "../../../network/model/deviation.ts";
import { overlayChangeText } from "../../../network/overlay/change.ts";
import type { OverlayDesired, OverlayShape } from "../../../network/model/overlay.ts";
import type { OverlayOutcome, Overlays } from "../../../network/overlay/overlays.ts";
import type { Peer, PeerChange } from "../../../overlay/peers.ts";
import { RepairBackoff } from "../../reconcile/repair-backoff.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import { makeDesired } from "./make-desired.ts";
import { PeerDeltas } from "./peer-deltas.ts";

/** Longest one look or change may take, milliseconds. */
const limitMs = 60_000;
/** The wait before failed changes are retried. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

export interface KernelFollowerParts {
  readonly overlays: Pick<Overlays, "follow" | "ensure" | "diff">;
  /** All other hosts, as they are now. */
  readonly peers: () => Iterable<Peer>;
  readonly clock: Clock;
  readonly log: Log;
  /** Called when the desired state was applied, or confirmed. */
  readonly onMade: (shape: OverlayShape, outcome: OverlayOutcome) => void;
  /**
   * Others had changed it, and it was put right: left alone for `pauseMs` from now on, if that
   * keeps happening.
   */
  readonly onHealed: (found: readonly Deviation[], pauseMs: number) => void;
}

interface Wanted {
  readonly shape: OverlayShape;
  /**
   * The desired state with the peers that an earlier podnetd recorded; undefined once the current
   * peers are used.
   */
  readonly recalled?: OverlayDesired;
}

/**
 * Keeps the kernel in the desired state of an overlay: deltas of peers at once, outside changes at
 * each look. One operation at a time.
 */
export class KernelFollower implements AsyncDisposable {
  readonly #parts: KernelFollowerParts;
  readonly #over = new AbortController();
  readonly #repairs = new RepairBackoff();
  /** One key: whatever is due is done by one run. */
  readonly #queue: WorkQueue<"kernel">;
  readonly #deltas = new PeerDeltas();
  #wanted: Wanted | undefined;
  /** The desired state with all peers that was applied last; undefined once it has changed. */
  #built: OverlayDesired | undefined;
  /** The requests that have not started yet. */
  #due = { wanted: false, look: false };
  /**
   * A delta does not do: something else than peers is new, or not all was made that was wanted
   * last.
   */
  #all = false;
  #failures = 0;

  constructor(parts: KernelFollowerParts) {
    this.#parts = parts;
    this.#queue = new WorkQueue({
      name: "overlay-kernel",
      backoff,
      onDegraded: (_, { error }) =>
        parts.log.error({ err: error }, "Failed to apply the overlay; retrying"),
    });
  }

  /** The desired state with all peers; undefined if there is none. */
  get wanted(): OverlayDesired | undefined {
    if (this.#wanted === undefined) return undefined;
    const { shape, recalled } = this.#wanted;
    return (this.#built ??= recalled ?? makeDesired(shape, this.#parts.peers()));
  }

  /** Why it is not as wanted. */
  get error(): PodnetError | undefined {
    return this.#queue.error("kernel");
  }

  /** Times that it could not be made as wanted, or not all of it. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * Records that these peers changed: they are applied with the next desired state, or at the next
   * look.
   */
  note(changes: readonly PeerChange[]): void {
    // The first desired state contains all peers anyway.
    if (this.#wanted?.recalled !== undefined || this.#wanted === undefined) return;
    this.#deltas.note(changes);
    this.#built = undefined;
  }

  /**
   * Sets the desired state, with the current peers. If its shape is unchanged, only the recorded
   * changes of peers are applied. With undefined nothing is changed: existing state stays until it
   * is swept.
   */
  want(shape: OverlayShape | undefined): void {
    this.#become(shape && { shape });
  }

  /** Sets the desired state that an earlier podnetd recorded, until the current one is known. */
  recall(desired: OverlayDesired): void {
    this.#become({ shape: desired, recalled: desired });
  }

  /** Looks for outside changes. */
  look(): void {
    this.#due.look = true;
    this.#work();
  }

  /** Pauses all changes from the moment this resolves until the returned function is called. */
  async rest(): Promise<() => void> {
    const resume = await this.#queue.pause();
    return () => {
      this.look();
      resume();
    };
  }

  /** The deviations of the kernel from the desired state, one line each. */
  async diff(signal: AbortSignal): Promise<readonly string[]> {
    const desired = this.wanted;
    if (desired === undefined) return [];
    const { changes, rules } = await this.#parts.overlays.diff(desired, signal);
    return [...changes.map(overlayChangeText), ...changesText(rules)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#queue.close();
  }

  #become(wanted: Wanted | undefined): void {
    const before = this.#wanted;
    const onlyPeersDiffer =
      before !== undefined &&
      wanted !== undefined &&
      before.recalled === wanted.recalled &&
      JSON.stringify(wanted.shape) === JSON.stringify(before.shape);
    if (!onlyPeersDiffer) this.#all = true;
    this.#wanted = wanted;
    this.#built = undefined;
    this.#due.wanted = true;
    this.#work();
  }

  #work(): void {
    this.#queue.add("kernel", () => this.#run());
  }

  /** Carries out the pending requests. Throws the reason if some of it failed. */
  async #run(): Promise<void> {
    do {
      if (this.#over.signal.aborted || this.#wanted === undefined) return;
      const wanted = this.#due.wanted || this.#all || this.#deltas.pending;
      this.#due = { wanted: false, look: wanted && this.#due.look };
      const { shape } = this.#wanted;
      const signal = limited(limitMs, this.#over.signal);
      try {
        const outcome = wanted ? await this.#make(shape.name, signal) : await this.#heal(signal);
        if (outcome === undefined) continue;
        const [first] = outcome.failures;
        this.#all ||= first !== undefined;
        this.#parts.onMade(shape, outcome);
        if (first !== undefined) throw first;
      } catch (thrown) {
        if (this.#over.signal.aborted) return;
        this.#failures++;
        this.#all = true;
        throw thrown;
      }
    } while (this.#due.wanted || this.#due.look);
  }

  /** Applies a delta if that is enough, else inspects everything. */
  async #make(name: string, signal: AbortSignal): Promise<OverlayOutcome | undefined> {
    const { overlays } = this.#parts;
    if (!this.#all) {
      const outcome = await overlays.follow(name, this.#deltas.take(), signal);
      if (outcome !== undefined) return outcome;
    }
    this.#all = false;
    this.#deltas.clear();
    const desired = this.wanted;
    return desired && overlays.ensure(desired, signal);
  }

  /**
   * Compares before it repairs, so that podnet does not fight a program that keeps reverting the
   * repair.
   */
  async #heal(signal: AbortSignal): Promise<OverlayOutcome | undefined> {
    const { overlays, clock, onHealed } = this.#parts;
    const desired = this.wanted;
    if (desired === undefined) return undefined;
    const { changes, rules } = await overlays.diff(desired, signal);
    const found = [
      ...changes.map((change) => overlayDeviation(overlayChangeText(change))),
      ...changesText(rules).map(overlayDeviation),
    ];
    if (found.length === 0) return undefined;
    if (!this.#repairs.allows(found, clock.monotonic())) return undefined;
    const outcome = await overlays.ensure(desired, signal);
    if (outcome.failures.length === 0)
      onHealed(found, this.#repairs.repaired(found, clock.monotonic()));
    return outcome;
  }
}

/**
 * The deviation that a change repairs. Its line describes the desired state; the observed one
 * differs from it.
 */
export const overlayDeviation = (line: string): Deviation =>
  /^\S+ - /.test(line)
    ? { subject: line, found: "there", wanted: "absent" }
    : { subject: line, found: "not so", wanted: "so" };
