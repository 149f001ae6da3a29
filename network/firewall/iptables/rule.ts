import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { joinWords } from "./save-format.ts";
import type { TableName } from "../../model/rules.ts";

/** A rule as it should be. */
export interface Rule {
  readonly table: TableName;
  readonly chain: string;
  /** The words after the chain's name; they contain `-m comment --comment MARK`. */
  readonly args: readonly string[];
}

/** The comment of a rule; undefined if it has none. */
export function commentOf(args: readonly string[]): string | undefined {
  const at = args.indexOf("--comment");
  return at < 0 ? undefined : args[at + 1];
}

/** The chain or target a rule goes to. */
export function targetOf(args: readonly string[]): string | undefined {
  const at = args.findIndex((word) => word === "-j" || word === "-g");
  return at < 0 ? undefined : args[at + 1];
}

/**
 * The content of a rule, independent of the order of its matches: equal for a rule as rendered and
 * as `iptables-save` prints it (the kernel keeps a mask where we write a length, sorts nothing, and
 * repeats `-m tcp`).
 */
export function ruleKey(args: readonly string[]): string {
  const groups: string[][] = [];
  let negated = false;
  for (const word of args) {
    if (word === "!") {
      negated = true;
      continue;
    }
    const sign = negated ? ["!"] : [];
    negated = false;
    if (/^-[A-Za-z]$/.test(word) || groups.length === 0) groups.push([...sign, word]);
    else groups.at(-1)?.push(...sign, canonicalWord(word));
  }
  return groups
    .map((group) => group.join("\u0001"))
    .toSorted()
    .join("\u0000");
}

const canonicalWord = (word: string): string =>
  // RELATED,ESTABLISHED and ESTABLISHED,RELATED are one set of states.
  /^[A-Z]+(?:,[A-Z]+)+$/.test(word) ? word.split(",").toSorted().join(",") : word;

/** `filter -A FORWARD -i hyper0 …`, as people and golden tests read it. */
export const ruleText = (rule: Rule): string =>
  `${rule.table} -A ${rule.chain} ${joinWords(rule.args)}`;

/** How chains of overlays begin: no chain that is configured may. */
export const overlayChainStart = "PODNET-OVERLAY-";

const builtIn =
  "PREROUTING INPUT FORWARD OUTPUT POSTROUTING ACCEPT DROP QUEUE RETURN REJECT DNAT SNAT MASQUERADE REDIRECT".split(
    " ",
  );

/**
 * Parses the configured chain's name: 1 to 28 characters (XT_EXTENSION_MAXNAMELEN - 1), without
 * characters that a rule file would interpret. Throws `CONFIG_INVALID`.
 */
export function parseChainName(text: string, field = "iptables_chain"): string {
  const reserved = builtIn.includes(text) || text.startsWith(overlayChainStart);
  if (/^[A-Za-z0-9_][A-Za-z0-9_-]{0,27}$/.test(text) && !reserved) return text;
  throw new PodnetError("CONFIG_INVALID", `"${printable(text)}" cannot be our chain's name`, {
    field,
    hint: "Use 1 to 28 characters from A-Z a-z 0-9 _ - that name no chain or target of iptables itself, nor an overlay's",
  });
}
