import type { Clock } from "../../core/clock.ts";
import type { Asker } from "./fair-shares.ts";
import { isTruncated, type Query, rcodeOf, viewOf, withId } from "./query.ts";
import { timesIn } from "./record-times.ts";

/** Answers that are kept of one asker, and of all. */
const most = { asker: 32, all: 4096 } as const;
/** Longest answer, and question, that is kept, bytes: with the bounds above, some 6 MB at most. */
const longest = { answer: 1232, question: 300 } as const;
/** How long guests may take a stale answer for true, seconds (RFC 8767 section 4). */
const staleTtl = 30;

interface Kept {
  readonly owner: string;
  readonly answer: Uint8Array;
  readonly times: readonly number[];
  readonly keptMs: number;
}

/**
 * The last answers that servers gave each asker, used only when no server answers (RFC 8767). An
 * asker gets only its own earlier answers: it can neither find out the questions of others, nor
 * change their answers.
 */
export class StaleAnswers {
  readonly #clock: Clock;
  readonly #longestMs: number;
  /** By owner and question; what was kept last is last. */
  readonly #kept = new Map<string, Kept>();
  readonly #keysOf = new Map<string, Set<string>>();

  /** Answers older than `longestMs` are not given any more. */
  constructor(clock: Clock, longestMs: number) {
    this.#clock = clock;
    this.#longestMs = longestMs;
  }

  /** Keeps an answer with records that may be kept at all; others leave what was kept before. */
  keep(asker: Asker, query: Query, answer: Uint8Array): void {
    if (answer.length > longest.answer || query.bytes.length > longest.question) return;
    if (rcodeOf(answer) !== 0 || isTruncated(answer)) return;
    const view = viewOf(answer);
    const times = timesIn(answer, query.questionEnd);
    if (times === undefined || view.getUint16(6) === 0) return;
    if (times.some((at) => view.getUint32(at) === 0)) return;
    const owner = ownerOf(asker);
    const key = keyOf(owner, query);
    this.#forget(key);
    const keys = this.#keysOf.get(owner) ?? new Set();
    this.#keysOf.set(owner, keys);
    keys.add(key);
    this.#kept.set(key, { owner, answer, times, keptMs: this.#clock.monotonic() });
    if (keys.size > most.asker) this.#forget(keys.values().next().value);
    if (this.#kept.size > most.all) this.#forget(this.#kept.keys().next().value);
  }

  /** The asker's last answer to exactly this question, with a short TTL. */
  find(asker: Asker, query: Query): Uint8Array | undefined {
    const key = keyOf(ownerOf(asker), query);
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    if (this.#clock.monotonic() - kept.keptMs > this.#longestMs) {
      this.#forget(key);
      return undefined;
    }
    const answer = withId(kept.answer, query.id);
    for (const at of kept.times) viewOf(answer).setUint32(at, staleTtl);
    return answer;
  }

  #forget(key: string | undefined): void {
    const kept = key === undefined ? undefined : this.#kept.get(key);
    if (key === undefined || kept === undefined) return;
    this.#kept.delete(key);
    const keys = this.#keysOf.get(kept.owner);
    keys?.delete(key);
    if (keys?.size === 0) this.#keysOf.delete(kept.owner);
  }
}

const ownerOf = ({ network, holder }: Asker): string => `${network} ${holder}`;

/** All of the question but its id: flags and options change what a server says. */
const keyOf = (owner: string, { bytes }: Query): string =>
  `${owner} ${Buffer.from(bytes.subarray(2)).toString("latin1")}`;
