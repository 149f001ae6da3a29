import { isPodnetError } from "../../core/errors.ts";
import type { Nftables } from "../../linux/nftables/libnftables.ts";
import type { TraceMessage } from "../../linux/nftrace/message.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import { commentOf } from "./iptables/rule.ts";
import { parseSave } from "./iptables/save-format.ts";
import { entriesOf, objectOf } from "./nftables/listing.ts";

/** A rule of any program. */
export interface RuleText {
  /** As nft writes it without its comment; as iptables does in its tables. */
  readonly text: string;
  readonly comment?: string;
}

export type ChainPlace = Pick<TraceMessage, "family" | "table" | "chain">;

/** Tables of these names and the families `ip` and `ip6` are iptables-nft's. */
const tablesOfIptables = ["filter", "nat", "mangle", "raw", "security"];

/**
 * The rules of a chain, by the handles that the kernel gave them; none where the chain is gone, or
 * has a name that nft does not read. Throws `CANCELLED`, `FIREWALL_FAILED`.
 */
export async function ruleTexts(
  nftables: Pick<Nftables, "list">,
  programs: Pick<HostKernel, "iptables" | "ip6tables">,
  { family, table, chain }: ChainPlace,
  signal: AbortSignal,
): Promise<ReadonlyMap<bigint, RuleText>> {
  // Another program may have given a table any name: it must not end the command.
  if (![table, chain].every((name) => /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name))) return new Map();
  const place = `${family} ${table} ${chain}`;
  const isIptables = family === "ip" || family === "ip6";
  if (!isIptables || !tablesOfIptables.includes(table))
    return parseRuleTexts(await listed(nftables, place, "text"));
  // nft shows less of these rules than iptables does, and in one order.
  const handles = handlesIn(await listed(nftables, place, "json"));
  const program = family === "ip" ? programs.iptables : programs.ip6tables;
  const saved = await program.save("nft", signal, table).catch((error: unknown) => {
    // It need not be installed.
    if (isPodnetError(error, "CANCELLED")) throw error;
    return "";
  });
  const rules = (parseSave(saved).get(table)?.rules ?? []).filter((rule) => rule.chain === chain);
  if (rules.length !== handles.length) return new Map();
  return new Map(
    handles.map((handle, i) => {
      const { text = "", args = [] } = rules[i] ?? {};
      const comment = commentOf(args);
      return [handle, { text, ...(comment === undefined ? {} : { comment }) }];
    }),
  );
}

/** Empty where there is no such chain. */
async function listed(
  nftables: Pick<Nftables, "list">,
  chain: string,
  as: "json" | "text",
): Promise<string> {
  try {
    return await nftables.list("list chain", `list chain ${chain}`, as);
  } catch (error) {
    const said = isPodnetError(error, "FIREWALL_FAILED") ? String(error.details["nft"] ?? "") : "";
    if (said.includes("No such file or directory")) return "";
    throw error;
  }
}

const handlesIn = (json: string): readonly bigint[] =>
  (json === "" ? [] : entriesOf(json)).flatMap(({ rule }) => {
    const handle = objectOf(rule)?.["handle"];
    return typeof handle === "number" && Number.isSafeInteger(handle) ? [BigInt(handle)] : [];
  });

/**
 * Parses what `list chain` prints as text with handles: a rule begins behind two tabs and ends with
 * its handle, maybe some lines later. Unknown text is skipped. Pure.
 */
export function parseRuleTexts(text: string): ReadonlyMap<bigint, RuleText> {
  const rules = new Map<bigint, RuleText>();
  let rule: string | undefined;
  for (const line of text.split("\n")) {
    if (rule === undefined && !line.startsWith("\t\t")) continue;
    rule = rule === undefined ? line.trim() : `${rule} ${line.trim()}`;
    const [, words, handle] = /^(.*) # handle (\d{1,20})$/.exec(rule) ?? [];
    if (words === undefined || handle === undefined) {
      // The hook of the chain.
      if (/^type .*;$/.test(rule)) rule = undefined;
      continue;
    }
    const [, body = words, comment] = /^(.*?) ?comment "([^"]*)"$/.exec(words) ?? [];
    rules.set(BigInt(handle), { text: body, ...(comment === undefined ? {} : { comment }) });
    rule = undefined;
  }
  return rules;
}
