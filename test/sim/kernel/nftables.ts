import { type Fate, type Packet, readRule } from "./packet.ts";

/** What nft refuses, with what it says. */
export class NftRefused extends Error {
  override readonly name = "NftRefused";
}

interface FakeElement {
  readonly owner: string | undefined;
  readonly value: string | undefined;
}

interface FakeSet {
  readonly type: string;
  readonly value: string | undefined;
  readonly interval: boolean;
  readonly comment: string | undefined;
  readonly elements: Map<string, FakeElement>;
}

interface FakeChain {
  readonly hook: string | undefined;
  rules: { readonly text: string; readonly comment: string | undefined }[];
}

interface FakeTable {
  readonly sets: Map<string, FakeSet>;
  readonly chains: Map<string, FakeChain>;
}

const main = "inet podnet";

/**
 * The tables of a host, as far as podnet speaks nft's language: takes what it writes, prints what
 * it reads.
 */
export class FakeNftables {
  /** By family and name. */
  #tables: ReadonlyMap<string, FakeTable> = new Map();
  /** Transactions so far. */
  generation = 1;
  /** Notified after each transaction of podnet. */
  readonly watchers = new Set<() => void>();

  /** Whether there is podnet's main one. */
  get exists(): boolean {
    return this.#tables.has(main);
  }

