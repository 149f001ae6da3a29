import { deepStrictEqual, ok } from "node:assert";
import { ClientHelloReader, longestHello } from "../../../policy/client-hello.ts";
import { canonicalName } from "../../../policy/domain.ts";
import { closingHead, longestHead, RequestHeadReader } from "../../../policy/request-head.ts";
import { clientHellos, requestHeads } from "../../fixtures/starts.ts";
import type { Random } from "../engine/random.ts";
import { type LengthField, type Target, utf8 } from "../engine/target.ts";

interface Reader<Result extends { readonly kind: string }> {
  take(piece: Uint8Array): Result;
  readonly start: Uint8Array;
}

/** What a reader makes of a connection's beginning, which it gives alike in any pieces. */
function inPieces<Result extends { readonly kind: string }>(
  bytes: Uint8Array,
  make: () => Reader<Result>,
): Result {
  const whole = make().take(bytes);
  const size = 1 + ((bytes[bytes.length >> 1] ?? 0) % 97);
  const reader = make();
  for (let at = 0; at < bytes.length; at += size) {
    const result = reader.take(bytes.subarray(at, at + size));
    if (result.kind === "more") continue;
    deepStrictEqual(reader.start, bytes.subarray(0, at + size), "all of it is passed on");
    deepStrictEqual(result, whole, `in pieces of ${size}`);
    deepStrictEqual(reader.take(Uint8Array.of(1)), whole, "what has been decided stays");
    return whole;
  }
  deepStrictEqual(whole.kind, "more");
  return whole;
}

const u16 = (value: number): number[] => [(value >> 8) & 255, value & 255];
const vector16 = (bytes: readonly number[], lie: number): number[] => [
  ...u16(bytes.length + lie),
  ...bytes,
];

/** A ClientHello by its grammar, in records of any size; a length that lies now and then. */
function generateHello(random: Random): Uint8Array {
  const lie = (): number => (random.once(25) ? random.below(5) - 2 : 0);
  const name = [...utf8(random.pick(["a.example", "192.0.2.1", "", "*.a", "A.B.Example."]))];
  const entry = [random.once(12) ? 1 : 0, ...vector16(name, lie())];
  const names = random.once(12) ? [...entry, ...entry] : entry;
  const types = [0, 10, 43, 51, 0xfe0d, 0x0a0a, random.below(65_536)];
  const extensions = Array.from({ length: random.below(6) }, () => {
    const type = random.pick(types);
    const body = type === 0 ? vector16(names, lie()) : [...random.bytes(random.below(40))];
    return [...u16(type), ...vector16(body, lie())];
  }).flat();
  const session = [...random.bytes(random.once(10) ? 33 : random.pick([0, 32]))];
  const body = [
    ...(random.once(20) ? [2, 0] : [3, 3]),
    ...random.bytes(32),
    session.length,
    ...session,
    ...vector16([...random.bytes(random.once(10) ? random.below(4) : 6)], lie()),
    ...(random.once(15) ? [0] : [1, 0]),
    ...(random.once(10) ? [] : vector16(extensions, lie())),
  ];
  const length = body.length + lie();
  const message = [random.once(20) ? 2 : 1, random.once(30) ? 1 : 0, ...u16(length), ...body];
  const size = random.once(2) ? 16_384 : 1 + random.below(200);
  const records: number[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.slice(at, at + size);
    records.push(random.once(40) ? 23 : 22, random.once(40) ? 2 : 3, 1, ...vector16(part, lie()));
  }
  return Uint8Array.from(records);
}

const hello = clientHellos.get("openssl-3.0") as Uint8Array;

const hellos: Target = {
  name: "client-hello",
  files: ["policy/client-hello.ts", "policy/gathered.ts"],
  seeds: [
    ...clientHellos.values(),
    Uint8Array.from([...hello.subarray(0, 3), 0, 0]),
    Uint8Array.from([...hello.subarray(0, 3), 255, 255]),
    Uint8Array.from([22, 3, 1, 0, 4, 1, 1, 0, 0]),
    // Records of a byte each.
    Uint8Array.from({ length: 2 * longestHello + 1 }, (_, i) => [22, 3, 1, 0, 1, 1][i % 6] ?? 0),
    utf8("GET / HTTP/1.1\r\n\r\n"),
  ],
  generate: generateHello,
  lengths: (bytes): LengthField[] =>
    [3, 7, 44]
      .filter((at) => at + 2 <= bytes.length)
      .map((at) => ({ at, bytes: 2, littleEndian: false })),
  longest: 3 * longestHello,
  run: (bytes) => {
    const read = inPieces(bytes, () => new ClientHelloReader());
    if (read.kind === "hello" && read.name !== null)
      deepStrictEqual(canonicalName(read.name), read.name);
  },
};

const line = "GET / HTTP/1.1\r\n";

const heads: Target = {
  name: "request-head",
  files: ["policy/request-head.ts", "policy/gathered.ts"],
  seeds: [
    ...requestHeads.values(),
    ...[
      `${line}Host: a.example:80\r\n\r\nbody`,
      `${line}Host: [2001:db8::1]:80\r\n\r\n`,
      `${line}Host: 192.0.2.1\r\nUpgrade: websocket\r\n\r\n`,
      `${line}\r\n`,
      `${line}Host: a\r\nHost: a\r\n\r\n`,
      `${line}Host: a@b\r\n\r\n`,
      `${line}Host: b\u00fc.example\r\n\r\n`,
      `${line}Host : a\r\n\r\n`,
      `${line}Host: a\u0001\r\n\r\n`,
      `${line}${"a: b\r\n".repeat(201)}\r\n`,
      `${line}Host: a\n\n`,
      "GET http://a.example?b HTTP/1.1\r\nHost: b\r\n\r\n",
      "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
      "GET http://a.example HTTP/1.0\r\n\r\n",
      "OPTIONS * HTTP/1.0\r\n\r\n",
      "GET / HTTP/2.0\r\n\r\n",
      "\u0016\u0003",
      "A".repeat(33),
      `GET /${"a".repeat(longestHead)}`,
    ].map((text) => new Uint8Array(Buffer.from(text, "latin1"))),
  ],
  words: [
    "\r\n",
    "\r\n\r\n",
    "Host: ",
    "http://",
    ":80",
    "Upgrade: ",
    "Connection: ",
    " HTTP/1.1",
    "CONNECT ",
  ],
  longest: longestHead + 100,
  run: (bytes) => {
    const read = inPieces(bytes, () => new RequestHeadReader());
    if (read.kind !== "head") return;
    const { name, address, length } = read.head;
    ok(length <= bytes.length && !(name !== null && address !== undefined));
    const closing = closingHead(bytes.subarray(0, length));
    // One field more may be more than is read.
    const fields = Buffer.from(closing).toString("latin1").split("\r\n").length - 3;
    if (closing.length > longestHead || fields > 200) return;
    const again = new RequestHeadReader().take(closing);
    deepStrictEqual(again, { kind: "head", head: { ...read.head, length: closing.length } });
  },
};

export const starts: readonly Target[] = [hellos, heads];
