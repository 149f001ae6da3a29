import { type Answer, decode, encode } from "dns-packet";
import test from "ava";
import { type Ip, parseIp } from "../../../core/address.ts";
import { readQuery } from "../../../daemon/dns/query.ts";
import { refusedFor } from "../../../daemon/dns/reply.ts";
import { compile, type DecisionList } from "../../../policy/compile.ts";
import { type FilteredAnswer, filterAnswer } from "../../../policy/dns-answer.ts";
import { blockedError, decideQuestion } from "../../../policy/dns-question.ts";
import { canonicalName } from "../../../policy/domain.ts";
import { readPolicy } from "../../../policy/read-policy.ts";

const list = (fields: object): DecisionList =>
  compile([readPolicy({ name: "p", ...fields })], {
    pods: [],
    host: [],
    hostServices: [],
    cloudMetadata: false,
  }).egress;
const api = { name: "api", action: "allow", domains: ["api.example", "*.cdn.example"] };
const allowing = list({ rules: [api, { name: "lan", action: "allow", cidrs: ["10.7.0.0/16"] }] });

const asks = (decisions: DecisionList, name: string): string => {
  const { verdict, policy, rule } = decideQuestion(decisions, canonicalName(name) ?? null);
  return `${verdict} ${policy}/${rule}`;
};

test("a pod asks for names to which some connection may be allowed, and for no others", (t) => {
  t.is(asks(allowing, "API.example."), "allow p/api");
  t.is(asks(allowing, "x.y.cdn.example"), "allow p/api");
  t.is(asks(allowing, "cdn.example"), "deny p/default");
  t.is(asks(allowing, "secret.attacker.test"), "deny p/default");
  t.is(asks(allowing, "1.2.0.192.in-addr.arpa"), "deny p/default");
  t.is(asks(allowing, "not a host"), "deny p/default");
  // The first rule that matches decides; one that closes a single port leaves the name open.
  const bad = { name: "bad", action: "deny", domains: ["*.example"] };
  t.is(asks(list({ rules: [bad, api] }), "api.example"), "deny p/bad");
  t.is(asks(list({ rules: [{ ...bad, ports: [25] }, api] }), "api.example"), "allow p/api");
  t.is(asks(list({ default: "allow", rules: [bad] }), "api.example"), "deny p/bad");
  t.is(asks(list({ default: "allow", rules: [bad] }), "api.test"), "allow p/default");
  t.is(
    asks(list({ rules: [api, { name: "web", action: "allow", ports: [443] }] }), "any.test"),
    "allow p/web",
  );
  // Where no rule has domains, all names may be asked for.
  t.is(
    asks(list({ rules: [{ name: "lan", action: "allow", cidrs: ["10.0.0.0/8"] }] }), "any.test"),
    "allow p/default",
  );
});

test("a known server of DNS over HTTPS needs a rule that has its very name", (t) => {
  const open = list({ default: "allow", rules: [{ ...api, action: "deny" }] });
  const wild = list({ rules: [{ name: "w", action: "allow", domains: ["*.google", "*.eu"] }] });
  const hidden = "deny podnet/encrypted-dns";
  for (const name of ["dns.google", "DNS.Google.", "a1b2c3.dns.nextdns.io"])
    t.is(asks(open, name), hidden, name);
  t.is(asks(open, "use-application-dns.net"), hidden, "Firefox asks whether it may use one");
  t.is(asks(wild, "dns.google"), hidden);
  t.is(asks(wild, "dns0.eu"), hidden);
  t.is(asks(wild, "about.google"), "allow p/w");
  t.is(asks(open, "notdns.google"), "allow p/default");
  const named = { name: "doh", action: "allow", domains: ["dns.google"] };
  t.is(asks(list({ rules: [named] }), "dns.google"), "allow p/doh");
  t.is(asks(list({ rules: [{ ...named, action: "deny" }] }), "dns.google"), "deny p/doh");
  // Where no rule has domains, names are not looked at.
  t.is(asks(list({ default: "allow", rules: [] }), "dns.google"), "allow p/default");
});

test("a refusal says REFUSED and Blocked with its words, to clients that speak EDNS", (t) => {
  for (const edns of [true, false]) {
    const asked = query("secret.attacker.test", "A", edns);
    const read = readQuery(asked);
    if (read.kind !== "query") throw new Error(read.kind);
    const reply = decode(
      Buffer.from(
        refusedFor(read.query, {
          code: blockedError,
          text: "podnet: policy p, rule default",
        }),
      ),
    );
    t.is((reply as unknown as { rcode: string }).rcode, "REFUSED");
    const option = reply.additionals?.flatMap((one) => (one.type === "OPT" ? one.options : []))[0];
    if (edns) t.is(option?.code as number, 15);
    t.deepEqual(
      (option as { data?: Buffer } | undefined)?.data?.toString("latin1"),
      edns ? "\u0000\u000fpodnet: policy p, rule default" : undefined,
    );
  }
});

