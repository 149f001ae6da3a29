import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { compile, type Decisions, policiesOf } from "../../policy/compile.ts";
import type { Policy, Service } from "../../policy/model.ts";
import type { PodFacts } from "../../policy/selector.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { listNetworks } from "../networks/store.ts";
import { listPods } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { readDocument } from "./read-document.ts";
import { listPolicies } from "./store.ts";

/** A pod with what policies look at. */
interface Subject extends PodFacts {
  readonly id: PodId;
  readonly networks: readonly NetworkName[];
}

/** Everything that decisions are made of, as of one state of the database. */
interface Known {
  readonly changes: number;
  readonly policies: readonly Policy[];
  readonly networks: readonly NetworkDefinition[];
  readonly subjects: readonly Subject[];
  readonly byId: ReadonlyMap<string, Subject>;
  readonly decided: Map<string, Decisions | undefined>;
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
 * What decides about the flows of pods, computed from rows alone: policies, labels,
 * addresses, networks. It is computed anew after any change of the database, and costs nothing
 * while there is no policy.
 */
export class PolicyDecisions {
  readonly #db: Database;
  #some: boolean | undefined;
  #known: Known | undefined;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * The decisions about a pod's flows; undefined when it has no policy. Containers have none yet.
   */
  of({ kind, key }: FragmentKey): Decisions | undefined {
    this.#some ??= listPolicies(this.#db).length > 0;
    if (!this.#some || kind !== "pod") return undefined;
    const known = this.#now();
    if (known.decided.has(key)) return known.decided.get(key);
    const subject = known.byId.get(key);
    const decisions = subject === undefined ? undefined : decide(subject, known);
    known.decided.set(key, decisions);
    return decisions;
  }

  /** To be called after policies have changed. */
  changed(): void {
    this.#some = undefined;
    this.#known = undefined;
  }

  /** Whether decisions depend on the addresses and labels of other pods. */
  get followsPods(): boolean {
    this.#some ??= listPolicies(this.#db).length > 0;
    return this.#some && this.#now().policies.some(namesPods);
  }

  /** The names of the pods that a policy chooses, in order. */
  chosenBy(policy: Policy): readonly string[] {
    return this.#now()
      .subjects.filter((subject) => policiesOf(subject, [], [policy]).length > 0)
      .map(({ name }) => name)
      .toSorted();
  }

  #now(): Known {
    const { changes } = this.#db.get("SELECT total_changes() AS changes") as { changes: number };
    if (this.#known?.changes === changes) return this.#known;
    const subjects = subjectsIn(this.#db);
    this.#known = {
      changes,
      policies: listPolicies(this.#db).map(({ document }) => readDocument(document)),
      networks: listNetworks(this.#db).map(({ definition }) => definition),
      subjects,
      byId: new Map(subjects.map((subject) => [subject.id, subject])),
      decided: new Map(),
    };
    return this.#known;
  }
}

const namesPods = ({ egress, ingress }: Policy): boolean =>
  [egress, ingress].some((rules) =>
    rules?.rules.some(({ peers }) => (peers?.pods.length ?? 0) > 0),
  );

function decide(subject: Subject, { policies, networks, subjects }: Known): Decisions | undefined {
  const own = policiesOf(subject, [], policies);
  if (own.length === 0) return undefined;
  const joined = networks.filter(({ name }) => subject.networks.includes(name));
  return compile(own, {
    pods: subjects,
    host: joined.flatMap(({ subnets }) => subnets.map(({ gateway }) => ipOf(gateway))),
    hostServices,
    cloudMetadata: joined.some(({ cloudMetadata }) => cloudMetadata === true),
  });
}

function subjectsIn(db: Database): readonly Subject[] {
  return listPods(db).map(({ id, name, spec, plan }): Subject => {
    const given = plan.interfaces.filter(({ network }) => network !== undefined);
    return {
      id,
      name,
      labels: spec.labels,
      addresses: given.flatMap(({ addresses }) => addresses.map((prefix): Ip => ipOf(prefix))),
      networks: given.flatMap(({ network }) => network ?? []),
    };
  });
}
