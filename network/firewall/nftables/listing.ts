import { isIp, parseIp } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type Element, isSetName, kindOf, type SetName } from "../../model/nftables-sets.ts";

/** The output of `list table` for our table. */
export interface Listing {
  readonly sets: ReadonlyMap<string, ListedSet>;
  readonly chains: ReadonlyMap<string, ListedChain>;
}

interface ListedSet {
  readonly type: string;
  readonly value: string | undefined;
  readonly interval: boolean;
  readonly comment: string | undefined;
  readonly elements: readonly Element[];
}

export interface ListedChain {
  /** As text: `filter forward 0 accept`; empty for a chain without a hook. */
  readonly hook: string;
  readonly rules: readonly { readonly comment: string | undefined; readonly text: string }[];
}

type Json = Readonly<Record<string, unknown>>;

/**
 * Parses the JSON that libnftables prints for `list table`. Unknown entries are skipped, because
 * another version may print more. Throws `FIREWALL_FAILED` if the text is not such JSON.
 */
export function parseListing(text: string): Listing {
  const sets = new Map<string, ListedSet>();
  const chains = new Map<
    string,
    { hook: string; rules: { comment: string | undefined; text: string }[] }
  >();
  for (const entry of entriesOf(text)) {
    const { set, map, chain, rule } = entry;
    const declared = objectOf(set ?? map);
    if (declared !== undefined) sets.set(textOf(declared["name"]), listedSet(declared));
    const begun = objectOf(chain);
    if (begun !== undefined)
      chains.set(textOf(begun["name"]), { hook: hookText(begun), rules: [] });
    const ruled = objectOf(rule);
    if (ruled === undefined) continue;
    chains.get(textOf(ruled["chain"]))?.rules.push({
      comment: commentOf(ruled),
      text: expressionText(ruled["expr"]),
    });
  }
  return { sets, chains };
}

/**
 * Parses the elements that `get element` prints, always as text: `6 . 80 comment "x" : 10.0.0.2 .
 * 80`, separated by commas. Pure; unknown text is skipped.
 */
export function parseElements(text: string, set: SetName): Element[] {
  const [begin, comment] = ["elements = {", " comment "];
  const from = text.indexOf(begin);
  if (from < 0) return [];
  // Comments are quoted, and nft accepts no quotes inside them.
  const words = text.slice(from + begin.length).split(/("[^"]*")/);
  const elements: Element[] = [];
  let found = {
    key: "",
    owner: undefined as string | undefined,
    value: undefined as string | undefined,
  };
  const end = (): void => {
    const { owner, value } = found;
    const key = canonicalKey(set, found.key);
    if (key !== "")
      elements.push({
        set,
        key,
        owner,
        ...(value === undefined ? {} : { value: canonical(value) }),
      });
    found = { key: "", owner: undefined, value: undefined };
  };
  for (const [i, word] of words.entries()) {
    if (i % 2 === 1 && found.key.endsWith(comment) && found.value === undefined) {
      found = { ...found, key: found.key.slice(0, -comment.length), owner: word.slice(1, -1) };
      continue;
    }
    for (const part of i % 2 === 1 ? [word] : word.split(/([,}]|\s:\s)/)) {
      if (part === "," || part === "}") end();
      if (part === "}") return elements;
      if (part === ",") continue;
      if (/^\s:\s$/.test(part)) found = { ...found, value: found.value ?? "" };
      else if (found.value === undefined) found = { ...found, key: found.key + part };
      else found = { ...found, value: found.value + part };
    }
  }
  return [];
}

/** A rule as text, without what its counters have counted. */
const expressionText = (expression: unknown): string =>
  JSON.stringify(expression ?? [], (key, value: unknown) => (key === "counter" ? null : value));

const words = (text: string): string[] => text.split(" . ").map((word) => word.trim());

/** An address has many ways to be written; ours has one. */
const canonical = (text: string): string =>
  words(text)
    .map((word) => (isIp(word) ? parseIp(word) : word))
    .join(" . ");

