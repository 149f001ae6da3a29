/**
 * How the rules source (`rules-source.ts`) reads rules: it shares no code with podnet, on purpose.
 *
 * A rule counts where a packet can come by: in a chain that the kernel begins at, or that others
 * lead to.
 */

interface Translation {
  readonly protocol: string;
  /** Absent: at every address. */
  readonly hostIp?: string;
  readonly first: number;
  readonly last: number;
  readonly podIp: string;
  /** Where the first of them leads; the others follow. */
  readonly podPort: number;
}
interface Opened {
  readonly protocol: string;
  readonly podIp: string;
  readonly first: number;
  readonly last: number;
  /** Packets are not accepted there, but marked so. */
  readonly mark?: number;
}
/** A rule that accepts marked packets. */
interface Accepted {
  readonly mark: number;
  /** Absent: to every bridge. */
  readonly bridge?: string;
}
interface Hairpin {
  readonly subnet: string;
  readonly bridge: string;
  /** Absent: for all pods. */
  readonly podIp?: string;
}
interface Report {
  readonly translations: Translation[];
  readonly opened: Opened[];
  readonly hairpins: Hairpin[];
  readonly accepted: Accepted[];
}

const nothing = (): Report => ({ translations: [], opened: [], hairpins: [], accepted: [] });

/** The chains that one can get to from others. */
export function reached(
  from: readonly string[],
  leads: ReadonlyMap<string, readonly string[]>,
): string[] {
  const all = [...from];
  for (const chain of all)
    for (const next of leads.get(chain) ?? []) if (!all.includes(next)) all.push(next);
  return all;
}

/** Words of a line of iptables-save; only comments are quoted. */
const wordsOf = (line: string): string[] => line.match(/"(?:\\.|[^"\\])*"|\S+/g) ?? [];

/** The word after another one; undefined where that is negated or missing. */
function after(words: readonly string[], ...names: readonly string[]): string | undefined {
  const at = words.findIndex((word) => names.includes(word));
  return at < 0 || words[at - 1] === "!" ? undefined : words[at + 1];
}

const bare = (address: string): string => address.replace(/\/(?:32|128)$/, "");

function range(text: string, separator: string): [number, number] {
  const [first, last = first] = text.split(separator);
  return [Number(first), Number(last)];
}

/** `10.0.0.2`, `10.0.0.2:80`, `[fd00::2]:80-82/8000`: where the first of these ports leads. */
function destination(text: string, first: number): { podIp: string; podPort: number } {
  const [, six, four, ports, base] =
    /^(?:\[([^\]]+)\]|([^:]+|[^[].*:.*:.*?))(?::(\d+)(?:-\d+)?(?:\/(\d+))?)?$/.exec(text) ?? [];
  const podIp = six ?? four ?? text;
  if (ports === undefined) return { podIp, podPort: first };
  return { podIp, podPort: Number(ports) + (base === undefined ? 0 : first - Number(base)) };
}

/** Reads what iptables-save prints. */
export function readSavedRules(text: string): Report {
  const found = nothing();
  const rules: { readonly table: string; readonly chain: string; readonly words: string[] }[] = [];
  let table = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) table = line.slice(1);
    const [command, chain = "", ...words] = wordsOf(line);
    if (command === "-A") rules.push({ table, chain, words });
  }
  const from = (of: string, hook: string): string[][] => {
    const own = rules.filter((rule) => rule.table === of);
    const leads = Map.groupBy(own, ({ chain }) => chain);
    const targets = new Map(
      [...leads].map(([chain, all]) => [
        chain,
        all.flatMap(({ words }) => after(words, "-j", "-g") ?? []),
      ]),
    );
    const chains = reached([hook], targets);
    return own.filter(({ chain }) => chains.includes(chain)).map(({ words }) => words);
  };
  for (const words of from("nat", "PREROUTING")) {
    const to = after(words, "--to-destination");
    const [protocol, ports, hostIp] = [["-p"], ["--dport"], ["-d"]].map((names) =>
      after(words, ...names),
    );
    if (to === undefined || protocol === undefined || ports === undefined) continue;
    const [first, last] = range(ports, ":");
    const where = hostIp === undefined ? {} : { hostIp: bare(hostIp) };
    found.translations.push({ protocol, ...where, first, last, ...destination(to, first) });
  }
  for (const words of from("filter", "FORWARD")) {
    const [target, protocol, ports, podIp] = [["-j"], ["-p"], ["--dport"], ["-d"]].map((names) =>
      after(words, ...names),
    );
    const mark = after(words, "--mark")?.split("/")[0];
    if (target === "ACCEPT" && mark !== undefined) {
      const bridge = after(words, "-o");
      if (Number.isSafeInteger(Number(mark)))
        found.accepted.push({ mark: Number(mark), ...(bridge === undefined ? {} : { bridge }) });
      continue;
    }
    if (target !== "ACCEPT" || protocol === undefined || ports === undefined) continue;
    const [first, last] = range(ports, ":");
    found.opened.push({ protocol, podIp: bare(podIp ?? ""), first, last });
  }
  for (const words of from("nat", "POSTROUTING")) {
    const [target, subnet, podIp, bridge] = [["-j"], ["-s"], ["-d"], ["-o"]].map((names) =>
      after(words, ...names),
    );
    if (target !== "MASQUERADE" || subnet === undefined || bridge === undefined) continue;
    found.hairpins.push({ subnet, bridge, ...(podIp === undefined ? {} : { podIp: bare(podIp) }) });
  }
  return found;
}

