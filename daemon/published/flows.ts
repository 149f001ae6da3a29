/** Traffic through a pod's ports on loopback since podnetd started. */
export interface FlowCounts {
  /** Connections and UDP sessions that were begun. */
  readonly begun: number;
  /** Flows there are now. */
  readonly active: number;
  /**
   * Connections that were not let in or not taken by the pod, and datagrams that were not passed
   * on.
   */
  readonly refused: number;
  /** Towards pods. */
  readonly bytesIn: number;
  /** From pods. */
  readonly bytesOut: number;
}

/** Connections and UDP sessions one pod may have by loopback; of more, new ones are refused. */
const mostFlows = 1024;

/**
 * The connections and UDP sessions by loopback of one pod, counted, bounded, and ended together.
 */
export class Flows {
  /** How each is ended, with the host port it came by. */
  readonly #ends = new Map<() => void, string>();
  #begun = 0;
  #refused = 0;
  #bytesIn = 0;
  #bytesOut = 0;

  /**
   * Takes a slot, which the returned function gives back; undefined when none is free. `port` is
   * the host port of the connection.
   */
  begin(port: string, end: () => void): (() => void) | undefined {
    if (this.#ends.size >= mostFlows) {
      this.refuse();
      return undefined;
    }
    this.#begun++;
    this.#ends.set(end, port);
    return () => void this.#ends.delete(end);
  }

  refuse(): void {
    this.#refused++;
  }

  passedIn(bytes: number): void {
    this.#bytesIn += bytes;
  }

  passedOut(bytes: number): void {
    this.#bytesOut += bytes;
  }

  /** Ends them all, or those that came by one host port. */
  cut(port?: string): void {
    for (const [end, by] of this.#ends) if (port === undefined || by === port) end();
  }

  get counts(): FlowCounts {
    return {
      begun: this.#begun,
      active: this.#ends.size,
      refused: this.#refused,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
    };
  }
}

export const sumOf = (all: readonly FlowCounts[]): FlowCounts =>
  all.reduce(
    (sum, each) => ({
      begun: sum.begun + each.begun,
      active: sum.active + each.active,
      refused: sum.refused + each.refused,
      bytesIn: sum.bytesIn + each.bytesIn,
      bytesOut: sum.bytesOut + each.bytesOut,
    }),
    { begun: 0, active: 0, refused: 0, bytesIn: 0, bytesOut: 0 },
  );
