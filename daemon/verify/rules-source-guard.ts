/**
 * How the rules source (`rules-source.ts`) reads the guard, policies and services: it shares no
 * code with podnet, on purpose.
 */
import { inside, type Json, listOf, plain, reached, wordOf } from "./rules-source-reader.ts";

/** What a port may send with. */
interface Port {
  readonly link: string;
  readonly macs: string[];
  readonly addresses: string[];
  /** A MAC and an IPv4 address together, `MAC/ADDRESS`: nothing else is asked of such a packet. */
  readonly senders: string[];
  /** Sets of ports that are asked for less. */
  readonly sets: string[];
}

/** An address of a pod, from which packets lead to rules of its policy, or to which. */
interface Holder {
  readonly direction: string;
  readonly bridge: string;
  readonly address: string;
  /** Of the chain that it leads to. */
  readonly rules: number;
}

interface Report {
  /** Frames that come by a port are asked for their MAC. */
  readonly asked: boolean;
  readonly ports: Port[];
  /** The directions in which packets are asked for their policy: `egress4`. */
  readonly directions: string[];
  readonly holders: Holder[];
}

interface Table {
  readonly sets: readonly Json[];
  readonly chains: readonly Json[];
  readonly rules: readonly Json[];
}

/** A table as nft lists it; empty where it is none of those. */
function tableOf(entries: readonly unknown[], family: string, name: string): Table {
  const of = (kind: string): Json[] =>
    entries
      .map((each) => inside(each, kind))
      .filter((each): each is Json => typeof each === "object" && each !== null)
      .filter((each) => each["family"] === family && each["table"] === name);
  return { sets: [...of("set"), ...of("map")], chains: of("chain"), rules: of("rule") };
}

const elementsOf = ({ sets }: Table, name: string): readonly unknown[] =>
  sets.filter((set) => set["name"] === name).flatMap(({ elem }) => listOf(elem));

/** The rules, as text, that packets at a hook come by. */
function metAt({ chains, rules }: Table, hook: string): string[] {
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
  const begin = chains.filter((chain) => chain["hook"] === hook).map(({ name }) => wordOf(name));
  const come = reached(begin, leads);
  return rules
    .filter(({ chain }) => come.includes(wordOf(chain)))
    .map(({ expr }) => JSON.stringify(expr ?? []));
}

/** A number as nft writes it, in hex digits; undefined for anything else. */
function digitsOf(word: string, digits: number): string | undefined {
  if (!/^(?:0x[0-9a-f]{1,32}|[0-9]{1,39})$/.test(word)) return undefined;
  const text = BigInt(word).toString(16).padStart(digits, "0");
  return text.length === digits ? text : undefined;
}

const macText = (word: string): string =>
  digitsOf(word, 12)?.replaceAll(/(..)(?=.)/g, "$1:") ?? word;

/** Canonical: the URL parser writes IPv6 as RFC 5952 does. */
const ip6Text = (word: string): string => {
  const digits = digitsOf(word, 32);
  if (digits === undefined) return word;
  const groups = digits.replaceAll(/(....)(?=.)/g, "$1:");
  return new URL(`http://[${groups}]/`).hostname.slice(1, -1);
};

const wordsFor = { macs: macText, addresses4: (word: string) => word, addresses6: ip6Text };
/** Sets of ports of which less is asked. */
const lenient = ["any4", "any6", "choosing", "changing", "unguarded"];

/**
 * Parses what nft lists of both tables, a line each, or of one. Throws `SyntaxError` for invalid
 * JSON.
 */
export function readGuard(text: string): Report {
  const entries = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .flatMap((line) => listOf(inside(JSON.parse(line), "nftables")));
  const guard = tableOf(entries, "bridge", "podnet");
  const ports = new Map<string, Port>();
  const portOf = (link: string): Port => {
    const found = ports.get(link) ?? { link, macs: [], addresses: [], senders: [], sets: [] };
    ports.set(link, found);
    return found;
  };
  for (const [set, textOf] of Object.entries(wordsFor))
    for (const element of elementsOf(guard, set)) {
      const [link = "", word = ""] = plain(element);
      portOf(link)[set === "macs" ? "macs" : "addresses"].push(textOf(word));
    }
  for (const element of elementsOf(guard, "senders4")) {
    const [link = "", address = "", mac = ""] = plain(element);
    portOf(link).senders.push(`${macText(mac)}/${address}`);
  }
  for (const set of lenient)
    for (const element of elementsOf(guard, set)) portOf(plain(element)[0] ?? "").sets.push(set);
  const policy = tableOf(entries, "inet", "podnet_policy");
  const forward = metAt(policy, "forward");
  const directions = ["egress4", "egress6", "ingress4", "ingress6"];
  return {
    asked: metAt(guard, "prerouting").some((rule) => rule.includes('"@macs"')),
    ports: [...ports.values()],
    directions: directions.filter((name) => forward.some((rule) => rule.includes(`"@${name}"`))),
    holders: directions.flatMap((name) =>
      elementsOf(policy, name).map((element): Holder => {
        const [key, value] = listOf(element);
        const [bridge = "", address = ""] = plain(key);
        const target = wordOf(inside(inside(value, "jump") ?? inside(value, "goto"), "target"));
        const rules = policy.rules.filter(({ chain }) => chain === target).length;
        return { direction: name, bridge, address, rules };
      }),
    ),
  };
}

