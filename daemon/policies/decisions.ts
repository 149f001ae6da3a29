import { ipOf } from "../../core/address.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import type { InlineRules } from "../../api/pod-spec.ts";
import type { PodId } from "../../core/names.ts";
import { compile, type Decisions, policiesOf } from "../../policy/compile.ts";
import { type Effect, effectsOf } from "../../policy/effects.ts";
import { nameOfRules, ownerOfRules, type RulesOwner } from "../../policy/inline.ts";
import { type Policy, protocols, type Rules, type Service } from "../../policy/model.ts";
import { readDocument, readInlineRules } from "../../policy/read-document.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { listNetworks, someNetworkHasRules } from "../networks/store.ts";
import { podHasRules } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { listPolicies } from "./store.ts";
import { listSubjects, type Subject, subjectOf } from "./subjects.ts";

/** Names of pods, and of containers what `Subject.shown` says, that have a policy. */
export interface Chosen {
  readonly pods: readonly string[];
  readonly containers: readonly string[];
}

/** What goes for a pod or container with a rule. */
export interface SubjectEffect extends Effect, Pick<Subject, "kind" | "shown"> {}

/** What was decided in one state of the database. */
interface Decided {
  readonly changes: number;
  /** All pods and containers, once some policy has chosen by their labels. */
  pods?: readonly Subject[];
  /** Once some pod or container may have a policy. */
  networks?: readonly NetworkDefinition[];
  /** Some policy is for all, or some network has rules of its own. */
  readonly shared: boolean;
  readonly byOwner: Map<string, Decisions | undefined>;
}

/** What podnetd serves at the gateways: names, leases, echoes. */
const hostServices: readonly Service[] = [
  { protocol: "udp", ports: { first: 53, last: 53 } },
  { protocol: "tcp", ports: { first: 53, last: 53 } },
  { protocol: "udp", ports: { first: 67, last: 67 } },
  { protocol: "udp", ports: { first: 547, last: 547 } },
  { protocol: "icmp" },
];

/** In the place of stored rules that cannot be read: nothing passes. */
const closed: Rules = {
  default: "deny",
  rules: [{ name: "unreadable", reason: "the stored rules cannot be read", action: "deny" }],
};

/**
 * What decides about the flows of pods, computed from rows alone: policies, labels, addresses,
 * networks, and rules that pods and networks have of their own. It is computed anew after any
 * change of the database. A pod without a policy costs it one short query. Other pods are only read
 * where a policy chooses by their labels.
 */
export class PolicyDecisions {
  readonly #db: Database;
  #policies: readonly Policy[] | undefined;
  #decided: Decided | undefined;
  /** Rules of pods and networks that were decided by, by the names of their policies. */
  readonly #inline = new Map<string, { readonly text: string; readonly policy: Policy }>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** The decisions about the flows of a pod or container; undefined when it has no policy. */
  of({ kind, key }: FragmentKey): Decisions | undefined {
    if (kind === "network") return undefined;
    const decided = this.#now();
    const owner = `${kind} ${key}`;
    if (!decided.byOwner.has(owner)) {
      const may = decided.shared || (kind === "pod" && podHasRules(this.#db, key as PodId));
      const subject = may ? subjectOf(this.#db, { kind, key }) : undefined;
      decided.byOwner.set(owner, subject && this.#decide(subject, decided));
    }
    return decided.byOwner.get(owner);
  }

  /** To be called after policies have changed, and before all holders are decided about anew. */
  changed(): void {
    this.#policies = undefined;
    this.#decided = undefined;
    // What pods have that are gone goes, too: what others have comes back with their decisions.
    this.#inline.clear();
  }

  /** Whether decisions depend on the addresses and labels of other pods, as far as was decided. */
  get followsPods(): boolean {
    return this.#known.some(namesPods);
  }

  /** Whether some rule has domains, as far as was decided. */
  get haveDomains(): boolean {
    return this.#known.some(
      ({ egress }) => egress?.rules.some(({ peers }) => (peers?.domains.length ?? 0) > 0) === true,
    );
  }

  /** What a policy chooses, in the order of what people call it. */
  chosenBy(policy: Policy): Chosen {
    const chosen = listSubjects(this.#db).filter((subject) => isChosen(subject, policy));
    const shown = (kind: Subject["kind"]): readonly string[] => [
      ...new Set(chosen.filter((each) => each.kind === kind).map((each) => each.shown)),
    ];
    return { pods: shown("pod").toSorted(), containers: shown("attachment").toSorted() };
  }

  /** What pods and containers may do without a policy, or may not any more, by what they are. */
  effectsWithout(name: string): readonly SubjectEffect[] {
    const decided = this.#now();
    return listSubjects(this.#db).flatMap((subject) => {
      const all = this.#policiesOf(subject, decided);
      const rest = all.filter((each) => each.name !== name);
      const before = rest.length === all.length ? undefined : this.#decide(subject, decided, all);
      if (before === undefined) return [];
      const { kind, shown } = subject;
      return effectsOf(before, this.#decide(subject, decided, rest), name).map((effect) => ({
        kind,
        shown,
        ...effect,
      }));
    });
  }

  get #all(): readonly Policy[] {
    this.#policies ??= listPolicies(this.#db).map(({ document }) => readDocument(document));
    return this.#policies;
  }

