import { deepStrictEqual, ok } from "node:assert";
import { decode, encode } from "dns-packet";
import { contains, familyOf, lengthOf } from "../../../core/address.ts";
import {
  isAnswer,
  isTruncated,
  readQuery,
  tcpInstead,
  truncated,
} from "../../../daemon/dns/query.ts";
import { timesIn } from "../../../daemon/dns/record-times.ts";
import { replyOf, servFail, wrongQuery } from "../../../daemon/dns/reply.ts";
import { parseReverseName } from "../../../daemon/dns/reverse-name.ts";
import { lookUp, type Zone } from "../../../daemon/dns/zone.ts";
import type { Random } from "../engine/random.ts";
import { type LengthField, type Target, textOf, utf8 } from "../engine/target.ts";

const zone: Zone = {
  domain: "podnet",
  networks: () => ["blue", "red"] as never,
  pools: () => ["10.0.0.0/24", "fd00::/64", "203.0.113.0/24"] as never,
  addressesOf: (_network, pod) => (pod === "web" ? (["10.0.0.2", "fd00::2"] as never) : undefined),
  nameAt: (network, ip) => (network === "red" && ip.endsWith("2") ? "web" : undefined),
  others: {
    pools: () => ["10.0.0.0/16"] as never,
    addressesOf: (_network, pod) => (pod === "far" ? (["10.0.9.2"] as never) : undefined),
    nameAt: (network, ip) => (network === "red" && ip === "10.0.9.2" ? "far" : undefined),
  },
};

/** A host that is in no overlay. */
const { others: _others, ...alone } = zone;

const names = [
  "web.podnet",
  "WEB.blue.podnet",
  "far.podnet",
  "2.9.0.10.in-addr.arpa",
  "3.9.0.10.in-addr.arpa",
  "podnet",
  "blue.podnet",
  "missing.podnet",
  "9.113.0.203.in-addr.arpa",
  "113.0.203.in-addr.arpa",
  "9.2.0.192.in-addr.arpa",
  "9.0.0.10.in-addr.arpa",
  "2.0.0.10.in-addr.arpa",
  "0.0.10.in-addr.arpa",
  `${"fd000000000000000000000000000002".split("").toReversed().join(".")}.ip6.arpa`,
  "a.example",
];
const types = ["A", "AAAA", "PTR", "SOA", "ANY", "AXFR", "TXT"] as const;

const edns = {
  type: "OPT",
  name: ".",
  udpPayloadSize: 1232,
  extendedRcode: 0,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
} as const;

const query = (name: string, type: (typeof types)[number], withEdns: boolean): Uint8Array =>
  encode({
    type: "query",
    id: 0x1234,
    flags: 0x0100,
    questions: [{ name, type: type as "A" }],
    additionals: withEdns ? [{ ...edns, options: [] }] : [],
  });

/**
 * Labels of any bytes before a name that is known, lengths that lie now and then, types and classes
 * of any kind.
 */
const generate = (random: Random): Uint8Array => {
  const strange = Array.from({ length: random.below(4) }, () => random.bytes(random.below(64)));
  const known = random.once(4) ? [] : random.pick(names).split(".").map(utf8);
  const name = [...strange, ...known].flatMap((label) => [
    random.once(30) ? random.below(256) : label.length,
    ...label,
  ]);
  const type = random.pick([1, 6, 12, 28, 251, 252, 255, random.below(256)]);
  const header = [...random.bytes(2), random.below(2), 0, 0, 1, 0, 0, 0, 0, 0, random.below(3)];
  const rest = random.once(2) ? [] : random.bytes(random.below(40));
  return Uint8Array.from([...header, ...name, 0, 0, type, 0, random.pick([1, 3, 255]), ...rest]);
};

const counts = (): LengthField[] =>
  [4, 6, 8, 10].map((at) => ({ at, bytes: 2, littleEndian: false }));

const known = (() => {
  const read = readQuery(query("a.example", "A", false));
  if (read.kind !== "query") throw new Error(read.kind);
  return read.query;
})();

const replies: readonly Uint8Array[] = ["a.example", "A.eXample", "b.example"].map((name) =>
  encode({
    type: "response",
    id: 0x1234,
    questions: [{ name, type: "A" }],
    answers: [{ type: "CNAME", name, ttl: 60, data: "b.example" }],
    additionals: [{ ...edns, options: [] }],
  }),
);

const queries: Target = {
  name: "dns-query",
  files: ["daemon/dns/query.ts", "daemon/dns/record-times.ts", "daemon/dns/zone.ts"],
  except: ["withId", "rcodeOf", "isTruncated", "truncated"],
  seeds: [
    ...names.flatMap((name) => types.map((type, i) => query(name, type, i % 2 === 0))),
    ...replies,
  ],
  generate,
  lengths: counts,
  run: (bytes) => {
    // What a server says, too, comes from elsewhere.
    if (isAnswer(bytes, known, 0x1234)) ok(bytes.length >= known.questionEnd);
    for (const at of timesIn(bytes, known.questionEnd) ?? []) ok(at + 6 <= bytes.length);
    const instead = tcpInstead(bytes);
    if (instead !== undefined) {
      ok(isTruncated(instead) && instead.length <= bytes.length);
      deepStrictEqual([...instead.subarray(0, 2)], [...bytes.subarray(0, 2)]);
    }
    const read = readQuery(bytes);
    if (read.kind === "nothing") return;
    if (read.kind === "wrong") {
      const reply = wrongQuery(bytes, read.rcode);
      deepStrictEqual(reply.length, 12);
      deepStrictEqual([...reply.subarray(0, 2)], [...bytes.subarray(0, 2)]);
      return;
    }
    const asked = read.query;
    ok(asked.udpBytes >= 512 && asked.questionEnd <= bytes.length);
    const found = lookUp(asked, bytes.length % 2 === 0 ? zone : alone);
    for (const reply of [
      servFail(asked),
      ...(found.kind === "elsewhere" ? [] : [replyOf(asked, found)]),
    ]) {
      ok(isAnswer(reply, asked, asked.id), "it answers what was asked");
      ok(reply.length < 1200, `${reply.length} bytes`);
      ok(isAnswer(truncated(reply, asked), asked, asked.id));
      ok(isTruncated(truncated(reply, asked)) && !isTruncated(reply));
      decode(Buffer.from(reply));
    }
  },
};

const reverseNames: Target = {
  name: "reverse-name",
  files: ["daemon/dns/reverse-name.ts"],
  seeds: names.map((name) => utf8(name)),
  words: ["in-addr.arpa", "ip6.arpa", ".", "0.", "255.", "f."],
  run: (bytes) => {
    const read = parseReverseName(textOf(bytes));
    if (read === undefined) return;
    const { network, ip } = read;
    if (ip !== undefined) {
      ok(contains(network, ip));
      deepStrictEqual(lengthOf(network), familyOf(ip) === 4 ? 32 : 128);
    } else ok(lengthOf(network) < 128);
  },
};

export const dns: readonly Target[] = [queries, reverseNames];
