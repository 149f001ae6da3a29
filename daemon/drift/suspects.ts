/** Parts to inspect next. */
export interface Suspects {
  /** Links named by events. */
  readonly links: Set<string>;
  /** Links with changed queues or filters, by index. */
  readonly queues: Set<number>;
  /**
   * Everything that events could have named: some were lost, or an address changed, which names no
   * link.
   */
  networks: boolean;
  ports: boolean;
  /** Rules and settings too, for which there are no events. */
  rules: boolean;
}

/** Nothing to inspect. */
export const noSuspects = (): Suspects => ({
  links: new Set(),
  queues: new Set(),
  networks: false,
  ports: false,
  rules: false,
});
