import { randomBytes } from "node:crypto";
import { PodnetError } from "../../../core/errors.ts";

/** How long a URL is good for, milliseconds. */
const validMs = 60_000;
/** URLs that were given out and not used yet. */
const most = 1000;

/** What was asked for, until the caller comes to its URL: once, and within a minute. */
export class Tokens<T> {
  readonly #all = new Map<string, { readonly value: T; readonly untilMs: number }>();
  readonly #now: () => number;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Throws `LIMIT_REACHED`. */
  give(value: T): string {
    this.#dropLate();
    if (this.#all.size >= most)
      throw new PodnetError("LIMIT_REACHED", `${most} streams were asked for and not opened`, {
        hint: "Open them, or wait a minute",
        details: { limit: most },
      });
    const token = randomBytes(24).toString("base64url");
    this.#all.set(token, { value, untilMs: this.#now() + validMs });
    return token;
  }

  /** What a token stands for, the first time that it is used; undefined when it is of no use. */
  take(token: string): T | undefined {
    this.#dropLate();
    const found = this.#all.get(token);
    this.#all.delete(token);
    return found?.value;
  }

  /** They end in the order of their making. */
  #dropLate(): void {
    for (const [token, { untilMs }] of this.#all) {
      if (untilMs > this.#now()) return;
      this.#all.delete(token);
    }
  }
}