export type Json = { readonly [key: string]: unknown };
export const inside = (value: unknown, key: string): unknown =>
  typeof value === "object" && value !== null ? (value as Json)[key] : undefined;
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** A name, address or number; empty for anything else. */
export const wordOf = (value: unknown): string =>
  typeof value === "string" ? value : JSON.stringify(value ?? null);

/** The words of an element or value, whether or not it has a comment. */
export function plain(value: unknown): string[] {
  const wrapped = inside(value, "elem");
  if (wrapped !== undefined) return plain(inside(wrapped, "val"));
  const parts = inside(value, "concat");
  if (parts !== undefined) return listOf(parts).flatMap(plain);
  const prefix = inside(value, "prefix");
  if (prefix !== undefined)
    return [`${wordOf(inside(prefix, "addr"))}/${wordOf(inside(prefix, "len"))}`];
  return [wordOf(value)];
}

/** The bit that a rule sets in a packet's mark, and leaves the others. */
const markSet = (rule: string): string | undefined =>
  /"mangle":\{"key":\{"meta":\{"key":"mark"\}\},"value":\{"\|":\[\{"meta":\{"key":"mark"\}\},(\d{1,10})\]\}\}/.exec(
    rule,
  )?.[1];

const protocols: Readonly<Record<string, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };
const protocolOf = (word = ""): string => protocols[word] ?? word;

/**
 * Parses the output of `nft -j` for a table; empty output gives an empty report. Throws
 * `SyntaxError` for invalid JSON.
 */
export function readListedRules(text: string): Report {
  const found = nothing();
  if (text.trim() === "") return found;
  const entries = listOf(inside(JSON.parse(text), "nftables"));
  const of = (kind: string): Json[] =>
    entries
      .map((each) => inside(each, kind))
      .filter((each): each is Json => typeof each === "object" && each !== null);
  const chains = of("chain");
  const rules = of("rule");
  const leads = new Map(
    chains.map(({ name }) => [
      wordOf(name),
      rules
        .filter(({ chain }) => chain === name)
        .flatMap(({ expr }) => listOf(expr))
        .flatMap((each) => inside(inside(each, "jump") ?? inside(each, "goto"), "target") ?? [])
        .map(wordOf),
    ]),
  );
  /** Elements of the sets and maps by which rules at a hook decide so. */
  const decided = (hook: string, decides: (expression: string) => boolean): unknown[] => {
    const begin = chains.filter((chain) => chain["hook"] === hook).map(({ name }) => wordOf(name));
    const come = reached(begin, leads);
    const texts = rules
      .filter(({ chain }) => come.includes(wordOf(chain)))
      .map(({ expr }) => JSON.stringify(expr ?? []))
      .filter(decides);
    const names = new Set(
      texts.flatMap((each) => [...each.matchAll(/"@(\w+)"/g)].map(([, name]) => name)),
    );
    return [...of("set"), ...of("map")]
      .filter(({ name }) => names.has(wordOf(name)))
      .flatMap(({ elem }) => listOf(elem));
  };
  for (const element of decided("prerouting", (text) => text.includes('"dnat"'))) {
    const [key, value] = listOf(element);
    const words = plain(key);
    const [podIp = "", podPort] = plain(value);
    const first = Number(words.at(-1));
    const [hostIp] = words.slice(1, -1);
    const where = hostIp === undefined ? {} : { hostIp };
    const protocol = protocolOf(words[0]);
    found.translations.push({
      protocol,
      ...where,
      first,
      last: first,
      podIp,
      podPort: Number(podPort),
    });
  }
  const opens = (decides: (expression: string) => boolean, mark?: number): void => {
    for (const element of decided("forward", decides)) {
      const [protocol, podIp, port] = plain(element);
      if (podIp === undefined || port === undefined) continue;
      const first = Number(port);
      const by = mark === undefined ? {} : { mark };
      found.opened.push({ protocol: protocolOf(protocol), podIp, first, last: first, ...by });
    }
  };
  opens((text) => text.includes('"accept"'));
  const isMarking = (text: string, mark: string): boolean => markSet(text) === mark;
  const texts = rules.map(({ expr }) => JSON.stringify(expr ?? []));
  for (const mark of new Set(texts.flatMap((text) => markSet(text) ?? [])))
    opens((text) => isMarking(text, mark), Number(mark));
  const answered = (text: string): boolean =>
    text.includes('"masquerade"') && text.includes('"dnat"');
  for (const element of decided("postrouting", answered)) {
    const [subnet = "", bridge = "", podIp] = plain(element);
    // Another set of such a rule, of the ports that it is about.
    if (!subnet.includes("/")) continue;
    found.hairpins.push({ subnet, bridge, ...(podIp === undefined ? {} : { podIp }) });
  }
  return found;
}
