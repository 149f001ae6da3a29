import type { Ip } from "../../core/address.ts";
import { isInternal } from "../../core/special-addresses.ts";
import type { DecisionList } from "../../policy/compile.ts";
import { filterAnswer } from "../../policy/dns-answer.ts";
import { blockedError, decideQuestion } from "../../policy/dns-question.ts";
import { canonicalName, type DomainName } from "../../policy/domain.ts";
import type { HolderId } from "../store/holder.ts";
import type { Query } from "./query.ts";
import { refusedFor, servFail } from "./reply.ts";

/** Which rule decides. */
export interface Why {
  readonly policy: string;
  readonly rule: string;
  readonly reason: string;
}

/** Which names pods and containers may resolve, and where these lead. */
export interface NamePolicies {
  /** What decides about a holder's names; undefined where it may resolve all. */
  of(holder: HolderId): DecisionList | undefined;
  /**
   * Lets a holder reach these addresses by this name, for as many seconds; false when that cannot
   * be, so that it must not get them.
   */
  open(
    holder: HolderId,
    name: DomainName,
    addresses: readonly Ip[],
    seconds: number,
  ): Promise<boolean>;
  /** A holder was not given a name; null for one that is none. */
  denied(holder: HolderId, name: DomainName | null, why: Why): void;
  /** Whether it is noted which names a holder resolves. */
  isLearning(holder: HolderId): boolean;
  /** It has resolved one that `isLearning`. */
  learn(holder: HolderId, name: DomainName, addresses: readonly Ip[]): void;
}

/** The policy of one asker whose names are decided about. */
export class NamePolicy {
  readonly #policies: NamePolicies;
  readonly #holder: HolderId;
  readonly #list: DecisionList;
  readonly #isInside: (ip: Ip) => boolean;

  private constructor(
    policies: NamePolicies,
    holder: HolderId,
    list: DecisionList,
    isInside: (ip: Ip) => boolean,
  ) {
    [this.#policies, this.#holder, this.#list] = [policies, holder, list];
    this.#isInside = (ip) => isInternal(ip) || isInside(ip);
  }

  /** Undefined where the holder may resolve all names. `isInside`: addresses of our networks. */
  static of(
    policies: NamePolicies | undefined,
    holder: HolderId,
    isInside: (ip: Ip) => boolean,
  ): NamePolicy | undefined {
    const list = policies?.of(holder);
    return policies === undefined || list === undefined
      ? undefined
      : new NamePolicy(policies, holder, list, isInside);
  }

  /** The answer to a question for a name that it may not resolve; undefined when it may. */
  refusal(query: Query): Uint8Array | undefined {
    const { verdict, ...why } = decideQuestion(this.#list, nameOf(query));
    return verdict === "allow" ? undefined : this.#refused(query, why);
  }

  /**
   * A server's answer as it is for the asker. Its addresses can be reached by the name before this
   * resolves; where they cannot, the name cannot be resolved now.
   */
  async filtered(query: Query, answer: Uint8Array): Promise<Uint8Array> {
    const found = filterAnswer(answer, query, this.#list, this.#isInside);
    if (found.kind === "unreadable") return servFail(query);
    if (found.kind === "rebinding") {
      const rule = { policy: "podnet", rule: "rebinding" };
      return this.#refused(query, {
        ...rule,
        reason: "the name leads inside, where addresses decide",
      });
    }
    const name = nameOf(query);
    const { addresses, seconds, bytes } = found;
    if (name === undefined || name === null || addresses.length === 0) return bytes;
    const opened = await this.#policies.open(this.#holder, name, addresses, seconds);
    return opened ? bytes : servFail(query);
  }

  #refused(query: Query, why: Why): Uint8Array {
    this.#policies.denied(this.#holder, nameOf(query), why);
    return refused(query, why);
  }
}

const nameOf = ({ name }: Query): DomainName | null => canonicalName(name) ?? null;

const refused = (query: Query, { policy, rule, reason }: Why): Uint8Array =>
  refusedFor(query, {
    code: blockedError,
    text: `policy ${policy}, rule ${rule}: ${reason === "" ? "no reason given" : reason}`,
  });

/** Notes the name that a holder has resolved, while it is learned from. */
export function noteResolved(
  policies: NamePolicies | undefined,
  holder: HolderId,
  query: Query,
  answer: Uint8Array,
): void {
  if (policies?.isLearning(holder) !== true) return;
  const found = filterAnswer(answer, query, everything);
  const name = nameOf(query);
  if (found.kind === "answer" && name !== null && found.addresses.length > 0)
    policies.learn(holder, name, found.addresses);
}

const everything: DecisionList = {
  entries: [],
  otherwise: { policy: "podnet", rule: "default", reason: "", verdict: "allow" },
};