/** A key whose last word is the number of a MAC, an IPv6 address or a protocol has it in hex. */
function canonicalKey(set: SetName, key: string): string {
  const { fields, type } = kindOf(set);
  if (fields === undefined && !type.endsWith("ether_type")) return canonical(key);
  const all = words(key.replaceAll('"', ""));
  const last = all.pop() ?? "";
  if (!/^(?:0x[0-9a-f]+|[0-9]+)$/.test(last)) return canonical(key);
  const before = all.map((word, i) =>
    i === 0 && type.startsWith("ifname") ? `"${word}"` : canonical(word),
  );
  return [...before, `0x${BigInt(last).toString(16)}`].join(" . ");
}

function listedSet(set: Json): ListedSet {
  const name = textOf(set["name"]);
  const flags = Array.isArray(set["flags"]) ? set["flags"] : [];
  const listed = Array.isArray(set["elem"]) ? set["elem"] : [];
  // (What the kernel counts has no owner.)
  const isOurs = isSetName(name) && kindOf(name).counted !== true;
  const elements = isOurs ? listed.map((each) => listedElement(name, each)) : [];
  return {
    type: typeText(set["type"]),
    value: set["map"] === undefined ? undefined : typeText(set["map"]),
    interval: flags.includes("interval"),
    comment: commentOf(set),
    elements,
  };
}

/**
 * An element of a set, or of a map (a pair of element and value). An element with a comment or a
 * timeout is wrapped.
 */
function listedElement(set: SetName, listed: unknown): Element {
  const [first, second] = Array.isArray(listed) ? listed : [listed, undefined];
  const wrapped = objectOf(objectOf(first)?.["elem"]);
  const key = canonicalKey(set, wordsOf(wrapped === undefined ? first : wrapped["val"]));
  const owner = wrapped === undefined ? undefined : commentOf(wrapped);
  return { set, key, owner, ...(second === undefined ? {} : { value: wordsOf(second) }) };
}

/**
 * The words of a value. Names of links are quoted; they are the words that are neither numbers nor
 * addresses, nor classes of traffic control (`4b1a:9`).
 */
function wordsOf(value: unknown): string {
  const parts = objectOf(value);
  const list = parts?.["concat"];
  if (Array.isArray(list)) return list.map(wordsOf).join(" . ");
  const jump = objectOf(parts?.["jump"]);
  if (jump !== undefined) return `jump ${textOf(jump["target"])}`;
  const prefix = objectOf(parts?.["prefix"]);
  if (prefix !== undefined) return `${canonical(textOf(prefix["addr"]))}/${textOf(prefix["len"])}`;
  const range = parts?.["range"];
  if (Array.isArray(range)) return range.map(wordsOf).join("-");
  const word = textOf(value);
  if (typeof value === "number" || word === "" || /^[0-9a-f]+:[0-9a-f]+$/.test(word)) return word;
  return isIp(word) ? parseIp(word) : `"${word}"`;
}

function hookText(chain: Json): string {
  const { type, hook, prio, policy } = chain;
  return hook === undefined ? "" : [type, hook, prio, policy].map(textOf).join(" ");
}

const typeText = (type: unknown): string =>
  Array.isArray(type) ? type.map(textOf).join(" . ") : textOf(type);

/** A word or number as text; empty for any other value. */
export const textOf = (value: unknown): string =>
  typeof value === "string" || typeof value === "number" ? String(value) : "";

const commentOf = ({ comment }: Json): string | undefined =>
  typeof comment === "string" ? comment : undefined;

/** A value that is an object; undefined for any other value. */
export const objectOf = (value: unknown): Json | undefined =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Json)
    : undefined;

/**
 * The entries of the JSON that libnftables prints. Throws `FIREWALL_FAILED` if the text is not such
 * JSON.
 */
export function entriesOf(text: string): Json[] {
  let entries: unknown;
  try {
    entries = objectOf(JSON.parse(text))?.["nftables"];
  } catch {
    // Below.
  }
  if (!Array.isArray(entries))
    throw new PodnetError("FIREWALL_FAILED", "What nftables lists is not understood", {
      hint: "Install another version of libnftables; 1.0.6 is known to work",
    });
  return entries.map(objectOf).filter((entry) => entry !== undefined);
}