  get #known(): readonly Policy[] {
    return [...this.#all, ...Array.from(this.#inline.values(), ({ policy }) => policy)];
  }

  #now(): Decided {
    const { changes } = this.#db.get("SELECT total_changes() AS changes") as { changes: number };
    if (this.#decided?.changes !== changes)
      this.#decided = {
        changes,
        shared: this.#all.length > 0 || someNetworkHasRules(this.#db),
        byOwner: new Map(),
      };
    return this.#decided;
  }

  #decide(
    subject: Subject,
    decided: Decided,
    policies: readonly Policy[] = this.#policiesOf(subject, decided),
  ): Decisions | undefined {
    if (policies.length === 0) return undefined;
    if (policies.some(namesPods)) decided.pods ??= listSubjects(this.#db);
    const joined = this.#networksOf(subject, decided);
    return compile(policies, {
      pods: decided.pods ?? [],
      host: joined.flatMap(({ subnets }) => subnets.map(({ gateway }) => ipOf(gateway))),
      hostServices: [...hostServices, ...joined.flatMap(openedBy)],
      cloudMetadata: joined.some(({ cloudMetadata }) => cloudMetadata === true),
    });
  }

  /** Its own rules, those of its networks by their names, and the policies that choose it. */
  #policiesOf(subject: Subject, decided: Decided): readonly Policy[] {
    const networks = this.#networksOf(subject, decided).map(({ name, policy }) =>
      this.#inlineOf({ kind: "network", name }, policy),
    );
    const own = this.#inlineOf({ kind: "pod", name: subject.name }, subject.rules);
    const given = [own, ...networks].filter((each) => each !== undefined);
    return policiesOf(subject, given, this.#all);
  }

  #networksOf({ networks }: Subject, decided: Decided): readonly NetworkDefinition[] {
    decided.networks ??= listNetworks(this.#db).map(({ definition }) => definition);
    return decided.networks.filter(({ name }) => networks.includes(name));
  }

  #inlineOf(owner: RulesOwner, rules: InlineRules | undefined): Policy | undefined {
    if (rules === undefined) return undefined;
    const name = nameOfRules(owner);
    const text = JSON.stringify(rules);
    const known = this.#inline.get(name);
    if (known?.text === text) return known.policy;
    const policy = readStored(owner, rules);
    this.#inline.set(name, { text, policy });
    return policy;
  }
}

/** Rules that were read when they were stored. */
function readStored(owner: RulesOwner, rules: InlineRules): Policy {
  try {
    return readInlineRules(rules, owner);
  } catch {
    return { name: nameOfRules(owner), egress: closed, ingress: closed };
  }
}

function isChosen(subject: Subject, policy: Policy): boolean {
  const owner = ownerOfRules(policy.name);
  if (owner === undefined) return policiesOf(subject, [], [policy]).length > 0;
  return owner.kind === "pod"
    ? subject.kind === "pod" && subject.name === owner.name
    : subject.networks.some((name) => name === owner.name);
}

/** What a network opens of the host to its guests. */
const openedBy = ({ hostAccess = [] }: NetworkDefinition): readonly Service[] =>
  hostAccess === "all"
    ? protocols.map((protocol) => ({ protocol }))
    : hostAccess.map(({ protocol, first, last }) => ({ protocol, ports: { first, last } }));

const namesPods = ({ egress, ingress }: Policy): boolean =>
  [egress, ingress].some((rules) =>
    rules?.rules.some(({ peers }) => (peers?.pods.length ?? 0) > 0),
  );
