import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { compile, type Decisions, policiesOf } from "../../policy/compile.ts";
import { type Policy, protocols, type Service } from "../../policy/model.ts";
import type { PodFacts } from "../../policy/selector.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { listNetworks } from "../networks/store.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { getPod, listPods } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { readDocument } from "./read-document.ts";
import { listPolicies } from "./store.ts";

/** A pod with what policies look at. */
interface Subject extends PodFacts {
  readonly networks: readonly NetworkName[];
}

/** What was decided in one state of the database. */
interface Decided {
  readonly changes: number;
  /** All pods, where some policy chooses by their labels. */
  readonly pods: readonly Subject[];
  readonly networks: readonly NetworkDefinition[];
  readonly byPod: Map<string, Decisions | undefined>;
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

  /**
   * The decisions about a pod's flows; undefined when it has no policy. Containers have none yet.
   */
  of({ kind, key }: FragmentKey): Decisions | undefined {
    if (kind !== "pod" || this.#all.length === 0) return undefined;
    const decided = this.#now();
    if (!decided.byPod.has(key)) {
      const row = getPod(this.#db, key as PodId);
      const decisions = row === undefined ? undefined : this.#decide(subjectOf(row), decided);
      decided.byPod.set(key, decisions);
    }
    return decided.byPod.get(key);
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

  /** The names of the pods that a policy chooses, in order. */
  chosenBy(policy: Policy): readonly string[] {
    return listPods(this.#db)
      .map(subjectOf)
      .filter((subject) => policiesOf(subject, [], [policy]).length > 0)
      .map(({ name }) => name)
      .toSorted();
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
        pods: this.followsPods ? listPods(this.#db).map(subjectOf) : [],
        networks: listNetworks(this.#db).map(({ definition }) => definition),
        byPod: new Map(),
      };
    return this.#decided;
  }

  #decide(subject: Subject, { pods, networks }: Decided): Decisions | undefined {
    const own = policiesOf(subject, [], this.#all);
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

function subjectOf({ name, spec, plan }: PodRow): Subject {
  const given = plan.interfaces.filter(({ network }) => network !== undefined);
  return {
    name,
    labels: spec.labels,
    addresses: given.flatMap(({ addresses }) => addresses.map((prefix): Ip => ipOf(prefix))),
    networks: given.flatMap(({ network }) => network ?? []),
  };
}
