/** The counters of a tunnel since it was opened, in IP packets, of which each datagram has one. */
const counterNames = [
  "sentPackets",
  "sentBytes",
  "receivedPackets",
  "receivedBytes",
  /** Came as no whole IPv4 packet. */
  "malformed",
  /** Had no hop left, in or out. */
  "expired",
  /** Packets to a part of the overlay without a host; their sender gets an ICMP error. */
  "unroutable",
  /** The way to the peer would not take them. */
  "lost",
  /** This host's kernel would not take them. */
  "undelivered",
  /** Left this host as no IPv4 packet. */
  "unsendable",
] as const;

type CounterName = (typeof counterNames)[number];
export type Counters = Record<CounterName, number>;

export const noCounters = (): Counters =>
  Object.fromEntries(counterNames.map((name) => [name, 0])) as Counters;

/** Packets that went no further, by why. */
export const dropsOf = (counters: Counters): Readonly<Partial<Counters>> =>
  Object.fromEntries(
    counterNames
      .filter((name) => !/^(?:sent|received)/.test(name))
      .map((name) => [name, counters[name]]),
  );

/** The memory in which the counting thread publishes them. */
export const sharedCounters = (): Float64Array<SharedArrayBuffer> =>
  new Float64Array(new SharedArrayBuffer(counterNames.length * 8));

export function publish(counters: Counters, shared: Float64Array): void {
  for (let i = 0; i < counterNames.length; i++)
    shared[i] = counters[counterNames[i] as CounterName];
}

export const published = (shared: Float64Array): Counters =>
  Object.fromEntries(counterNames.map((name, i) => [name, shared[i] ?? 0])) as Counters;
