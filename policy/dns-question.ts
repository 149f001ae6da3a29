import { type DecisionList, encryptedDnsFloor, type Entry, namesDecide } from "./compile.ts";
import type { Decision } from "./decide.ts";
import { type DomainName, matchesDomain } from "./domain.ts";
import { isEncryptedDns } from "./encrypted-dns.ts";

/** The extended error "Blocked" (RFC 8914 section 4.16): the operator's policy refuses the name. */
export const blockedError = 15;

/** Whether the resolver asks for a name, and the rule that says so. */
export type QuestionDecision = Pick<Decision, "policy" | "rule" | "reason"> & {
  readonly verdict: "allow" | "deny";
};

/**
 * Decides whether a pod may ask for a name, whatever the type of record: a question is itself a way
 * out, to whoever serves the name. It is allowed when some connection to the name could be. A name
 * that is no host's (null) has no rule, as have reverse names. Rules for addresses do not count
 * here. A known server of DNS over HTTPS needs a rule that has its very name. Names of pods are
 * podnet's own, and are not decided here. Pure.
 */
export function decideQuestion(list: DecisionList, name: DomainName | null): QuestionDecision {
  const { entries, otherwise } = list;
  // Where no rule has names, they are not looked at.
  if (!namesDecide(list))
    return {
      policy: otherwise.policy,
      rule: otherwise.rule,
      reason: "no rule has domains",
      verdict: "allow",
    };
  const deciding = entries.find((entry) => decides(entry, name)) ?? otherwise;
  const isHidden = name !== null && isEncryptedDns(name) && !isNamed(deciding, name);
  const { policy, rule, reason, verdict } =
    isHidden && deciding.verdict === "allow" ? encryptedDnsFloor : deciding;
  return { policy, rule, reason, verdict: verdict === "allow" ? "allow" : "deny" };
}

/** Whether an entry has the name itself, and not only a pattern of it. */
const isNamed = ({ to }: Partial<Entry>, name: DomainName): boolean =>
  to?.domains.some((pattern) => !pattern.below && pattern.name === name) === true;

function decides({ to, services, verdict }: Entry, name: DomainName | null): boolean {
  // Entries that send flows elsewhere, or close single services, leave the name open.
  if (verdict !== "allow" && (verdict !== "deny" || services !== undefined)) return false;
  if (to === undefined) return true;
  return name !== null && to.domains.some((pattern) => matchesDomain(pattern, name));
}