type Kind = "A" | "AAAA" | "HTTPS" | "TXT" | "ANY";
const numbers = { A: 1, AAAA: 28, HTTPS: 65, TXT: 16, ANY: 255 } as const;

function query(name: string, type: Kind, edns = false): Uint8Array {
  const bytes = encode({
    type: "query",
    id: 7,
    flags: 0x0100,
    questions: [{ name, type: "A" }],
    additionals: edns
      ? [
          {
            type: "OPT",
            name: ".",
            udpPayloadSize: 1232,
            extendedRcode: 0,
            ednsVersion: 0,
            flags: 0,
            flag_do: false,
            options: [],
          },
        ]
      : [],
  });
  // dns-packet knows fewer types than there are.
  const end = endOfQuestion(name);
  bytes.writeUInt16BE(numbers[type], end - 4);
  return bytes;
}
const endOfQuestion = (name: string): number => 12 + name.length + 2 + 4;

interface Raw {
  readonly name: string;
  readonly type: number;
  readonly ttl?: number;
  readonly data: readonly number[];
}
const encodeName = (name: string): number[] => [
  ...name.split(".").flatMap((label) => [label.length, ...Buffer.from(label)]),
  0,
];
const u16 = (value: number): number[] => [value >> 8, value & 255];
/** An answer to a question, with records as they are. */
function answer(name: string, type: Kind, records: readonly Raw[], flags = 0x8180): Uint8Array {
  const head = [...u16(7), ...u16(flags), ...u16(1), ...u16(records.length), 0, 0, 0, 1];
  const question = [...encodeName(name), ...u16(numbers[type]), 0, 1];
  const body = records.flatMap(({ name: owner, type, ttl = 300, data }) => [
    // The asked name as a pointer, as servers write it.
    ...(owner === name ? [0xc0, 12] : encodeName(owner)),
    ...u16(type),
    0,
    1,
    ...u16(ttl >>> 16),
    ...u16(ttl & 0xffff),
    ...u16(data.length),
    ...data,
  ]);
  return Uint8Array.from([...head, ...question, ...body, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
}
const a = (name: string, ip: string, ttl?: number): Raw => ({
  name,
  type: 1,
  data: ip.split(".").map(Number),
  ...(ttl === undefined ? {} : { ttl }),
});
const aaaa = (name: string, hex: string): Raw => ({
  name,
  type: 28,
  data: [...Buffer.from(hex, "hex")],
});
const cname = (name: string, to: string): Raw => ({ name, type: 5, data: encodeName(to) });
const https = (name: string, data: readonly number[]): Raw => ({ name, type: 65, data });
const parameter = (key: number, value: readonly number[]): number[] => [
  ...u16(key),
  ...u16(value.length),
  ...value,
];

const filter = (
  name: string,
  type: Kind,
  records: readonly Raw[],
  decisions = allowing,
  edns = true,
): FilteredAnswer =>
  filterAnswer(answer(name, type, records), { questionEnd: endOfQuestion(name), edns }, decisions);
/** The records of an answer that passed, as dns-packet reads them. */
function passed(filtered: FilteredAnswer): {
  answers: readonly Answer[];
  addresses: readonly Ip[];
  seconds: number;
} {
  if (filtered.kind !== "answer") throw new Error(filtered.kind);
  const { answers = [] } = decode(Buffer.from(filtered.bytes));
  return { answers, addresses: filtered.addresses, seconds: filtered.seconds };
}
const dataOf = (answers: readonly Answer[]): unknown[] =>
  answers.map((one) => "data" in one && one.data);
const ips = (...texts: readonly string[]): Ip[] => texts.map((text) => parseIp(text));

test("the addresses of a name pass over its CNAMEs, and times to live are bounded", (t) => {
  const whole = passed(
    filter("api.example", "A", [
      cname("api.example", "x.cdn.test"),
      cname("x.cdn.test", "y.cdn.test"),
      a("y.cdn.test", "203.0.113.1", 100),
      a("y.cdn.test", "203.0.113.2", 9999),
      a("other.test", "203.0.113.3"),
    ]),
  );
  t.deepEqual(whole.addresses, ips("203.0.113.1", "203.0.113.2"));
  t.deepEqual(dataOf(whole.answers), ["x.cdn.test", "y.cdn.test", "203.0.113.1", "203.0.113.2"]);
  t.deepEqual(
    whole.answers.map((one) => "ttl" in one && one.ttl),
    [300, 300, 100, 3600],
  );
  t.is(whole.seconds, 130);
  const short = passed(filter("api.example", "A", [a("api.example", "203.0.113.1", 0)]));
  t.is(short.seconds, 90);
  const long = passed(
    filter("api.example", "AAAA", [aaaa("api.example", "20010db8000000000000000000000001")]),
  );
  t.deepEqual([long.addresses, long.seconds], [ips("2001:db8::1"), 330]);
  const huge = passed(filter("api.example", "A", [a("api.example", "203.0.113.1", 0x7fff_ffff)]));
  t.is(huge.seconds, 3630);
});

test("addresses inside are taken out of an answer, and one that has no other is refused", (t) => {
  const mixed = filter("api.example", "A", [
    a("api.example", "10.0.0.1"),
    a("api.example", "203.0.113.1"),
    a("api.example", "169.254.169.254"),
    a("api.example", "127.0.0.1"),
  ]);
  t.deepEqual(dataOf(passed(mixed).answers), ["203.0.113.1"]);
  t.deepEqual(
    mixed.kind === "answer" && mixed.removed,
    ips("10.0.0.1", "169.254.169.254", "127.0.0.1"),
  );
  const inside = filter("api.example", "A", [a("api.example", "192.168.1.1")]);
  t.deepEqual(inside, { kind: "rebinding", addresses: ips("192.168.1.1") });
  const mapped = filter("api.example", "AAAA", [
    aaaa("api.example", "00000000000000000000ffff0a000001"),
  ]);
  t.is(mapped.kind, "rebinding");
  t.is(filter("api.example", "ANY", [a("api.example", "192.168.1.1")]).kind, "rebinding");
  // Where a rule allows the address itself, its name may lead there.
  t.deepEqual(
    passed(filter("api.example", "A", [a("api.example", "10.7.0.1")])).addresses,
    ips("10.7.0.1"),
  );
});

test("HTTPS records are filtered alike: hints inside, ECH, and what leads to other names", (t) => {
  const own = [0, 1, 0];
  const alpn = parameter(1, [2, 0x68, 0x32]);
  const data = (...parts: readonly number[][]): readonly number[] => [...own, ...parts.flat()];
  const records = [
    https(
      "api.example",
      data(alpn, parameter(4, [203, 0, 113, 1, 10, 0, 0, 1]), parameter(5, [1, 2, 3])),
    ),
    https(
      "api.example",
      data(
        alpn,
        parameter(4, [10, 0, 0, 1]),
        parameter(6, [...Buffer.from("20010db8000000000000000000000001", "hex")]),
      ),
    ),
    https("api.example", data(parameter(0, [0, 5]), parameter(5, [1, 2, 3]))),
    https("api.example", data(parameter(0, [0, 4]), parameter(4, [10, 0, 0, 1]))),
    https("api.example", [0, 0, ...encodeName("other.test")]),
    https("api.example", [0, 1, ...encodeName("other.test")]),
    https("api.example", [0, 1, 0, 0, 4, 0, 9, 1]),
    https("api.example", [0]),
  ];
  const { answers, addresses } = passed(filter("api.example", "HTTPS", records));
  t.deepEqual(addresses, ips("203.0.113.1", "2001:db8::1"));
  t.deepEqual(
    dataOf(answers).map((one) => [...(one as Uint8Array)]),
    [
      data(alpn, parameter(4, [203, 0, 113, 1])),
      data(alpn, parameter(6, [...Buffer.from("20010db8000000000000000000000001", "hex")])),
    ] as never,
  );
});

test("answers without addresses pass as they are, and what cannot be read does not pass", (t) => {
  const text = answer("api.example", "TXT", [{ name: "api.example", type: 16, data: [1, 65] }]);
  const query = { questionEnd: endOfQuestion("api.example"), edns: true };
  const filtered = filterAnswer(text, query, allowing);
  t.deepEqual(filtered.kind === "answer" && filtered.bytes, text);
  const none = answer("api.example", "A", [], 0x8183);
  const missing = filterAnswer(none, query, allowing);
  t.deepEqual(missing.kind === "answer" && [missing.bytes, missing.addresses], [none, []]);
  const whole = answer("api.example", "A", [a("api.example", "203.0.113.1")]);
  for (let length = 0; length < whole.length - 11; length++)
    t.is(filterAnswer(whole.subarray(0, length), query, allowing).kind, "unreadable", `${length}`);
  // A name that points to itself, and one that points ahead.
  for (const pointer of [query.questionEnd, query.questionEnd + 40]) {
    const wrong = Uint8Array.from(whole);
    wrong.set(u16(0xc000 | pointer), query.questionEnd);
    t.is(filterAnswer(wrong, query, allowing).kind, "unreadable");
  }
  const plain = filter("api.example", "A", [a("api.example", "203.0.113.1")], allowing, false);
  t.is(plain.kind === "answer" && decode(Buffer.from(plain.bytes)).additionals?.length, 0);
});
