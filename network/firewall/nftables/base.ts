import { createHash } from "node:crypto";
import type { Family } from "../../../core/address.ts";
import { mark } from "../../model/desired.ts";
import { multicast, passMark, senderMark } from "../traffic.ts";
import { kindOf, type SetName, setNames } from "../../model/nftables-sets.ts";
import { mainTableName } from "../../model/rules.ts";

/** One table of ours: the part that does not vary between hosts. */
export interface TableModel {
  /** Family and name. */
  readonly name: string;
  /** In the order they are declared, and their elements are written. */
  readonly sets: readonly SetName[];
  readonly chains: Readonly<Record<string, Chain>>;
  /**
   * A host without the required kernel features works without the table; `does` says what is then
   * missing. `replaced`: rules elsewhere do the same. A failure that shows that it is missing is
   * thrown then, so that those are compared.
   */
  readonly optional?: { readonly does: string; readonly replaced?: true };
  /** The table for a host without some kernel features; `does` says what is then missing. */
  readonly without?: { readonly does: string; readonly table: TableModel };
  /** Other chains of ours are named so: elements lead to them, and come and go with them. */
  readonly owns?: string;
  /**
   * Without elements it drops everything: where it has to be made again, all elements come with it.
   */
  readonly restored?: true;
}

const chainNames = [
  "forward",
  "arriving",
  "prerouting",
  "output",
  "published",
  "postrouting",
  "overlays",
] as const;
type ChainName = (typeof chainNames)[number];

/** The kernel hook of a chain; undefined for chains that others jump to. */
export interface Hook {
  readonly type: "filter" | "nat";
  readonly hook: string;
  readonly priority: number;
}

interface Chain {
  readonly hook?: Hook;
  readonly rules: readonly string[];
}

/**
 * The chains by which connections to published ports are translated, at this priority: those to the
 * host's own addresses, on loopback only those to a redirected port of podnetd.
 */
export const translatingChains = (priority: number) =>
  ({
    prerouting: {
      hook: { type: "nat", hook: "prerouting", priority },
      rules: ["fib daddr type local jump published"],
    },
    output: {
      hook: { type: "nat", hook: "output", priority },
      rules: [
        'oifname "lo" dnat ip to meta l4proto . ip daddr . th dport map @loopback4',
        'oifname "lo" dnat ip6 to meta l4proto . ip6 daddr . th dport map @loopback6',
        "ip daddr 127.0.0.0/8 return",
        "ip6 daddr ::1 return",
        "fib daddr type local jump published",
      ],
    },
    published: {
      rules: [
        "dnat ip to meta l4proto . ip daddr . th dport map @published4",
        "dnat ip to meta l4proto . th dport map @everywhere4",
        "dnat ip6 to meta l4proto . ip6 daddr . th dport map @published6",
        "dnat ip6 to meta l4proto . th dport map @everywhere6",
      ],
    },
  }) as const satisfies Readonly<Record<string, Chain>>;

/** What returns translated to a pod's network, on a foreign bridge, is answered by the host. */
export const hairpinRules = [
  "ct status dnat ip saddr . oifname . ip daddr @hairpin4 masquerade",
  "ct status dnat ip6 saddr . oifname . ip6 daddr @hairpin6 masquerade",
] as const;

/** Translated packets that a pod takes: to what it publishes, and what others translate to it. */
export const translatedMatches = [
  "ct status dnat meta l4proto . ip daddr . th dport @opened4",
  "ct status dnat meta l4proto . ip6 daddr . th dport @opened6",
  "ct status dnat ip daddr @translated4",
  "ct status dnat ip6 daddr @translated6",
] as const;

/**
 * Rules that do not vary with the host or with the number of networks and pods: sets hold the
 * networks, pods and addresses that they apply to. Packets to one of our bridges pass if they
 * belong to a tracked connection, were translated to a port that a pod has published, or come from
 * that bridge. Packets that leave a network are masqueraded, and so are packets that
 * return to it translated. The last chain identifies interfaces by addresses, because the bridge
 * gives it no incoming interface (br_nf_post_routing, 6.1). (A packet accepted here can still be
 * dropped by a foreign table.)
 */
