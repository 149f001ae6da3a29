/** What is taken away by a fault. */
export type Kind =
  /** A step of an undo, or its going on. */
  | "undo"
  /** What keeps two from doing the same at once. */
  | "lock"
  /** A length, a count or a time that a caller, guest or peer could exceed. */
  | "bound"
  /** Something held that is to be let go of. */
  | "release"
  /** The marks that distinguish our objects from foreign ones, and from each other. */
  | "mark"
  /** The order in which something becomes durable, and what is remembered. */
  | "record"
  /** Who may do what, and what a machine is shut in by. */
  | "access"
  /** How a text may be shown. */
  | "escape"
  /** What is noticed, and put right. */
  | "repair";

/** A fault to plant: one piece of one file, written differently. */
export interface Fault {
  readonly kind: Kind;
  /** What is missing or wrong with it, in words. */
  readonly name: string;
  readonly file: string;
  /** Must stand in the file exactly once. */
  readonly find: string;
  readonly put: string;
  /** What has to be built of the sources for the fault to be in it. */
  readonly build?: "jail" | "agent" | "image";
  /** The test that has to fail while the fault is there. It passes without the fault. */
  readonly noticedBy: { readonly file: string; readonly title: string };
  /**
   * How that test shows the fault when it does not fail by itself: "hang" when it never ends (what
   * it waits for does not come), "end" when the test process ends (the fault throws where no test
   * can catch it). Without this only a failure counts.
   */
  readonly shows?: "hang" | "end";
  /** That takes more than some three seconds, or ends by hanging: for complete runs alone. */
  readonly slow?: true;
}
