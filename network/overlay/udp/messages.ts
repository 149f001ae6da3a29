/** The data that a tunnel's thread is started with. The opener closes the descriptors. */
export interface TunnelStart {
  readonly tun: number;
  readonly socket: number;
  readonly wakeUp: number;
  /** The port that peers listen at. */
  readonly port: number;
  /** The source address of ICMP errors, as a number. */
  readonly answersFrom: number;
  /** The memory for its counters; see `publish`. */
  readonly shared: Float64Array;
}

/** The messages to the thread, each time it is woken. */
export type TunnelMessage =
  | "stop"
  | {
      /**
       * Network, prefix length and host of each: numbers as `PeerTable` and the sockets have them.
       */
      readonly set: readonly (readonly [network: number, length: number, host: number])[];
      readonly remove: readonly (readonly [network: number, length: number])[];
    };

/** All that it says, once; how it ends is an error's message. */
export const ready = "ready";