/** A port of a service on a bridge, and where its connections are led. */
interface Door {
  readonly bridge: string;
  readonly protocol: string;
  readonly address: string;
  readonly port: number;
  /** Each backend with its number of slots. */
  readonly backends: { readonly address: string; readonly port: number; readonly slots: number }[];
}

interface ServicesReport {
  /** The families in which packets that come in are asked for their service: 4, 6. */
  readonly asked: number[];
  readonly doors: Door[];
}

const servicesTable = "podnet_services";
/** nft writes a protocol by its name where /etc/protocols has it. */
const protocols: Readonly<Record<string, string>> = { "6": "tcp", "17": "udp", "132": "sctp" };

/** Parses what nft lists of the table; of an empty text nothing. Throws `SyntaxError`. */
export function readServices(text: string): ServicesReport {
  const entries = text.trim() === "" ? [] : listOf(inside(JSON.parse(text), "nftables"));
  const of = (kind: string): Json[] =>
    entries
      .map((each) => inside(each, kind))
      .filter((each): each is Json => typeof each === "object" && each !== null)
      .filter((each) => each["family"] === "inet" && each["table"] === servicesTable);
  const [maps, rules, chains] = [of("map"), of("rule"), of("chain")];
  const elementsOf = (name: string): readonly unknown[] =>
    maps.filter((map) => map["name"] === name).flatMap(({ elem }) => listOf(elem));
  const slots = new Map<string, ReadonlyMap<number, readonly string[]>>();
  const slotsOf = (name: string): ReadonlyMap<number, readonly string[]> => {
    const known = slots.get(name);
    if (known !== undefined) return known;
    const read = new Map(
      elementsOf(name).map((element) => {
        const [key, value] = listOf(element);
        return [Number(plain(key)[0]), plain(value)] as const;
      }),
    );
    slots.set(name, read);
    return read;
  };
  const begins = new Set(
    chains.filter(({ hook }) => hook === "prerouting").map(({ name }) => wordOf(name)),
  );
  const met = rules
    .filter(({ chain }) => begins.has(wordOf(chain)))
    .map(({ expr }) => JSON.stringify(expr ?? []));
  return {
    asked: [4, 6].filter((family) => met.some((rule) => rule.includes(`"@services${family}"`))),
    doors: [4, 6].flatMap((family) =>
      elementsOf(`services${family}`).map((element): Door => {
        const [key, value] = listOf(element);
        const [bridge = "", protocol = "", address = "", port = ""] = plain(key);
        const chain = wordOf(inside(inside(value, "jump") ?? inside(value, "goto"), "target"));
        const choosing = rules.filter((rule) => rule["chain"] === chain);
        const backends = choosing.flatMap(({ expr }) => backendsOf(listOf(expr), slotsOf));
        return {
          bridge,
          protocol: protocols[protocol] ?? protocol,
          address,
          port: Number(port),
          backends,
        };
      }),
    ),
  };
}

/** The backends that a rule draws among: all slots from an offset on. */
function backendsOf(
  expressions: readonly unknown[],
  slotsOf: (map: string) => ReadonlyMap<number, readonly string[]>,
): Door["backends"] {
  const map = expressions
    .map((each) => inside(inside(inside(each, "dnat"), "addr"), "map"))
    .find((each) => each !== undefined);
  const key = inside(map, "key");
  const drawn = inside(key, "numgen") ?? inside(key, "jhash");
  const [count, offset] = [Number(inside(drawn, "mod")), Number(inside(drawn, "offset") ?? 0)];
  const there = slotsOf(wordOf(inside(map, "data")).replace(/^@/, ""));
  const found = new Map<string, Door["backends"][number]>();
  for (let i = 0; i < count; i++) {
    const [address = "no slot", port = "0"] = there.get(offset + i) ?? [];
    const text = `${address} ${port}`;
    const slots = (found.get(text)?.slots ?? 0) + 1;
    found.set(text, { address, port: Number(port), slots });
  }
  return [...found.values()];
}
