import type { Podnet } from "../../../api/client.ts";

/** A field that is not as the file says. */
export interface Change {
  readonly field: string;
  /** Empty: it is not there yet. */
  readonly was: string;
  /** Empty: it goes. */
  readonly becomes: string;
  /** Why podnet cannot change it, and what to do instead. */
  readonly refused?: string;
}

/** A call that brings what exists nearer to the file. */
export type Step = (podnet: Podnet, signal: AbortSignal) => Promise<unknown>;

/** What a document of the file means for what exists. */
export interface Item {
  readonly kind: "network" | "policy" | "pod";
  readonly name: string;
  readonly action: "create" | "change" | "unchanged";
  readonly changes: readonly Change[];
  readonly steps: readonly Step[];
}

/** What documents before one bring, once they are applied. */
export interface ToCome {
  readonly pods: ReadonlySet<string>;
  readonly networks: ReadonlyMap<string, "create" | "change">;
}

/** What a document asks of something that exists. */
export const changed = (
  kind: Item["kind"],
  name: string,
  { changes, steps }: Pick<Item, "changes" | "steps">,
): Item => ({
  kind,
  name,
  action: changes.length === 0 ? "unchanged" : "change",
  changes,
  steps,
});
