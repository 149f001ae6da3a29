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

/** One table of the host, as far as podnet speaks nft's language: takes what it writes, prints what it reads. */
export class FakeNftables {
  #table: FakeTable | undefined;
  /** Transactions so far. */
  generation = 1;

  get exists(): boolean {
    return this.#table !== undefined;
  }

  /** All elements, as `SET KEY OWNER VALUE`. */
  elements(): string[] {
    return [...(this.#table?.sets ?? [])].flatMap(([name, { elements }]) =>
      [...elements].map(([key, { owner, value }]) =>
        [name, key, owner ?? "-", ...(value === undefined ? [] : [value])].join(" | "),
      ),
    );
  }

  /** The comments of all rules, by chain and in order. */
  ruleComments(): string[] {
    return [...(this.#table?.chains ?? [])].flatMap(([name, { rules }]) =>
      rules.map(({ comment }) => `${name} ${comment ?? "-"}`),
    );
  }

  /** All commands, a line each, or none. */
  commit(commands: string): void {
    const before = this.#table;
    this.#table = copy(before);
    try {
      for (const line of commands.split("\n")) this.#command(line);
    } catch (thrown) {
      this.#table = before;
      throw thrown;
    }
    this.generation++;
  }

  /** `list table`, in JSON. */
  list(): string {
    const table = this.#must();
    const nftables: unknown[] = [];
    for (const [name, { type, value, interval, comment, elements }] of table.sets) {
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
    const [, name = "", keys = ""] =
      /^get element inet podnet (\w+) \{ (.*) \}$/.exec(command) ?? [];
    const set = this.#must().sets.get(name);
    const found = keys.split(", ").map((key) => {
      const element = set?.elements.get(key);
      if (element === undefined) throw new NftRefused(absent);
      const comment = element.owner === undefined ? "" : ` comment "${element.owner}"`;
      return `${key}${comment}${element.value === undefined ? "" : ` : ${element.value}`}`;
    });
    return `table inet podnet {\n\tset ${name} {\n\t\telements = { ${found.join(", ")} }\n\t}\n}\n`;
  }

  #must(): FakeTable {
    if (this.#table === undefined) throw new NftRefused(absent);
    return this.#table;
  }

  #command(line: string): void {
    const [, verb = "", kind = "", rest = ""] =
      /^(\w+) (table|set|map|chain|rule|element) inet podnet ?(.*)$/.exec(line) ?? [];
    const does = `${verb} ${kind}`;
    if (does === "add table") this.#table ??= { sets: new Map(), chains: new Map() };
    else if (does === "delete table") {
      this.#must();
      this.#table = undefined;
    } else if (does === "add set" || does === "add map") this.#addSet(rest);
    else if (does === "add chain") this.#addChain(rest);
    else if (does === "flush chain") this.#chain(rest).rules = [];
    else if (does === "add rule") {
      const [, chain = "", text = "", comment] =
        /^(\w+) (.*?)(?: comment "([^"]*)")?$/.exec(rest) ?? [];
      this.#chain(chain).rules.push({ text, comment });
    } else if (kind === "element") this.#elements(verb, rest);
    else throw new NftRefused(`syntax error: ${line}`);
  }

  #addSet(rest: string): void {
    const [, name = "", type = "", value, flags, comment] =
      /^(\w+) \{ type ([^;:]+?)(?: : ([^;]+))?;( flags interval;)? comment "([^"]*)"; \}$/.exec(
        rest,
      ) ?? [];
    if (name === "") throw new NftRefused(`syntax error: ${rest}`);
    const { sets } = this.#must();
    const found = sets.get(name);
    const interval = flags !== undefined;
    if (found === undefined)
      sets.set(name, { type, value, interval, comment, elements: new Map() });
    else if (found.type !== type || found.value !== value || found.interval !== interval)
      throw new NftRefused(exists);
  }

  #addChain(rest: string): void {
    const [, name = "", type, at, priority] =
      /^(\w+)(?: \{ type (\w+) hook (\w+) priority (-?\d+); policy accept; \})?$/.exec(rest) ?? [];
    if (name === "") throw new NftRefused(`syntax error: ${rest}`);
    const hook = type === undefined ? undefined : `${type} ${at} ${priority} accept`;
    const { chains } = this.#must();
    const found = chains.get(name);
    if (found === undefined) chains.set(name, { hook, rules: [] });
    else if (found.hook !== hook) throw new NftRefused(exists);
  }

  #chain(name: string): FakeChain {
    const chain = this.#must().chains.get(name);
    if (chain === undefined) throw new NftRefused(absent);
    return chain;
  }

  #elements(verb: string, rest: string): void {
    const [, name = "", list = ""] = /^(\w+) \{ (.*) \}$/.exec(rest) ?? [];
    const elements = this.#must().sets.get(name)?.elements;
    if (elements === undefined) throw new NftRefused(absent);
    for (const text of list.split(", ")) {
      const [, key = "", owner, value] =
        /^(.*?)(?: comment "([^"]*)")?(?: : (.*))?$/.exec(text) ?? [];
      const found = elements.get(key);
      if (verb === "delete") {
        if (!elements.delete(key)) throw new NftRefused(absent);
      } else if (found === undefined) elements.set(key, { owner, value });
      else if (verb === "create" || found.value !== value) throw new NftRefused(exists);
    }
  }
}

const absent = "Error: Could not process rule: No such file or directory";
const exists = "Error: Could not process rule: File exists";

function copy(table: FakeTable | undefined): FakeTable | undefined {
  if (table === undefined) return undefined;
  return {
    sets: new Map(
      [...table.sets].map(([name, set]) => [name, { ...set, elements: new Map(set.elements) }]),
    ),
    chains: new Map(
      [...table.chains].map(([name, chain]) => [name, { ...chain, rules: [...chain.rules] }]),
    ),
  };
}

function listed(key: string, { owner, value }: FakeElement): unknown {
  const words = wordsOf(key);
  const elem = owner === undefined ? words : { elem: { val: words, comment: owner } };
  return value === undefined ? elem : [elem, wordsOf(value)];
}

/** As JSON has them: numbers, names without quotes, subnets in two parts. */
function wordsOf(text: string): unknown {
  const words = text.split(" . ").map((word): unknown => {
    if (/^\d+$/.test(word)) return Number(word);
    const [addr, len] = word.split("/");
    return len === undefined ? word.replaceAll('"', "") : { prefix: { addr, len: Number(len) } };
  });
  return words.length === 1 ? words[0] : { concat: words };
}
