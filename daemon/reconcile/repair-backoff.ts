import type { Deviation } from "../../network/model/deviation.ts";

/**
 * Repairs of one thing within the window, after which a program is assumed to undo them on purpose.
 */
const heals = { most: 5, windowMs: 60_000 } as const;
/**
 * Pauses between repairs that keep being undone, milliseconds: doubled from the first to the
 * longest.
 */
const pauses = { first: 10_000, longest: 300_000 } as const;

interface Subject {
  times: readonly number[];
  pauseMs: number;
  untilMs: number;
}

/**
 * How often podnet repairs a part of the host. A part that is changed a few times is repaired at
 * once. When a program keeps undoing a repair, podnet repairs less and less often, and reports it.
 * Pure: its state comes from its calls alone.
 */
export class RepairBackoff {
  readonly #subjects = new Map<string, Subject>();

  /** Whether to repair now: there is something that is not left alone for a while. */
  allows(found: readonly Deviation[], nowMs: number): boolean {
    return found.some(({ subject }) => nowMs >= (this.#subjects.get(subject)?.untilMs ?? 0));
  }

  /** Records a repair. Returns the pause before the next one, milliseconds; usually 0. */
  repaired(found: readonly Deviation[], nowMs: number): number {
    const subjects = new Set(found.map(({ subject }) => subject));
    return Math.max(0, ...[...subjects].map((subject) => this.#again(subject, nowMs)));
  }

  #again(subject: string, nowMs: number): number {
    const known = this.#subjects.get(subject) ?? { times: [], pauseMs: 0, untilMs: 0 };
    const calmMs = nowMs - (known.times.at(-1) ?? nowMs);
    if (calmMs > Math.max(heals.windowMs, 2 * known.pauseMs)) known.pauseMs = 0;
    known.times = [...known.times.filter((time) => nowMs - time < heals.windowMs), nowMs];
    this.#subjects.set(subject, known);
    // A repair that was undone again after a pause does not get another five immediate tries.
    if (known.pauseMs === 0 && known.times.length <= heals.most) return 0;
    known.pauseMs = Math.min(Math.max(2 * known.pauseMs, pauses.first), pauses.longest);
    known.untilMs = nowMs + known.pauseMs;
    return known.pauseMs;
  }
}
