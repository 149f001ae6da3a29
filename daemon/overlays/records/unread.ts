import type { Log } from "../../../linux/log.ts";
import { unreadTexts } from "../trouble-text.ts";

/** What keeps something in etcd from being read or written, alongside that etcd is away. */
export class Unread {
  readonly #log: Pick<Log, "error">;
  /** For people: what is not read. */
  readonly #what: string;
  #troubles: readonly string[] = [];

  constructor(log: Pick<Log, "error">, what: string) {
    this.#log = log;
    this.#what = what;
  }

  /** One line each; none when nothing is in the way. */
  get troubles(): readonly string[] {
    return this.#troubles;
  }

  /** Sets the reasons. Each is logged when it comes. */
  tell(reasons: readonly unknown[]): void {
    const before = this.#troubles;
    this.#troubles = unreadTexts(reasons);
    for (const trouble of this.#troubles)
      if (!before.includes(trouble))
        this.#log.error({}, `Not all of ${this.#what} in etcd can be had: ${trouble}`);
  }
}
