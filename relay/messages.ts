import type { Ip } from "../core/address.ts";
import type { DecisionList } from "../policy/compile.ts";
import type { Decision } from "../policy/decide.ts";
import type { DomainName } from "../policy/domain.ts";

/** A pod whose connections may be relayed. */
export interface RelayedPod {
  readonly id: string;
  /** Its own addresses: a connection from one of them is the pod's. */
  readonly addresses: readonly Ip[];
  readonly egress: DecisionList;
}

/**
 * What podnetd sends, one JSON text a line. Between `begin` and `commit` stands the whole state:
 * pods that it does not name are gone, in one step. Other messages change it. `seq` of a message is
 * answered with `done` once the message holds.
 */
export type ToRelay = { readonly seq?: number } & (
  | { readonly type: "begin" }
  | { readonly type: "commit" }
  | { readonly type: "pod"; readonly pod: RelayedPod }
  | { readonly type: "gone"; readonly id: string }
  /** The resolver is about to give the pod these addresses of the name. */
  | {
      readonly type: "answer";
      readonly id: string;
      readonly name: DomainName;
      readonly addresses: readonly Ip[];
      readonly seconds: number;
    }
);

/** A decision about connections of a pod that are alike. */
export interface RelayVerdict extends Pick<Decision, "policy" | "rule" | "reason"> {
  readonly pod: string;
  readonly verdict: "allow" | "deny";
  /** Null: they said none, or several that are counted together. */
  readonly name: DomainName | null;
  /** Where they went; absent for several that are counted together. */
  readonly to?: { readonly ip: Ip; readonly port: number };
  /** How many there were since the last report of them. */
  readonly count: number;
}

/** What the relay sends, one JSON text a line. */
export type FromRelay =
  | { readonly type: "done"; readonly seq: number }
  | { readonly type: "verdict"; readonly verdict: RelayVerdict };
