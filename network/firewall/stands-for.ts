import { dropKindOf } from "../model/drop-kinds.ts";
import { parseOwner } from "../model/ownership.ts";
import { mainTable, tableMark } from "./nftables/base.ts";
import { modelOf } from "./nftables/guard-tables.ts";
import { policedPortsTable } from "./nftables/policed-ports.ts";
import { policyTable } from "./nftables/policy-table.ts";
import { publishedTable } from "./nftables/published-table.ts";
import { bridgeGuard } from "./nftables/port-guard.ts";
import { hostGuard } from "./nftables/host-guard.ts";
import { sendersTable } from "./nftables/senders-table.ts";
import { sharesTable } from "./nftables/shares-table.ts";
import type { RuleText } from "./rule-texts.ts";
import { openedMark } from "./traffic.ts";

/** A rule that a packet matched. */
export interface MatchedRule extends RuleText {
  /** Family and name of its table. */
  readonly table: string;
  /** The packet's mark, by which the guard counts what it drops. */
  readonly mark?: number;
}

/** A rule's part in podnet by what it does, the first that fits. */
type Meanings = readonly (readonly [does: RegExp, means: string])[];

/** Rules that count and answer what the policy's rule before them has denied. */
export const denial = "denial";

/** By table; as a computed trace calls it (`daemon/trace/path.ts`), where that has a name. */
const meanings: Readonly<Record<string, Meanings>> = {
  [hostGuard.name]: [
    [/@host_ports/, "host_access"],
    [/@dns[46]/, "names"],
    [/echo-request|icmpv6/, "ping"],
    [/^ct /, "answers"],
    [/@refused|reject|drop/, "host"],
    [/./, "guard of the host"],
  ],
  [sharesTable.name]: [
    [/@exceeded|reject|drop/, "connections"],
    [/./, "share of connections"],
  ],
  [policedPortsTable.name]: [[/./, "policy: between ports"]],
  [sendersTable.name]: [[/./, "overlay"]],
  [publishedTable.name]: [
    [/masquerade/, "hairpin"],
    [/./, "published"],
  ],
  [policyTable.name]: [
    [/@relay/, "relay"],
    [/@holder|@denied|mark set 0|reject/, denial],
    [/./, "policy"],
  ],
  [mainTable.name]: [
    [/dnat .*map/, "published"],
    [/@opened|@translated|@translating/, "published"],
    [/established/, "answers"],
    [/@within/, "within its network"],
    [/@apart/, "isolated"],
    [/@admitting/, "admit"],
    [/@hairpin|dnat .*@own/, "hairpin"],
    [/@masqueraded/, "masquerade"],
    [/@lease|@admitted|@shown|@trusted|@inside|@randomly|@plainly|overlays|mark/, "overlay"],
    [/jump published/, "published"],
    [/drop|jump/, "networks"],
    [/./, "NAT"],
  ],
};

/** The rules of iptables that are a network's, a pod's or an overlay's. */
const ofIptables: Meanings = [
  [/-j (?:DNAT|REDIRECT)/, "published"],
  [/-j MASQUERADE/, "masquerade"],
  [/ESTABLISHED/, "answers"],
  [/--ctstate DNAT/, "published"],
  [new RegExp(`--mark ${openedMark}/`), "published"],
  [/! -i .*-j DROP/, "networks"],
  [/-j DROP/, "isolated"],
  [/-s .*-j ACCEPT/, "admit"],
  [/--dst-type LOCAL/, "published"],
  [/./, "networks"],
];

/**
 * What a rule of podnet stands for: the guard and the kind that it drops, a policy and its rule,
 * what lets packets into networks, NAT. `entryOf` has the rule of a policy that stands at a place
 * of a chain. Empty for a rule of another program. Pure.
 */
export function standsFor(
  rule: MatchedRule,
  entryOf: (chain: string, place: number) => string | undefined,
): string {
  const { table, comment = "", text } = rule;
  if (!comment.startsWith(tableMark)) {
    const owner = parseOwner(comment);
    if (owner === undefined) return "";
    if (owner.kind === "overlay") return "overlay";
    const means = meaningIn(ofIptables, text);
    return means === "masquerade" && owner.kind !== "network" ? "hairpin" : means;
  }
  const [, chain = "", place = ""] = /:(policy_[0-9a-f]+):(\d{1,6})\//.exec(comment) ?? [];
  if (chain !== "") return entryOf(chain, Number(place)) ?? "policy";
  if (table === bridgeGuard.name) return guardOf(rule);
  const own = meanings[table];
  if (own === undefined) return "";
  const stands = placeIn(comment);
  const means = meaningIn(own, modelText(table, stands) ?? text);
  // The guard of the host refuses in two chains by rules of one text.
  return means === "host" && stands?.chain === "metadata" ? "cloud-metadata" : means;
}

const meaningIn = (all: Meanings, text: string): string =>
  all.find(([does]) => does.test(text))?.[1] ?? "";

interface Place {
  readonly chain: string;
  readonly rule: number;
}

/** Where a rule of ours stands, as its comment says. */
function placeIn(comment: string): Place | undefined {
  const [, chain = "", rule] = /:([a-z0-9_]+):(\d{1,3})$/.exec(comment) ?? [];
  return rule === undefined ? undefined : { chain, rule: Number(rule) };
}

/** The rule as podnet wrote it. Undefined for one of another version of podnet. */
const modelText = (table: string, place: Place | undefined): string | undefined =>
  place && modelOf(table).chains[place.chain]?.rules[place.rule];

function guardOf({ table, comment = "", text, mark = 0 }: MatchedRule): string {
  const written = modelText(table, placeIn(comment)) ?? text;
  const [, number] = /mark set (\d+) goto dropped/.exec(written) ?? [];
  const isDropped = comment.includes(":dropped:");
  const kind = dropKindOf(number === undefined ? (isDropped ? mark : 0) : Number(number));
  return kind === undefined ? "guard" : `guard: ${kind}`;
}
