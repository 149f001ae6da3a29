import { isRunning } from "../process/process.ts";
import type { ShareServer } from "./servers.ts";

/** What serves a machine's shares, and what of it has ended. */
export class ServedShares {
  readonly #serving: Map<string, ShareServer["record"]>;
  readonly #ended = new Set<string>();

  constructor(servers: readonly ShareServer[]) {
    this.#serving = new Map(servers.map(({ tag, record }) => [tag, record]));
  }

  get any(): boolean {
    return this.#serving.size > 0;
  }

  /** Tags of the shares that nothing serves, as far as was noticed. */
  get ended(): readonly string[] {
    return [...this.#ended];
  }

  /** Looks at the servers; the tags of those that have ended since the last look. */
  look(): readonly string[] {
    const ended = [...this.#serving].filter(
      ([, record]) => record === undefined || !isRunning(record),
    );
    for (const [tag] of ended) {
      this.#serving.delete(tag);
      this.#ended.add(tag);
    }
    return ended.map(([tag]) => tag);
  }
}
