import type { Log } from "../../../linux/log.ts";
import { unreadTexts } from "../trouble-text.ts";

/** The reasons, other than an unreachable etcd, why something in etcd cannot be read or written. */
export class Unread {
  readonly #log: Pick<Log, "error">;
  /** What is not read, for messages. */
  readonly #what: string;
  #troubles: readonly string[] = [];

  constructor(log: Pick<Log, "error">, what: string) {
    this.#log = log;
    this.#what = what;
  }

  /** The problems, one line each. */
  get troubles(): readonly string[] {
    return this.#troubles;
  }

  /** Sets the reasons. Each is logged when it comes. */
  set(reasons: readonly unknown[]): void {
    const before = this.#troubles;
    this.#troubles = unreadTexts(reasons);
    for (const trouble of this.#troubles)
      if (!before.includes(trouble))
        this.#log.error({}, `Not all of ${this.#what} in etcd can be had: ${trouble}`);
  }
}
