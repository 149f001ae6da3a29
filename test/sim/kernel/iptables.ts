import { ruleKey, targetOf } from "../../../network/firewall/iptables/rule.ts";
import { splitWords } from "../../../network/firewall/iptables/save-format.ts";
import type { Variant } from "../../../network/model/rules.ts";

/** A rule as text. One that is flushed is there no more, and still counts (see below). */
interface Rule {
  readonly text: string;
  readonly flushed?: true;
}

/** Chains by name: policy (`-` for one that a program made) and rules. */
interface Table {
  readonly chains: Map<string, { policy: string; rules: Rule[] }>;
}

const builtIn: Readonly<Record<string, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** What iptables-restore refuses, with what it says. */
export class RestoreRefused extends Error {
  override readonly name = "RestoreRefused";
}

/**
 * The tables of one variant of iptables: takes what iptables-restore takes, gives what
 * iptables-save prints.
 */
export class FakeIptables {
  readonly #variant: Variant;
  #tables = new Map<string, Table>();

  constructor(variant: Variant) {
    this.#variant = variant;
  }

  get tableNames(): readonly string[] {
    return [...this.#tables.keys()];
  }

  save(): string {
    const lines: string[] = [];
    for (const [name, { chains }] of this.#tables) {
      lines.push(`*${name}`);
      for (const [chain, { policy }] of chains) lines.push(`:${chain} ${policy} [0:0]`);
      for (const [chain, { rules }] of chains)
        lines.push(...rules.map(({ text }) => `-A ${chain}${text === "" ? "" : ` ${text}`}`));
      lines.push("COMMIT", "");
    }
    return lines.join("\n");
  }

  /** `iptables-restore --noflush`: all of a table's lines or none of them. */
  restore(input: string): void {
    let table: Table | undefined;
    let name = "";
    for (const line of input.split("\n")) {
      if (line === "" || line.startsWith("#")) continue;
      if (line.startsWith("*")) {
        name = line.slice(1);
        table = copy(this.#tables.get(name)) ?? fresh(name);
      } else if (table === undefined) {
        throw new RestoreRefused(`line before a table: ${line}`);
      } else if (line === "COMMIT") {
        checkJumps(table);
        for (const chain of table.chains.values()) chain.rules = there(chain.rules);
        this.#tables.set(name, table);
        table = undefined;
      } else {
        applyLine(this.#variant, name, table, line);
      }
    }
  }

  /** `iptables -F` of every table: what an administrator does to podnet. */
  flush(): void {
    for (const { chains } of this.#tables.values())
      for (const chain of chains.values()) chain.rules = [];
  }
}

const copy = (table: Table | undefined): Table | undefined =>
  table === undefined
    ? undefined
    : {
        chains: new Map(
          Array.from(table.chains, ([chain, { policy, rules }]) => [
            chain,
            { policy, rules: [...rules] },
          ]),
        ),
      };

function fresh(name: string): Table {
  const chains = builtIn[name];
  if (chains === undefined) throw new RestoreRefused(`no table ${name}`);
  return { chains: new Map(chains.map((chain) => [chain, { policy: "ACCEPT", rules: [] }])) };
}

const there = (rules: readonly Rule[]): Rule[] => rules.filter(({ flushed }) => flushed !== true);

/**
 * A chain that is declared again is flushed. iptables-nft-restore 1.8.9 forgets that for the rest
 * of the table: the flushed rules go on counting as positions, and are found, in vain, by what
 * deletes a rule.
 */
const flushed = (variant: Variant, rules: readonly Rule[]): Rule[] =>
  variant === "nft" ? rules.map(({ text }) => ({ text, flushed: true })) : [];

function applyLine(variant: Variant, tableName: string, table: Table, line: string): void {
  const refuse = (): never => {
    throw new RestoreRefused(line);
  };
  const [, declared, policy] = /^:(\S+) (\S+)/.exec(line) ?? [];
  if (declared !== undefined) {
    const known = table.chains.get(declared);
    // A program's chain that is declared again is flushed, a built-in one keeps its rules.
    if (known === undefined || known.policy === "-")
      table.chains.set(declared, { policy: "-", rules: flushed(variant, known?.rules ?? []) });
    else known.policy = policy as string;
    return;
  }
  const [, verb, name = "", rest = ""] = /^-([ADFIXN]) (\S+) ?(.*)$/.exec(line) ?? [];
  const chain = table.chains.get(name);
  // Both variants (1.8.9) look at a rule's target as they read its line: "The nat table is not
  // intended for filtering", and a chain declared further down is not there yet.
  const target = jumpOf(rest);
  if (tableName === "nat" && targetOf(splitWords(rest)) === "DROP") refuse();
  if (tableName !== "nat" && targetOf(splitWords(rest)) === "DNAT") refuse();
  if (target !== undefined && !table.chains.has(target)) refuse();
  if (verb === "N") {
    if (chain !== undefined) refuse();
    table.chains.set(name, { policy: "-", rules: [] });
    return;
  }
  if (chain === undefined) return refuse();
  switch (verb) {
    case "A":
      chain.rules.push({ text: rest });
      return;
    case "I": {
      const [, position = "1", rule = rest] = /^(\d+) (.*)$/.exec(rest) ?? [];
      if (Number(position) < 1 || Number(position) > chain.rules.length + 1) refuse();
      chain.rules.splice(Number(position) - 1, 0, { text: rule });
      return;
    }
    case "D": {
      const key = ruleKey(splitWords(rest));
      const at = chain.rules.findIndex(({ text }) => ruleKey(splitWords(text)) === key);
      if (at < 0 || chain.rules[at]?.flushed === true) refuse();
      chain.rules.splice(at, 1);
      return;
    }
    case "F":
      chain.rules = [];
      return;
    case "X":
      if (chain.policy !== "-" || there(chain.rules).length > 0 || jumps(table).has(name)) refuse();
      table.chains.delete(name);
      return;
    default:
      refuse();
  }
}

const targets = ["ACCEPT", "DROP", "RETURN", "MASQUERADE", "REJECT", "DNAT"];

/** The chain that a rule leads to, if it leads to one. */
function jumpOf(rule: string): string | undefined {
  const target = targetOf(splitWords(rule));
  return target === undefined || targets.includes(target) ? undefined : target;
}

/** The chains that these rules lead to. */
const jumpsOf = (rules: readonly Rule[]): string[] =>
  there(rules)
    .map(({ text }) => jumpOf(text))
    .filter((target) => target !== undefined);

/** The chains that rules lead to. */
const jumps = ({ chains }: Table): Set<string> =>
  new Set([...chains.values()].flatMap(({ rules }) => jumpsOf(rules)));

/**
 * Whether packets may come by a chain twice; the kernel follows jumps from the built-in chains on
 * only.
 */
function goesRound({ chains }: Table): boolean {
  const from = (name: string, way: readonly string[]): boolean =>
    way.includes(name) ||
    jumpsOf(chains.get(name)?.rules ?? []).some((target) => from(target, [...way, name]));
  return [...chains].some(([name, { policy }]) => policy !== "-" && from(name, []));
}

/** What the kernel refuses of a whole table. */
function checkJumps(table: Table): void {
  for (const target of jumps(table))
    if (table.chains.get(target)?.policy !== "-") throw new RestoreRefused(`no chain ${target}`);
  if (goesRound(table)) throw new RestoreRefused("chains that lead to each other");
  if (translatesLate(table)) throw new RestoreRefused("DNAT where packets leave");
}

/**
 * A destination is translated as packets come in; the kernel follows jumps to find out (xt_nat,
 * nf_tables).
 */
function translatesLate({ chains }: Table): boolean {
  const from = (name: string): boolean => {
    const rules = there(chains.get(name)?.rules ?? []);
    return (
      rules.some(({ text }) => targetOf(splitWords(text)) === "DNAT") || jumpsOf(rules).some(from)
    );
  };
  return ["INPUT", "POSTROUTING"].some(from);
}
