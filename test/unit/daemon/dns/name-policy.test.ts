import test from "ava";
import { type Answer, type DecodedPacket, decode, encode } from "dns-packet";
import { type Ip, isIp, parseIp } from "../../../../core/address.ts";
import type { NetworkName, PodId } from "../../../../core/names.ts";
import type { NamePolicies } from "../../../../daemon/dns/name-policy.ts";
import type { Query } from "../../../../daemon/dns/query.ts";
import { Resolver } from "../../../../daemon/dns/resolver.ts";
import { Turns } from "../../../../daemon/dns/turns.ts";
import { compile } from "../../../../policy/compile.ts";
import { readPolicy } from "../../../../policy/read-policy.ts";

const policed = "policed" as PodId;
const free = "free" as PodId;
const rules = [
  { name: "api", reason: "It is needed", action: "allow", domains: ["api.example"] },
  { name: "lan", action: "allow", cidrs: ["10.8.0.0/16"] },
];
const { egress } = compile([readPolicy({ name: "p", rules })], {
  pods: [],
  host: [],
  hostServices: [],
  cloudMetadata: false,
});

/** A resolver whose upstream server has these addresses for every name. */
function open(addresses: readonly string[], opens = true) {
  const opened: string[] = [];
  const asked: string[] = [];
  const denied: string[] = [];
  const learned: string[] = [];
  const policies: NamePolicies = {
    of: (holder) => (holder === policed ? egress : undefined),
    open(holder, name, ips, seconds) {
      opened.push(`${holder} ${name} ${ips.join(" ")} ${seconds}`);
      return Promise.resolve(opens);
    },
    isLearning: (holder) => holder === free,
    learn: (holder, name, ips) => void learned.push(`${holder} ${name} ${ips.join(" ")}`),
    denied: (holder, name, { policy, rule }) =>
      void denied.push(`${holder} ${name} ${policy}/${rule}`),
  };
  const upstream = (query: Query): Uint8Array => {
    asked.push(query.name);
    const answers = addresses.map(
      (data): Answer => ({
        type: data.includes(":") ? "AAAA" : "A",
        name: query.name,
        ttl: 300,
        data,
      }),
    );
    const { questions = [] } = decode(Buffer.from(query.bytes));
    return encode({ type: "response", id: query.id, questions, answers });
  };
  const resolver = new Resolver({
    network: "blue" as NetworkName,
    zoneOf: () => ({
      domain: "podnet",
      networks: () => ["blue" as NetworkName],
      pools: () => ["203.0.113.64/26"] as never,
      addressesOf: (_network, pod) => (pod === "db" ? [parseIp("10.30.0.9")] : undefined),
      nameAt: () => undefined,
      others: undefined,
    }),
    turns: new Turns({ now: () => 0, monotonic: () => 0 }),
    forwarder: { forward: (query) => Promise.resolve(upstream(query)) },
    counts: { queries: 0, forwarded: 0, refused: 0, timeouts: 0, stale: 0 },
    askerAt: (ip: Ip) => (ip === parseIp("10.30.0.2") ? policed : free),
    policies,
    upstreams: () => [],
  });
  const ask = async (name: string, from = "10.30.0.2"): Promise<string> => {
    const question = encode({
      type: "query",
      id: 7,
      questions: [{ type: "A", name }],
      additionals: [
        {
          type: "OPT",
          name: ".",
          udpPayloadSize: 1232,
          flags: 0,
          extendedRcode: 0,
          ednsVersion: 0,
          flag_do: false,
          options: [],
        },
      ],
    });
    const bytes = await resolver.answer(question, from, "udp");
    return said(decode(Buffer.from(bytes ?? [])));
  };
  return { ask, opened, asked, denied, learned };
}

/** The addresses, or the error with its extended text. */
function said(packet: DecodedPacket & { readonly rcode?: string }): string {
  const found = (packet.answers ?? []).flatMap((each) =>
    "data" in each && typeof each.data === "string" && isIp(each.data) ? [each.data] : [],
  );
  if (packet.rcode === "NOERROR") return found.join(" ");
  const [opt] = packet.additionals ?? [];
  const options = opt?.type === "OPT" ? opt.options : [];
  const why = options.map((option) => {
    const { data = Buffer.of() } = option as { readonly data?: Buffer };
    return `${data.readUInt16BE(0)} ${data.subarray(2).toString()}`;
  });
  return [packet.rcode, ...why].join(": ");
}

test("a pod is answered the names that its policy allows, once they are open", async (t) => {
  const { ask, opened } = open(["203.0.113.1", "10.8.0.1"]);
  t.is(await ask("api.example"), "203.0.113.1 10.8.0.1");
  t.deepEqual(opened, [`${policed} api.example 203.0.113.1 10.8.0.1 330`]);
});

test("another name is refused with the rule's own words, and no server is asked for it", async (t) => {
  const { ask, opened, asked, denied } = open(["203.0.113.1"]);
  t.is(await ask("evil.example"), "REFUSED: 15 policy p, rule default: no rule allows it");
  t.is(await ask("_x.api.example"), "REFUSED: 15 policy p, rule default: no rule allows it");
  t.deepEqual([...opened, ...asked], []);
  const reported = [`${policed} evil.example p/default`, `${policed} _x.api.example p/default`];
  t.deepEqual(denied, reported, "each is reported");
  // A pod without names in its policy, and the names of pods.
  t.is(await ask("evil.example", "10.30.0.3"), "203.0.113.1");
  t.is(await ask("db.podnet"), "10.30.0.9");
  t.deepEqual(opened, []);
  t.deepEqual(denied, reported);
});

test("what cannot be opened is not answered", async (t) => {
  const { ask } = open(["203.0.113.1"], false);
  t.is(await ask("api.example"), "SERVFAIL");
});

test("no name leads inside, nor to a network of this host", async (t) => {
  for (const inside of ["10.9.9.9", "127.0.0.1", "203.0.113.70"]) {
    const { ask, opened, denied } = open([inside]);
    t.regex(await ask("api.example"), /^REFUSED: 15 policy podnet, rule rebinding/, inside);
    t.deepEqual(opened, []);
    t.deepEqual(denied, [`${policed} api.example podnet/rebinding`]);
    const mixed = open([inside, "203.0.113.1"]);
    t.is(await mixed.ask("api.example"), "203.0.113.1", inside);
    t.is(await mixed.ask("api.example", "10.30.0.3"), `${inside} 203.0.113.1`);
  }
});

test("names that a pod resolves are noted while it is learned from, with their addresses", async (t) => {
  const { ask, learned } = open(["203.0.113.1", "10.8.0.1"]);
  t.is(await ask("api.example"), "203.0.113.1 10.8.0.1");
  t.deepEqual(learned, [], "of another pod");
  t.is(await ask("API.example", "10.30.0.3"), "203.0.113.1 10.8.0.1");
  t.is(await ask("db.podnet", "10.30.0.3"), "10.30.0.9");
  // (Not those of pods, and no address inside: there addresses decide.)
  t.deepEqual(learned, [`${free} api.example 203.0.113.1`]);
});
