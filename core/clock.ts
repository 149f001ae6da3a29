/** Time as something passed in, so that tests and the simulation can hold it in their hand. */
export interface Clock {
  /** Wall time in milliseconds since 1970. */
  now(): number;
  /** Milliseconds from an arbitrary start that never go backwards. */
  monotonic(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};
