import type { InlineRules } from "../../api/pod-spec.ts";
import { nameOfRules, type RulesOwner } from "../../policy/inline.ts";
import { documentOf } from "../../policy/read-document.ts";
import { listNetworks } from "../networks/store.ts";
import { listPodsWithRules } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import type { PolicyRow } from "./store.ts";

/** The rules that pods and networks have of their own, as policies, by name. */
export const listInlineRules = (db: Database): readonly PolicyRow[] =>
  [
    ...listPodsWithRules(db).flatMap(({ name, spec, createdMs }) =>
      rowOf({ kind: "pod", name }, spec.policy, createdMs),
    ),
    ...listNetworks(db).flatMap(({ definition: { name, policy }, createdMs }) =>
      rowOf({ kind: "network", name }, policy, createdMs),
    ),
  ].toSorted((one, other) => (one.name < other.name ? -1 : 1));

const rowOf = (
  owner: RulesOwner,
  rules: InlineRules | undefined,
  createdMs: number,
): readonly PolicyRow[] =>
  rules === undefined
    ? []
    : [{ name: nameOfRules(owner), document: documentOf(owner, rules), createdMs }];
