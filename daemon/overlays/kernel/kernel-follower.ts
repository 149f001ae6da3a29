import { guarded } from "../../../core/guard.ts";
import { limited } from "../../../core/aborting.ts";
import type { Clock } from "../../../core/clock.ts";
import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import { changesText } from "../../../network/bridge/change-text.ts";
import type { Deviation } from "../../../network/model/deviation.ts";
import { overlayChangeText } from "../../../network/overlay/change.ts";
import type { OverlayDesired } from "../../../network/model/overlay.ts";
import type { OverlayOutcome, Overlays } from "../../../network/overlay/overlays.ts";
import { RepairBackoff } from "../../reconcile/repair-backoff.ts";

/** Longest one look or change may take, milliseconds. */
const limitMs = 60_000;
/** Until what could not be made is tried again, milliseconds. */
const againMs = 2000;

export interface KernelFollowerParts {
  readonly overlays: Pick<Overlays, "follow" | "ensure" | "diff">;
  readonly clock: Clock;
  readonly log: Log;
  /** It was made as wanted, or is so still. */
  readonly onMade: (desired: OverlayDesired, outcome: OverlayOutcome) => void;
  /** Others had changed it, and it was put right: left alone for `pauseMs` from now on, if that keeps happening. */
  readonly onHealed: (found: readonly Deviation[], pauseMs: number) => void;
}

/** Has the kernel follow what an overlay is to be: news of peers at once, what others change at each look. One thing at a time. */
export class KernelFollower implements AsyncDisposable {
  readonly #parts: KernelFollowerParts;
  readonly #over = new AbortController();
  readonly #patience = new RepairBackoff();
  #wanted: OverlayDesired | undefined;
  /** What was asked for and not begun. */
  #due = { news: false, look: false };
  /** What was wanted last has not been made, not all of it. */
  #unmade = false;
  #again: NodeJS.Timeout | undefined;
  #working: Promise<void> | undefined;
  #resting = 0;
  #error: PodnetError | undefined;
  #failures = 0;

  constructor(parts: KernelFollowerParts) {
    this.#parts = parts;
  }

  get wanted(): OverlayDesired | undefined {
    return this.#wanted;
  }

  /** Why it is not as wanted. */
  get error(): PodnetError | undefined {
    return this.#error;
  }

  /** Times that it could not be made as wanted, or not all of it. */
  get failures(): number {
    return this.#failures;
  }

  /** This is what is wanted from now on; nothing when undefined: what there is stays until it is swept. */
  want(desired: OverlayDesired | undefined): void {
    this.#wanted = desired;
    this.#due.news = true;
    this.#work();
  }

  /** Somebody may have changed something. */
  look(): void {
    this.#due.look = true;
    this.#work();
  }

  /** Changes nothing from when this resolves until the returned function is called. */
  async rest(): Promise<() => void> {
    this.#resting++;
    await this.#working;
    let resting = true;
    return () => {
      if (!resting) return;
      resting = false;
      this.#resting--;
      this.look();
    };
  }

  /** What of the kernel is not as wanted, one line each. */
  async diff(signal: AbortSignal): Promise<readonly string[]> {
    const desired = this.#wanted;
    if (desired === undefined) return [];
    const { changes, rules } = await this.#parts.overlays.diff(desired, signal);
    return [...changes.map(overlayChangeText), ...changesText(rules)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    clearTimeout(this.#again);
    await this.#working;
  }

  #work(): void {
    if (this.#over.signal.aborted || this.#resting > 0) return;
    this.#working ??= this.#run().finally(() => {
      this.#working = undefined;
    });
  }

  async #run(): Promise<void> {
    // So that what comes in one go is done in one.
    await Promise.resolve();
    while ((this.#due.news || this.#due.look) && this.#resting === 0) {
      if (this.#over.signal.aborted) return;
      const news = this.#due.news || this.#unmade;
      this.#due = { news: false, look: news && this.#due.look };
      const desired = this.#wanted;
      if (desired === undefined) continue;
      const signal = limited(limitMs, this.#over.signal);
      try {
        const outcome = news
          ? await this.#parts.overlays.follow(desired, signal)
          : await this.#heal(desired, signal);
        if (outcome !== undefined) this.#made(desired, outcome);
      } catch (thrown) {
        if (this.#over.signal.aborted) return;
        this.#failed(toPodnetError(thrown));
      }
    }
  }

  /** Compared before it is touched: with whoever keeps undoing it podnet does not fight. */
  async #heal(desired: OverlayDesired, signal: AbortSignal): Promise<OverlayOutcome | undefined> {
    const { overlays, clock, onHealed } = this.#parts;
    const { changes, rules } = await overlays.diff(desired, signal);
    const found = [
      ...changes.map((change) => overlayDeviation(overlayChangeText(change))),
      ...changesText(rules).map(overlayDeviation),
    ];
    if (found.length === 0) {
      this.#error = undefined;
      return undefined;
    }
    if (!this.#patience.allows(found, clock.monotonic())) return undefined;
    const outcome = await overlays.ensure(desired, signal);
    if (outcome.failures.length === 0)
      onHealed(found, this.#patience.repaired(found, clock.monotonic()));
    return outcome;
  }

  #made(desired: OverlayDesired, outcome: OverlayOutcome): void {
    const [first] = outcome.failures;
    this.#unmade = first !== undefined;
    if (first === undefined) this.#error = undefined;
    else this.#failed(first);
    this.#parts.onMade(desired, outcome);
  }

  #failed(error: PodnetError): void {
    this.#failures++;
    this.#unmade = true;
    clearTimeout(this.#again);
    this.#again = setTimeout(
      guarded("overlay", () => this.look()),
      againMs,
    ).unref();
    const same = this.#error?.message === error.message;
    this.#error = error;
    // Told of once for as long as it is the same.
    if (!same) this.#parts.log.error({ err: error }, "The overlay cannot be made as it should be");
  }
}

/** What a change would put right. Its line tells what is to be; what was found there differs from it. */
export const overlayDeviation = (line: string): Deviation =>
  /^\S+ - /.test(line)
    ? { subject: line, found: "there", wanted: "absent" }
    : { subject: line, found: "not so", wanted: "so" };
