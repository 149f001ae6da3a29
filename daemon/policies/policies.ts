import { setTimeout as delay } from "node:timers/promises";
import type { InlineRules } from "../../api/pod-spec.ts";
import type { Ip } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { guard } from "../../core/guard.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { type PodId, type PodName, printable } from "../../core/names.ts";
import { didYouMean } from "../../core/nearest.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { FragmentKey, PluggedFragment } from "../../network/model/desired.ts";
import { addressesOf } from "../../network/firewall/nftables/policy-table.ts";
import { type DecisionList, type Decisions, namesDecide } from "../../policy/compile.ts";
import { type Decision, decide, type Flow } from "../../policy/decide.ts";
import { decideQuestion } from "../../policy/dns-question.ts";
import type { DomainName } from "../../policy/domain.ts";
import { ownerOfRules, type RulesOwner } from "../../policy/inline.ts";
import type { Policy } from "../../policy/model.ts";
import { inlineDocument, readDocument } from "../../policy/read-document.ts";
import type { RelayedPod, RelayVerdict } from "../../relay/messages.ts";
import type { NamePolicies, Why } from "../dns/name-policy.ts";
import type { Journal } from "../events/journal.ts";
import { podIdByName } from "../pods/store/pods.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { Database } from "../store/database.ts";
import type { HolderId } from "../store/holder.ts";
import type { Chosen, PolicyDecisions, SubjectEffect } from "./decisions.ts";
import { listInlineRules } from "./inline-rules.ts";
import type { Learning } from "./learning.ts";
import { RelayedPods, type RelayProcess } from "./relayed-pods.ts";
import { deletePolicy, listPolicies, type PolicyRow, putPolicy } from "./store.ts";
import type { Denied } from "./verdicts.ts";

/** Milliseconds in which changes of several pods are one change of the rules. */
const gatherMs = 20;
const changeMs = 60_000;
/** Milliseconds until pods are followed again after a failure. */
const followAgainMs = 1000;

export interface PoliciesParts {
  readonly db: Database;
  readonly decisions: PolicyDecisions;
  readonly network: Pick<HostNetwork, "apply" | "remove">;
  /** Pods and containers that may have connections, and those that are about to. */
  readonly holders: () => readonly PluggedFragment[];
  /** The relay's process; without it connections whose name decides stay closed. */
  readonly relay: RelayProcess | undefined;
  /** Stores other rules of a pod's own, or none. */
  readonly setRules: (pod: PodId, rules: InlineRules | undefined) => Promise<unknown>;
  /** Gets what the relay and the resolver deny. */
  readonly denied: (denied: Denied) => void;
  /** Gets the names of what passes. */
  readonly learning: Pick<Learning, "addName">;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}

const degraded = {
  rules: "Failed to write the rules of policies; retrying",
  relay: "Connections whose name decides are closed: there is no relay; retrying",
} as const;
const recovered = {
  rules: "The rules of policies are in force again",
  relay: "The relay passes connections on again",
} as const;

/**
 * The node's policies. A change is stored first, and in force when its call answers; what the host
 * refuses is tried again. Rules that choose pods by label follow those pods.
 */
export class Policies implements AsyncDisposable, Omit<NamePolicies, "isLearning" | "learn"> {
  readonly #parts: PoliciesParts;
  readonly #queue: WorkQueue<"rules" | "relay">;
  readonly #relayed: RelayedPods | undefined;
  readonly #ended = new AbortController();

