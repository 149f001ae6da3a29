import { ipOf } from "../../core/address.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { compile, type Decisions, policiesOf } from "../../policy/compile.ts";
import { type Effect, effectsOf } from "../../policy/effects.ts";
import { type Policy, protocols, type Service } from "../../policy/model.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { listNetworks } from "../networks/store.ts";
import type { Database } from "../store/database.ts";
import { readDocument } from "../../policy/read-document.ts";
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
  /** All pods and containers, where some policy chooses by their labels. */
  readonly pods: readonly Subject[];
  readonly networks: readonly NetworkDefinition[];
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

/**
 * What decides about the flows of pods, computed from rows alone: policies, labels, addresses,
 * networks. It is computed anew after any change of the database, and costs nothing while there is
 * no policy. Other pods are only read where a policy chooses by their labels.
 */
export class PolicyDecisions {
  readonly #db: Database;
  #policies: readonly Policy[] | undefined;
  #decided: Decided | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The decisions about the flows of a pod or container; undefined when it has no policy. */
  of({ kind, key }: FragmentKey): Decisions | undefined {
    if (kind === "network" || this.#all.length === 0) return undefined;
    const decided = this.#now();
    const owner = `${kind} ${key}`;
    if (!decided.byOwner.has(owner)) {
      const subject = subjectOf(this.#db, { kind, key });
      decided.byOwner.set(owner, subject && this.#decide(subject, decided));
    }
    return decided.byOwner.get(owner);
  }

  /** To be called after policies have changed. */
  changed(): void {
    this.#policies = undefined;
    this.#decided = undefined;
  }

  /** Whether decisions depend on the addresses and labels of other pods. */
  get followsPods(): boolean {
    return this.#all.some(namesPods);
  }

  /** Whether some rule has domains. */
  get haveDomains(): boolean {
    return this.#all.some(
      ({ egress }) => egress?.rules.some(({ peers }) => (peers?.domains.length ?? 0) > 0) === true,
    );
  }

  /** What a policy chooses, in the order of what people call it. */
  chosenBy(policy: Policy): Chosen {
    const chosen = listSubjects(this.#db).filter(
      (subject) => policiesOf(subject, [], [policy]).length > 0,
    );
    const shown = (kind: Subject["kind"]): readonly string[] => [
      ...new Set(chosen.filter((each) => each.kind === kind).map((each) => each.shown)),
    ];
    return { pods: shown("pod").toSorted(), containers: shown("attachment").toSorted() };
  }

  /** What pods and containers may do without a policy, or may not any more, by what they are. */
  effectsWithout(name: string): readonly SubjectEffect[] {
    const policy = this.#all.find((each) => each.name === name);
    if (policy === undefined) return [];
    const decided = this.#now();
    const rest = this.#all.filter((each) => each !== policy);
    return listSubjects(this.#db).flatMap((subject) => {
      if (policiesOf(subject, [], [policy]).length === 0) return [];
      const before = this.#decide(subject, decided);
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

  #now(): Decided {
    const { changes } = this.#db.get("SELECT total_changes() AS changes") as { changes: number };
    if (this.#decided?.changes !== changes)
      this.#decided = {
        changes,
        pods: this.followsPods ? listSubjects(this.#db) : [],
        networks: listNetworks(this.#db).map(({ definition }) => definition),
        byOwner: new Map(),
      };
    return this.#decided;
  }

  #decide(
    subject: Subject,
    { pods, networks }: Decided,
    policies: readonly Policy[] = this.#all,
  ): Decisions | undefined {
    const own = policiesOf(subject, [], policies);
    if (own.length === 0) return undefined;
    const joined = networks.filter(({ name }) => subject.networks.includes(name));
    return compile(own, {
      pods,
      host: joined.flatMap(({ subnets }) => subnets.map(({ gateway }) => ipOf(gateway))),
      hostServices: [...hostServices, ...joined.flatMap(openedBy)],
      cloudMetadata: joined.some(({ cloudMetadata }) => cloudMetadata === true),
    });
  }
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