const chains: Readonly<Record<ChainName, Chain>> = {
  forward: {
    hook: { type: "filter", hook: "forward", priority: 0 },
    // (First what most packets are, of all interfaces: they pass this chain in any case.)
    rules: ["ct state established,related accept", "oifname @bridges jump arriving"],
  },
  arriving: {
    rules: [
      ...translatedMatches.map((match) => `${match} accept`),
      "ct status dnat oifname @translating accept",
      "iifname . oifname @within accept",
      // Traffic from the bridge of an isolated network, whatever its source.
      "iifname . oifname @apart drop",
      "ip saddr . oifname @admitting4 accept",
      "ip6 saddr . oifname @admitting6 accept",
      "ip saddr != @lease4 ip saddr . ip daddr @admitted4 accept",
      "ip6 saddr != @lease6 ip6 saddr . ip6 daddr @admitted6 accept",
      // (Marked by a table before this one, which has the hosts.)
      `ip daddr @lease4 meta mark and ${senderMark} == ${senderMark} accept`,
      `ip6 daddr @lease6 meta mark and ${senderMark} == ${senderMark} accept`,
      "drop",
    ],
  },
  ...translatingChains(-100),
  postrouting: {
    hook: { type: "nat", hook: "postrouting", priority: 100 },
    rules: [
      "ct status dnat ip saddr . oifname @own4 masquerade",
      "ct status dnat ip6 saddr . oifname @own6 masquerade",
      ...hairpinRules,
      "ip saddr . oifname @own4 return",
      "ip6 saddr . oifname @own6 return",
      "ip saddr . iifname @masqueraded4 masquerade",
      "ip6 saddr . iifname @masqueraded6 masquerade",
      "jump overlays",
    ],
  },
  // As flannel's rules: no masquerading for packets that another program has marked, that stay in
  // the overlay, that come to pods here from outside, or that go to groups.
  overlays: {
    rules: [
      `meta mark and ${passMark} == ${passMark} return`,
      ...([4, 6] as const).flatMap((family) => overlayRules(family)),
    ],
  },
};

function overlayRules(family: Family): string[] {
  const ip = family === 4 ? "ip" : "ip6";
  const pair = `${ip} saddr . ${ip} daddr`;
  const hide = (set: string, how: string): string[] => [
    `${ip} saddr @${set}${family} ${ip} daddr != ${multicast[family]} masquerade${how}`,
    `${ip} saddr != @${set}${family} ${ip} daddr @${set}${family} masquerade${how}`,
  ];
  return [
    `${pair} @shown${family} return`,
    `${pair} @trusted${family} return`,
    `${pair} @inside${family} return`,
    `${ip} daddr @lease${family} return`,
    ...hide("randomly", " fully-random"),
    ...hide("plainly", ""),
  ];
}

/** The main table; the guard's tables are in guard-tables.ts. */
export const mainTable: TableModel = { name: mainTableName, sets: setNames, chains };

export const hookOf = (chain: string, { chains: all }: TableModel = mainTable): Hook | undefined =>
  all[chain]?.hook;

/** The start of every comment of the base, which makes the table ours. */
export const tableMark = `${mark.alias}table:`;

const versions = new WeakMap<TableModel, string>();

// The rules of another version of podnet have other comments, and are replaced.
function versionOf(model: TableModel): string {
  const known = versions.get(model);
  if (known !== undefined) return known;
  const text = JSON.stringify([model.chains, model.sets]);
  const version = createHash("sha256").update(text).digest("hex").slice(0, 8);
  versions.set(model, version);
  return version;
}

/**
 * The comments of a chain's rules, in order. They identify rules without parsing how libnftables
 * prints them.
 */
export const ruleComments = (chain: string, model: TableModel = mainTable): string[] =>
  (model.chains[chain]?.rules ?? []).map(
    (_rule, i) => `${tableMark}${versionOf(model)}:${chain}:${i}`,
  );

/**
 * The commands that make table, sets, chains and rules, whichever of them exist already; elements
 * stay. Pure. A chain is flushed and filled in one transaction, so that no packet meets an empty
 * chain.
 */
export function makeBase(model: TableModel = mainTable): string[] {
  const { name, sets } = model;
  const all = Object.entries(model.chains);
  return [
    `add table ${name}`,
    ...sets.map((set) => declareSet(name, set)),
    ...all.map(([chain]) => declareChain(chain, model)),
    ...all.map(([chain]) => `flush chain ${name} ${chain}`),
    ...all.flatMap(([chain, { rules }]) => {
      const comments = ruleComments(chain, model);
      return rules.map(
        (rule, i) => `add rule ${name} ${chain} ${rule} comment "${comments[i] ?? ""}"`,
      );
    }),
  ];
}

export const deleteBase = ({ name }: TableModel): string[] => [`delete table ${name}`];

/** Most elements that the kernel adds to a set, as a rule. */
const mostCounted = 65_535;

function declareSet(name: string, set: SetName): string {
  const kind = kindOf(set);
  const { type, value, valueFields = value, interval, fields, counted } = kind;
  const { size = mostCounted } = kind;
  const [word, gives] = value === undefined ? ["set", ""] : ["map", ` : ${valueFields}`];
  const flags = interval === true ? " flags interval;" : "";
  const grows = counted === true ? ` size ${size}; flags dynamic;` : "";
  const of = fields === undefined ? `type ${type}` : `typeof ${fields}`;
  return `add ${word} ${name} ${set} { ${of}${gives};${flags}${grows} comment "${tableMark}${set}"; }`;
}

function declareChain(chain: string, model: TableModel): string {
  const hook = hookOf(chain, model);
  if (hook === undefined) return `add chain ${model.name} ${chain}`;
  const { type, priority } = hook;
  return `add chain ${model.name} ${chain} { type ${type} hook ${hook.hook} priority ${priority}; policy accept; }`;
}
