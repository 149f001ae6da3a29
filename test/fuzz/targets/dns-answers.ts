import { deepStrictEqual, ok } from "node:assert";
import { decode, encode } from "dns-packet";
import { isInternal } from "../../../core/special-addresses.ts";
import { compile } from "../../../policy/compile.ts";
import { filterAnswer } from "../../../policy/dns-answer.ts";
import { readPolicy } from "../../../policy/read-policy.ts";
import type { Random } from "../engine/random.ts";
import type { Target } from "../engine/target.ts";

const { egress } = compile(
  [
    readPolicy({
      name: "p",
      rules: [
        { name: "api", action: "allow", domains: ["a.example"] },
        { name: "lan", action: "allow", cidrs: ["10.7.0.0/16"] },
      ],
    }),
  ],
  { pods: [], host: [], hostServices: [], cloudMetadata: false },
);

const question = [1, 97, 7, ...Buffer.from("example"), 0];
const u16 = (value: number): number[] => [(value >> 8) & 255, value & 255];
const addresses4 = [
  [203, 0, 113, 1],
  [10, 7, 0, 1],
  [10, 0, 0, 1],
  [127, 0, 0, 1],
] as const;
const addresses6 = ["20010db8000000000000000000000001", "fe800000000000000000000000000001"].map(
  (hex) => [...Buffer.from(hex, "hex")],
);

/** A record's data by its type, with lengths that lie now and then. */
function dataOf(type: number, random: Random): readonly number[] {
  const lie = (): number => (random.once(20) ? random.below(3) - 1 : 0);
  switch (type) {
    case 1:
      return random.once(20) ? [1, 2] : random.pick(addresses4);
    case 28:
      return random.pick(addresses6);
    case 5:
      return random.once(3)
        ? [0xc0, random.pick([12, 14, 40, 255])]
        : [1, 98, ...question.slice(2)];
    default: {
      const target = random.once(6) ? question : [0];
      const parameters = Array.from({ length: random.below(4) }, () => {
        const key = random.pick([0, 1, 3, 4, 5, 6]);
        const value = {
          0: [0, random.pick([1, 4, 5])],
          4: [...random.pick(addresses4), ...random.pick(addresses4)],
          6: random.pick(addresses6),
        }[key] ?? [...random.bytes(random.below(6))];
        return [...u16(key), ...u16(value.length + lie()), ...value];
      }).flat();
      return [0, random.once(8) ? 0 : 1, ...target, ...parameters];
    }
  }
}

function generate(random: Random): Uint8Array {
  const records = Array.from({ length: random.below(6) }, () => {
    const type = random.pick([1, 28, 5, 65, 64, 16]);
    const data = dataOf(type, random);
    const owner = random.pick([[0xc0, 12], question, [1, 98, 0xc0, 14], [0xc0, random.below(60)]]);
    const head = [...u16(type), 0, 1, random.once(9) ? 255 : 0, 0, 1, random.below(256)];
    return [...owner, ...head, ...u16(data.length + (random.once(25) ? 1 : 0)), ...data];
  });
  const type = random.pick([1, 28, 65, 64, 255, 16]);
  const count = records.length + (random.once(20) ? 1 : 0);
  const head = [0, 7, 0x81, 0xa0, 0, 1, ...u16(count), 0, 0, 0, 0];
  return Uint8Array.from([...head, ...question, ...u16(type), 0, 1, ...records.flat()]);
}

const seed = (ip: string): Uint8Array =>
  new Uint8Array(
    encode({
      type: "response",
      id: 7,
      questions: [{ name: "a.example", type: "A" }],
      answers: [
        { type: "CNAME", name: "a.example", ttl: 60, data: "b.example" },
        { type: "A", name: "b.example", ttl: 60, data: ip },
      ],
    }),
  );

export const dnsAnswers: Target = {
  name: "dns-answer",
  files: ["policy/dns-answer.ts"],
  seeds: [seed("203.0.113.1"), seed("10.0.0.1")],
  generate,
  lengths: (bytes) =>
    bytes.length > 40 ? [6, 34].map((at) => ({ at, bytes: 2, littleEndian: false })) : [],
  run: (input) => {
    // The resolver has compared the question before.
    const bytes = Uint8Array.from(input);
    if (bytes.length >= 12 + question.length + 4) {
      bytes.set([0, 1], 4);
      bytes.set(question, 12);
    }
    const query = { questionEnd: 12 + question.length + 4, edns: bytes.length % 2 === 0 };
    const filtered = filterAnswer(bytes, query, egress);
    if (filtered.kind === "unreadable") return;
    if (filtered.kind === "rebinding") {
      ok(filtered.addresses.every(isInternal));
      return;
    }
    const { addresses, seconds } = filtered;
    ok(seconds >= 90 && seconds <= 3630);
    ok(addresses.every((ip) => !isInternal(ip) || ip.startsWith("10.7.")));
    const again = filterAnswer(filtered.bytes, query, egress);
    ok(again.kind === "answer", "it is an answer still");
    deepStrictEqual(again.addresses, addresses);
    deepStrictEqual(again.removed, filtered.bytes === bytes ? filtered.removed : []);
    // What was made anew, another codec reads.
    if (filtered.bytes !== bytes) decode(Buffer.from(filtered.bytes));
  },
};
