import { PodnetError } from "../../core/errors.ts";
import { commandName } from "../protocol/codes.ts";
import { abortError } from "../../core/aborting.ts";
import type { GuestTime } from "./guest-time.ts";

export interface Reply {
  readonly kind: "ack" | "error";
  readonly payload: Uint8Array;
}

export interface Asked {
  readonly code: number;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  readonly accepts: ((reply: Reply) => boolean) | undefined;
}

/**
 * Given up, a command keeps its place: its answer will still come, and must not go to the next one.
 */
interface Entry {
  readonly accepts: ((reply: Reply) => boolean) | undefined;
  readonly dueAt: number;
  finish: ((outcome: Reply | PodnetError) => void) | undefined;
}

/** Commands that wait for their answers, oldest first: hyperstart's answers carry no ids. */
export class PendingCommands {
  readonly #time: GuestTime;
  #entries: Entry[] = [];

  constructor(time: GuestTime) {
    this.#time = time;
  }

  get size(): number {
    return this.#entries.length;
  }

  /**
   * The answer to a command just queued. Rejects with `AGENT_TIMEOUT`, `CANCELLED`, or as `failAll`
   * says.
   */
  add({ code, deadlineMs, signal, accepts }: Asked): Promise<Reply> {
    const now = this.#time.now();
    // A command's time begins when those before it have had theirs: the guest works in order.
    const dueAt = Math.max(now, this.#entries.at(-1)?.dueAt ?? 0) + deadlineMs;
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    const giveUp = (error: PodnetError): void => entry.finish?.(error);
    const onAbort = (): void => giveUp(abortError(signal, commandName(code)));
    const timer = this.#time.after(dueAt - now, () =>
      giveUp(
        new PodnetError(
          "AGENT_TIMEOUT",
          `The guest did not answer ${commandName(code)} in ${Math.round(dueAt - now)} ms`,
          { hint: "Look at the guest's console; its agent may hang" },
        ),
      ),
    );
    const entry: Entry = {
      accepts,
      dueAt,
      finish: (outcome) => {
        entry.finish = undefined;
        timer[Symbol.dispose]();
        signal.removeEventListener("abort", onAbort);
        if (outcome instanceof PodnetError) reject(outcome);
        else resolve(outcome);
      },
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#entries.push(entry);
    return promise;
  }

  /** Gives the oldest command its answer; false when it does not take it, or there is none. */
  answer(reply: Reply): boolean {
    const entry = this.#entries[0];
    if (entry === undefined || entry.accepts?.(reply) === false) return false;
    this.#entries.shift();
    entry.finish?.(reply);
    return true;
  }

  failAll(reason: PodnetError): void {
    const entries = this.#entries;
    this.#entries = [];
    for (const entry of entries) entry.finish?.(reason);
  }
}