  constructor(parts: PoliciesParts) {
    this.#parts = parts;
    const { log, clock, relay, denied, learning } = parts;
    this.#queue = new WorkQueue({
      name: "policies",
      backoff: { firstMs: 1000, longestMs: 30_000 },
      onDegraded: (key, { error }) => log.warn({ err: error }, degraded[key]),
      onRecovered: (key) => log.info({}, recovered[key]),
    });
    if (relay === undefined) return;
    this.#relayed = new RelayedPods({
      process: relay,
      clock,
      // (The relay reports ten of a pod in a second at most, and counts the others together.)
      report: (verdict) => {
        const denies = verdict.verdict === "deny";
        log[denies ? "info" : "debug"]({ ...verdict }, "The relay decided about a connection");
        const { pod, name } = verdict;
        if (denies) denied(deniedBy(verdict));
        else if (name !== null) learning.addName(pod, name, []);
      },
      lost: () => this.#queue.add("relay", () => this.#relay()),
    });
  }

  /** All, by name; behind them rules that pods and networks have of their own. */
  list(): readonly PolicyRow[] {
    const { db } = this.#parts;
    return [...listPolicies(db), ...listInlineRules(db)];
  }

  /** Throws `POLICY_NOT_FOUND`. */
  get(name: string): PolicyRow {
    const all = this.list();
    const found = all.find((policy) => policy.name === name);
    if (found !== undefined) return found;
    const names = all.map((policy) => policy.name);
    throw new PodnetError("POLICY_NOT_FOUND", `There is no policy "${printable(name)}"`, {
      field: "name",
      hint: `${didYouMean(name, names)}See podnet policy list`,
    });
  }

  /** The pods and containers that a policy chooses. */
  chosenBy(policy: Policy): Chosen {
    return this.#parts.decisions.chosenBy(policy);
  }

  /** What would become of a flow of a pod or container, by the rules that are in force. */
  explain(owner: FragmentKey, direction: "egress" | "ingress", flow: Flow): Omit<Decision, "by"> {
    const none = { policy: "podnet", rule: "default", reason: "no policy applies" };
    return this.decide(owner, direction, flow) ?? { verdict: "allow", ...none };
  }

  /** What decides about the flows of a pod or container; undefined where no policy applies. */
  decisionsOf(owner: FragmentKey): Decisions | undefined {
    return this.#parts.decisions.of(owner);
  }

  /** The decision about a flow of a pod or container; undefined where no policy applies. */
  decide(owner: FragmentKey, direction: "egress" | "ingress", flow: Flow): Decision | undefined {
    const decisions = this.decisionsOf(owner);
    return decisions === undefined ? undefined : decided(decisions[direction], flow);
  }

  /**
   * Reads a policy that is to be applied. Throws as `readDocument` does, `POD_NOT_FOUND` for rules
   * of a pod there is not, and `UNSUPPORTED` for those of a network.
   */
  plan(document: unknown): Policy {
    const policy = readDocument(document);
    const owner = ownerOfRules(policy.name);
    if (owner !== undefined) this.#podOf(owner);
    return policy;
  }

  /** Makes or replaces a policy. Throws as `plan` does, and what the host refuses. */
  async apply(document: unknown): Promise<Policy> {
    const { journal, db, clock, setRules } = this.#parts;
    const policy = this.plan(document);
    const inline = inlineDocument(document);
    if (inline === undefined)
      journal.transact("policy", () => putPolicy(db, policy.name, document, clock.now()));
    else await setRules(this.#podOf(inline.owner), inline.rules);
    await this.changed();
    return policy;
  }

  /** What a policy's end would open or close. */
  effectsWithout(name: string): readonly SubjectEffect[] {
    return this.#parts.decisions.effectsWithout(name);
  }

  /** Whether there was one. What an earlier change could not do is tried again in either case. */
  async delete(name: string): Promise<boolean> {
    const { journal, db, setRules } = this.#parts;
    if (!this.list().some((policy) => policy.name === name)) {
      if (!this.#queue.degraded().next().done) await this.changed();
      return false;
    }
    const owner = ownerOfRules(name);
    if (owner === undefined) journal.transact("delete policy", () => deletePolicy(db, name));
    else await setRules(this.#podOf(owner), undefined);
    await this.changed();
    return true;
  }

  /** Writes what decides, after policies or rules of a network have changed in the database. */
  async changed(): Promise<void> {
    this.#parts.decisions.changed();
    // Either is tried again by itself, whatever becomes of the other.
    await Promise.all([this.#queue.run("rules", () => this.#write()), this.#follows()]);
  }

  /** Writes what decides after labels of a pod have changed, by which policies may choose it. */
  async labelled(): Promise<void> {
    if (this.list().length > 0) await this.changed();
  }

  /**
   * After a start, once all pods and containers are known: rules that changed meanwhile are
   * written, and rules follow pods from now on.
   */
  start(): void {
    if (this.list().length > 0) this.#queue.add("rules", () => this.#write());
    // An earlier podnetd may have left one, whether it is wanted still or not.
    this.#queue.add("relay", () => this.#relay());
    void guard("policies", () => this.#follow());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    this.#relayed?.[Symbol.dispose]();
    await this.#queue[Symbol.asyncDispose]();
  }

  of(holder: HolderId): DecisionList | undefined {
    const { decisions } = this.#parts;
    const own =
      decisions.of({ kind: "pod", key: holder }) ??
      decisions.of({ kind: "attachment", key: holder });
    const egress = own?.egress;
    return egress !== undefined && namesDecide(egress) ? egress : undefined;
  }

  async open(
    holder: HolderId,
    name: DomainName,
    addresses: readonly Ip[],
    seconds: number,
  ): Promise<boolean> {
    const relayed = this.#relayed;
    // The pod, or the relay, has come a moment ago. (Where there is none, it is tried in its time.)
    if (relayed?.has(holder) === false && this.#queue.condition("relay").status === "ok")
      await this.#follows().catch(() => {});
    return (await relayed?.answer(holder, name, addresses, seconds)) === true;
  }

  denied(holder: HolderId, name: DomainName | null, { policy, rule, reason }: Why): void {
    const why = { direction: "egress", policy, rule, reason } as const;
    this.#parts.denied({ holder, ...why, unit: "questions", count: 1, ...(name && { name }) });
  }

  #podOf({ kind, name }: RulesOwner): PodId {
    if (kind === "network")
      throw new PodnetError("UNSUPPORTED", "Rules of a network change with the network", {
        field: "name",
        hint: `podnet network update ${printable(name)} --policy FILE, or --policy none`,
      });
    const id = podIdByName(this.#parts.db, name as PodName);
    if (id !== undefined) return id;
    throw new PodnetError("POD_NOT_FOUND", `There is no pod "${printable(name)}"`, {
      field: "name",
      hint: "See podnet list",
    });
  }

  #follows(): Promise<void> {
    return this.#queue.run("relay", () => this.#relay());
  }

  /** The relay's part: whose connections it takes, and what decides about them. */
  async #relay(): Promise<void> {
    const { holders } = this.#parts;
    await this.#relayed?.set(
      holders().flatMap((pod): RelayedPod[] => {
        const egress = this.of(pod.key as HolderId);
        if (egress === undefined) return [];
        const addresses = addressesOf(pod).map(({ address }) => address);
        return [{ id: pod.key, addresses: [...new Set(addresses)], egress }];
      }),
    );
  }

  async #write(): Promise<void> {
    const { network, holders, decisions } = this.#parts;
    decisions.changed();
    const signal = AbortSignal.any([this.#ended.signal, AbortSignal.timeout(changeMs)]);
    await network.apply({ kind: "policies", now: holders }, signal);
    await network.remove({ kind: "denied-connections", of: holders() }, signal);
  }

  /** An event of any pod may have changed an address or a label that rules choose by. */
  async #follow(): Promise<void> {
    const { journal, decisions, log } = this.#parts;
    const { signal } = this.#ended;
    while (!signal.aborted) {
      try {
        for await (const _event of journal.watch(journal.newest, signal)) {
          if (decisions.followsPods) this.#queue.add("rules", () => this.#write(), gatherMs);
          if (decisions.haveDomains) this.#queue.add("relay", () => this.#relay(), gatherMs);
        }
      } catch (thrown) {
        // One that fell too far behind finds in the rows what it has missed.
        if (!isPodnetError(thrown, "EVENTS_LOST")) {
          log.warn({ err: thrown }, "Failed to follow pods for their policies; retrying");
          await delay(followAgainMs, undefined, { signal }).catch(() => {});
        }
        this.#queue.add("rules", () => this.#write());
        this.#queue.add("relay", () => this.#relay());
      }
    }
  }
}

function deniedBy({ pod: holder, policy, rule, reason, name, to, count }: RelayVerdict): Denied {
  return {
    holder,
    direction: "egress",
    policy,
    rule,
    reason,
    unit: "connections",
    count,
    protocol: "tcp",
    ...(name && { name }),
    ...(to && { address: to.ip, port: to.port }),
  };
}

/**
 * A name that the pod may not resolve is not reached at any address. What the resolver answers in
 * place of another server is closed to the pod.
 */
function decided(list: DecisionList, flow: Flow): Decision {
  const { name } = flow;
  const asked = name === undefined ? undefined : decideQuestion(list, name);
  if (asked?.verdict === "deny") return { ...asked, verdict: "deny", by: "name" };
  const decision = decide(list, flow);
  return decision.verdict === "resolver" ? { ...decision, verdict: "deny" } : decision;
}
