import { type Family, familyOf, type Ip, ipToBigInt } from "../../../core/address.ts";
import { parseIpRange } from "../../../core/ip-range.ts";
import type { Protocol } from "../../../policy/model.ts";

/** The first packet of a connection, on its way through the host from one link to another. */
export interface Packet {
  readonly from: string;
  readonly to: string;
  readonly source: Ip;
  readonly destination: Ip;
  readonly protocol: Protocol;
  /** The port that the connection is opened to; absent for ICMP. */
  readonly port?: number;
}

/** What becomes of a packet: `relayed` goes to a port of the host instead. */
export type Fate = "passes" | "closed" | "relayed";

/** A rule as the kernel goes through it. */
export interface ReadRule {
  matches(packet: Packet): boolean;
  /** `return` ends the chain, `next` goes on with the rule after it. */
  readonly verdict: Fate | "return" | "next";
  /** The map that says where the packet goes on, and comes back from. */
  readonly map?: { readonly name: string; key(packet: Packet): string | undefined };
  /** The chain that the packet goes on in instead. */
  readonly goto?: string;
}

/** A field's value; undefined where the packet has no such field, which no rule matches then. */
type Field = (packet: Packet) => string | undefined;

const address =
  (side: "source" | "destination", family: Family): Field =>
  ({ [side]: ip }) =>
    familyOf(ip) === family ? ip : undefined;

const portOf =
  (wanted: Protocol): Field =>
  ({ protocol, port }) =>
    protocol === wanted ? String(port) : undefined;

const protocolName = ({ protocol, source }: Packet): string =>
  protocol === "icmp" && familyOf(source) === 6 ? "icmpv6" : protocol;

/** Type 128 is an echo request (RFC 4443). */
const echo6: Field = (packet) => (protocolName(packet) === "icmpv6" ? "128" : undefined);

const fields: Readonly<Record<string, Field>> = {
  iifname: ({ from }) => `"${from}"`,
  oifname: ({ to }) => `"${to}"`,
  "ip saddr": address("source", 4),
  "ip daddr": address("destination", 4),
  "ip6 saddr": address("source", 6),
  "ip6 daddr": address("destination", 6),
  "meta l4proto": protocolName,
  "tcp dport": portOf("tcp"),
  "udp dport": portOf("udp"),
  "sctp dport": portOf("sctp"),
  "icmpv6 type": echo6,
  "ct direction": () => "original",
  "ct state": () => "new",
  // (None is addressed to the host itself.)
  "fib daddr type": () => "unicast",
  "tcp flags & (syn | ack)": ({ protocol }) => (protocol === "tcp" ? "syn" : undefined),
};

const anyField = Object.keys(fields)
  .map((name) => name.replaceAll(/[()|&]/g, "\\$&"))
  .join("|");
const condition = new RegExp(
  `^((?:${anyField})(?: \\. (?:${anyField}))*) (vmap @\\w+|!= (?:\\{[^}]*\\}|\\S+)|\\{[^}]*\\}|\\S+) ?`,
);

/** What is counted of a packet, or written to it, which no rule here looks at. */
const noted = new RegExp(
  `^(?:(?:${[
    "counter",
    "meta mark set \\w+",
    "meta priority set [^@]*map @\\w+",
    "update @\\w+ \\{[^}]*\\}",
    'log group \\d+ snaplen \\d+ prefix "[^"]*"',
  ].join("|")}) ?)+`,
);

const verdicts: Readonly<Record<string, ReadRule["verdict"]>> = {
  "": "next",
  goto: "return",
  return: "return",
  drop: "closed",
  reject: "closed",
  redirect: "relayed",
};

const known = new Map<string, ReadRule>();

/** Reads a rule in nft's words. Throws when it has a word that is not known here. */
export function readRule(text: string): ReadRule {
  const rule = known.get(text) ?? read(text);
  known.set(text, rule);
  return rule;
}

function read(text: string): ReadRule {
  const conditions: ((packet: Packet) => boolean)[] = [];
  let map: ReadRule["map"];
  let rest = text;
  for (let found = condition.exec(rest); found !== null; found = condition.exec(rest)) {
    const [whole, names = "", value = ""] = found;
    const field = joined(names);
    if (value.startsWith("vmap @")) map = { name: value.slice("vmap @".length), key: field };
    else conditions.push(comparison(field, value));
    rest = rest.slice(whole.length);
  }
  const matches = (packet: Packet): boolean => conditions.every((holds) => holds(packet));
  if (map !== undefined) return { matches, verdict: "next", map };
  const [word = "", chain = ""] = rest.replace(noted, "").split(" ");
  const verdict = verdicts[word];
  if (verdict === undefined) throw new Error(`The fake nftables cannot read the rule: ${text}`);
  return { matches, verdict, ...(word === "goto" ? { goto: chain } : {}) };
}

function joined(names: string): Field {
  const all = names.split(" . ").map((name) => fields[name] as Field);
  return (packet) => {
    const values = all.map((field) => field(packet));
    return values.includes(undefined) ? undefined : values.join(" . ");
  };
}

function comparison(field: Field, text: string): (packet: Packet) => boolean {
  const none = text.startsWith("!= ");
  const members = text
    .replace("!= ", "")
    .replaceAll(/[{}]/g, "")
    .split(",")
    .map((each) => memberOf(each.trim()));
  return (packet) => {
    const value = field(packet);
    return value !== undefined && members.some((has) => has(value)) !== none;
  };
}

/** A word, a port or an address, or a range of those. */
function memberOf(text: string): (value: string) => boolean {
  const [, low, high = low] = /^(\d+)(?:-(\d+))?$/.exec(text) ?? [];
  if (low !== undefined)
    return (value) => Number(value) >= Number(low) && Number(value) <= Number(high);
  if (!/[.:]/.test(text)) return (value) => value === text;
  const { first, last } = parseIpRange(text);
  const [from, to] = [ipToBigInt(first), ipToBigInt(last)];
  return (value) => {
    if (familyOf(value as Ip) !== familyOf(first)) return false;
    const number = ipToBigInt(value as Ip);
    return number >= from && number <= to;
  };
}