  /** Family and name of each. */
  get names(): string[] {
    return [...this.#tables.keys()];
  }

  /** All elements of a table, as `SET KEY OWNER VALUE`. */
  elements(table = main): string[] {
    return [...(this.#tables.get(table)?.sets ?? [])].flatMap(([name, { elements }]) =>
      [...elements].map(([key, { owner, value }]) =>
        [name, key, owner ?? "-", ...(value === undefined ? [] : [value])].join(" | "),
      ),
    );
  }

  /** The comments of all rules of a table, by chain and in order. */
  ruleComments(table = main): string[] {
    return [...(this.#tables.get(table)?.chains ?? [])].flatMap(([name, { rules }]) =>
      rules.map(({ comment }) => `${name} ${comment ?? "-"}`),
    );
  }

  /** All commands of podnet, a line each, or none. */
  commit(commands: string): void {
    this.disturb(commands);
    for (const committed of this.watchers) committed();
  }

  /** All commands of another program, a line each, or none. */
  disturb(commands: string): void {
    const tables = new Map([...this.#tables].map(([name, table]) => [name, copy(table)]));
    for (const line of commands.split("\n")) change(tables, line);
    this.#tables = tables;
    this.generation++;
  }

  /** The names of a table's chains. */
  chainsOf(table: string): string[] {
    return [...(this.#tables.get(table)?.chains.keys() ?? [])];
  }

  has(table: string, set: string, key: string): boolean {
    return this.#tables.get(table)?.sets.get(set)?.elements.has(key) === true;
  }

  /** What becomes of a packet that is forwarded, by a table's chains that the kernel calls. */
  fateOf(packet: Packet, name: string): Fate {
    const table = this.#tables.get(name);
    for (const at of ["prerouting", "forward"])
      for (const [chain, { hook }] of table?.chains ?? []) {
        if (table === undefined || hook?.split(" ")[1] !== at) continue;
        const fate = fateIn(table, chain, packet);
        if (fate !== undefined) return fate;
      }
    return "passes";
  }

  /** `list tables`, `list table` or `list chain`, in JSON. */
  list(command = `list table ${main}`): string {
    if (command === "list tables") {
      const tables = [...this.#tables.keys()].map((name) => name.split(" "));
      return JSON.stringify({
        nftables: tables.map(([family, name]) => ({ table: { family, name } })),
      });
    }
    const [, family = "", name = "", only] = /^list \w+ (\w+) (\w+) ?(\w+)?$/.exec(command) ?? [];
    const table = must(this.#tables, `${family} ${name}`);
    if (only !== undefined && !table.chains.has(only)) throw new NftRefused(absent);
    const nftables: unknown[] = [];
    for (const [name, { type, value, interval, comment, elements }] of only === undefined
      ? table.sets
      : []) {
      const elem = [...elements].map(([key, element]) => listed(key, element));
      const flags = interval ? { flags: ["interval"] } : {};
      const set = {
        name,
        type,
        handle: 1,
        ...(comment === undefined ? {} : { comment }),
        ...flags,
        elem,
      };
      nftables.push(value === undefined ? { set } : { map: { ...set, map: value } });
    }
    for (const [name, { hook, rules }] of table.chains) {
      if (only !== undefined && name !== only) continue;
      const [type, at, prio, policy] = hook?.split(" ") ?? [];
      const begins = hook === undefined ? {} : { type, hook: at, prio: Number(prio), policy };
      nftables.push({ chain: { name, handle: 1, ...begins } });
      for (const { text, comment } of rules)
        nftables.push({
          rule: { chain: name, ...(comment === undefined ? {} : { comment }), expr: [text] },
        });
    }
    return JSON.stringify({ nftables });
  }

  /** `get element`: all that are asked for, or none. */
  get(command: string): string {
    const [, table = "", name = "", keys = ""] =
      /^get element (\w+ \w+) (\w+) \{ (.*) \}$/.exec(command) ?? [];
    const set = must(this.#tables, table).sets.get(name);
    const found = keys.split(", ").map((key) => {
      const element = set?.elements.get(key);
      if (element === undefined) throw new NftRefused(absent);
      const comment = element.owner === undefined ? "" : ` comment "${element.owner}"`;
      return `${key}${comment}${element.value === undefined ? "" : ` : ${element.value}`}`;
    });
    return `table ${table} {\n\tset ${name} {\n\t\telements = { ${found.join(", ")} }\n\t}\n}\n`;
  }
}

/** Undefined when the chain comes to its end. */
function fateIn({ sets, chains }: FakeTable, name: string, packet: Packet): Fate | undefined {
  for (const { text } of chains.get(name)?.rules ?? []) {
    const { matches, verdict, map, goto } = readRule(text);
    if (!matches(packet)) continue;
    if (goto !== undefined) return fateIn({ sets, chains }, goto, packet);
    if (verdict === "return") return undefined;
    if (verdict !== "next") return verdict;
    const key = map?.key(packet);
    const element = key === undefined ? undefined : sets.get(map?.name ?? "")?.elements.get(key);
    const target = element?.value?.replace("jump ", "");
    const fate = target === undefined ? undefined : fateIn({ sets, chains }, target, packet);
    if (fate !== undefined) return fate;
  }
  return undefined;
}

function must(tables: ReadonlyMap<string, FakeTable>, name: string): FakeTable {
  const table = tables.get(name);
  if (table === undefined) throw new NftRefused(absent);
  return table;
}

function change(tables: Map<string, FakeTable>, line: string): void {
  const [, verb = "", kind = "", name = "", rest = ""] =
    /^(\w+) (table|set|map|chain|rule|element) (\w+ \w+) ?(.*)$/.exec(line) ?? [];
  const does = `${verb} ${kind}`;
  if (does === "add table") {
    if (!tables.has(name)) tables.set(name, { sets: new Map(), chains: new Map() });
    return;
  }
  const table = must(tables, name);
  if (does === "delete table") tables.delete(name);
  else if (does === "add set" || does === "add map") addSet(table, rest);
  else if (does === "add chain") addChain(table, rest);
  else if (does === "flush chain") chainOf(table, rest).rules = [];
  else if (does === "delete chain") deleteChain(table, rest);
  else if (does === "add rule") {
    const [, chain = "", text = "", comment] =
      /^(\w+) (.*?)(?: comment "([^"]*)")?$/.exec(rest) ?? [];
    chainOf(table, chain).rules.push({ text, comment });
  } else if (kind === "element") changeElements(table, verb, rest);
  else throw new NftRefused(`syntax error: ${line}`);
}

function addSet({ sets }: FakeTable, rest: string): void {
  const [, name = "", named = "", value, flags, comment] =
    /^(\w+) \{ (?:type|typeof) ([^;:]+?)(?: : ([^;]+))?;( flags interval;)?(?: size \d+; flags dynamic;)? comment "([^"]*)"; \}$/.exec(
      rest,
    ) ?? [];
  if (name === "") throw new NftRefused(`syntax error: ${rest}`);
  const found = sets.get(name);
  const interval = flags !== undefined;
  const type = typeOf(named);
  if (found === undefined) sets.set(name, { type, value, interval, comment, elements: new Map() });
  else if (found.type !== type || found.value !== value || found.interval !== interval)
    throw new NftRefused(exists);
}

/** The types of fields, where a set is declared by those. */
const typeOf = (named: string): string =>
  named
    .split(" . ")
    .map((word) => {
      if (word.startsWith("@")) return "integer";
      return word === "ip saddr" ? "ipv4_addr" : word.replace(/^iif(name|group)$/, typeName);
    })
    .join(" . ");

const typeName = (_whole: string, of: string): string => (of === "name" ? "ifname" : "devgroup");

function addChain({ chains }: FakeTable, rest: string): void {
  const [, name = "", type, at, priority] =
    /^(\w+)(?: \{ type (\w+) hook (\w+) priority (-?\d+); policy accept; \})?$/.exec(rest) ?? [];
  if (name === "") throw new NftRefused(`syntax error: ${rest}`);
  const hook = type === undefined ? undefined : `${type} ${at} ${priority} accept`;
  const found = chains.get(name);
  if (found === undefined) chains.set(name, { hook, rules: [] });
  else if (found.hook !== hook) throw new NftRefused(exists);
}

function chainOf({ chains }: FakeTable, name: string): FakeChain {
  const chain = chains.get(name);
  if (chain === undefined) throw new NftRefused(absent);
  return chain;
}

function changeElements({ sets, chains }: FakeTable, verb: string, rest: string): void {
  const [, name = "", list = ""] = /^(\w+) \{ (.*) \}$/.exec(rest) ?? [];
  const elements = sets.get(name)?.elements;
  if (elements === undefined) throw new NftRefused(absent);
  for (const text of list.split(", ")) {
    const [, key = "", owner, value] =
      /^(.*?)(?: comment "([^"]*)")?(?: : (.*))?$/.exec(text) ?? [];
    const target = value?.startsWith("jump ") === true ? value.slice("jump ".length) : undefined;
    if (target !== undefined && !chains.has(target)) throw new NftRefused(absent);
    const found = elements.get(key);
    if (verb === "delete") {
      if (!elements.delete(key)) throw new NftRefused(absent);
    } else if (found === undefined) elements.set(key, { owner, value });
    else if (verb === "create" || found.value !== value) throw new NftRefused(exists);
  }
}

const absent = "Error: Could not process rule: No such file or directory";
const exists = "Error: Could not process rule: File exists";

function copy(table: FakeTable): FakeTable {
  return {
    sets: new Map(
      [...table.sets].map(([name, set]) => [name, { ...set, elements: new Map(set.elements) }]),
    ),
    chains: new Map(
      [...table.chains].map(([name, chain]) => [name, { ...chain, rules: [...chain.rules] }]),
    ),
  };
}

/** The kernel deletes no chain that an element leads to. */
function deleteChain({ sets, chains }: FakeTable, name: string): void {
  const led = [...sets.values()].some(({ elements }) =>
    [...elements.values()].some(({ value }) => value === `jump ${name}`),
  );
  if (led) throw new NftRefused("Error: Could not process rule: Device or resource busy");
  if (!chains.delete(name)) throw new NftRefused(absent);
}

function listed(key: string, { owner, value }: FakeElement): unknown {
  const words = wordsOf(key);
  const elem = owner === undefined ? words : { elem: { val: words, comment: owner } };
  return value === undefined ? elem : [elem, wordsOf(value)];
}

/** As JSON has them: numbers, names without quotes, subnets in two parts. */
function wordsOf(text: string): unknown {
  if (text.startsWith("jump ")) return { jump: { target: text.slice("jump ".length) } };
  const words = text.split(" . ").map((word): unknown => {
    if (/^\d+$/.test(word)) return Number(word);
    const [addr, len] = word.split("/");
    return len === undefined ? word.replaceAll('"', "") : { prefix: { addr, len: Number(len) } };
  });
  return words.length === 1 ? words[0] : { concat: words };
}
