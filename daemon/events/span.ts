/** One finished step of bringing a pod up. */
export interface Span {
  /** e.g. `vm.start` */
  readonly step: string;
  /** Milliseconds since the request arrived. */
  readonly startMs: number;
  readonly durationMs: number;
  /** For people, e.g. `192.168.123.2/24 on hyper0`; may be empty. */
  readonly detail: string;
}
