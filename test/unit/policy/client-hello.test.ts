import test from "ava";
import fc from "fast-check";
import { ClientHelloReader, type HelloRead, longestHello } from "../../../policy/client-hello.ts";
import { clientHellos } from "../../fixtures/starts.ts";

const hello = (name: string): Uint8Array => clientHellos.get(name) as Uint8Array;
const read = (...pieces: readonly Uint8Array[]): HelloRead => {
  const reader = new ClientHelloReader();
  return pieces.reduce<HelloRead>((_before, piece) => reader.take(piece), { kind: "more" });
};
const of = (...bytes: number[]): Uint8Array => Uint8Array.from(bytes);
const concat = (...parts: readonly Uint8Array[]): Uint8Array =>
  new Uint8Array(Buffer.concat(parts));

/** The message of a captured connection, out of its one record. */
const messageOf = (bytes: Uint8Array): Uint8Array => bytes.subarray(5);
/** A message in records of as many bytes. */
function inRecords(message: Uint8Array, size: number): Uint8Array {
  const records: Uint8Array[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    records.push(of(22, 3, 1, part.length >> 8, part.length & 255), part);
  }
  return concat(...records);
}

const u16 = (value: number): number[] => [value >> 8, value & 255];
const extension = (type: number, body: readonly number[]): number[] => [
  ...u16(type),
  ...u16(body.length),
  ...body,
];
const sni = (text: string, type = 0): number[] => {
  const name = [...Buffer.from(text, "latin1")];
  const entry = [type, ...u16(name.length), ...name];
  return extension(0, [...u16(entry.length), ...entry]);
};
interface Parts {
  readonly version?: readonly number[];
  readonly session?: readonly number[];
  readonly suites?: readonly number[];
  readonly compressions?: readonly number[];
  readonly extensions?: readonly number[];
  readonly tail?: readonly number[];
}
/** A message made of its parts, each of which may be wrong. */
function made({
  version = [3, 3],
  session = [],
  suites = [0x13, 1],
  compressions = [0],
  extensions = sni("a.example"),
  tail = [],
}: Parts): Uint8Array {
  const body = [
    ...version,
    ...Array.from({ length: 32 }, () => 7),
    session.length,
    ...session,
    ...u16(suites.length),
    ...suites,
    compressions.length,
    ...compressions,
    ...u16(extensions.length),
    ...extensions,
    ...tail,
  ];
  return of(1, body.length >> 16, ...u16(body.length & 0xffff), ...body);
}
const readMade = (parts: Parts): HelloRead => read(inRecords(made(parts), 16_384));
const asked = (name: string | null): HelloRead => ({ kind: "hello", name }) as HelloRead;
const refused = (reason: string): HelloRead => ({ kind: "refused", reason }) as HelloRead;

test("the name is read from what openssl and Node send, post-quantum key shares or not", (t) => {
  for (const [client, bytes] of clientHellos)
    t.deepEqual(read(bytes), asked(client.endsWith("no-name") ? null : "api.example.com"), client);
  t.true(hello("node-24-post-quantum").length > 1500);
  t.true(hello("node-24-three-shares").length > 3000);
});

test("a ClientHello is read alike in any segments and any records", (t) => {
  const whole = messageOf(hello("node-24-post-quantum"));
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2000 }),
      fc.array(fc.integer({ min: 1, max: 900 }), { maxLength: 20 }),
      (size, cuts) => {
        const bytes = inRecords(whole, size);
        const pieces: Uint8Array[] = [];
        let at = 0;
        for (const cut of cuts) pieces.push(bytes.subarray(at, (at += cut)));
        pieces.push(bytes.subarray(at));
        const reader = new ClientHelloReader();
        const results = pieces.map((piece) => reader.take(piece));
        t.deepEqual(results.at(-1), asked("api.example.com"));
        // What has been decided stays, and all that came before is there to be passed on.
        const first = results.findIndex(({ kind }) => kind !== "more");
        t.true(results.slice(0, first).every(({ kind }) => kind === "more"));
        const passed = pieces.slice(0, first + 1).reduce((sum, { length }) => sum + length, 0);
        t.is(reader.start.length, passed);
        t.deepEqual(reader.start, bytes.subarray(0, passed));
      },
    ),
    { numRuns: 60 },
  );
});

test("one byte at a time is enough, and the beginning alone says nothing", (t) => {
  const bytes = hello("openssl-3.0");
  t.deepEqual(read(...[...bytes].map((byte) => of(byte))), asked("api.example.com"));
  for (let length = 0; length < bytes.length; length++)
    t.is(read(bytes.subarray(0, length)).kind, "more");
});

test("what follows the ClientHello in its connection is kept to be passed on", (t) => {
  const early = of(23, 3, 3, 0, 2, 1, 2);
  const reader = new ClientHelloReader();
  const bytes = concat(hello("openssl-3.0"), early);
  t.deepEqual(reader.take(bytes), asked("api.example.com"));
  t.deepEqual(reader.start, bytes);
});

test("Encrypted Client Hello hides the name, whatever the readable one is", (t) => {
  const ech = extension(0xfe0d, [0, 0, 1, 0, 1, 5, 0, 0, 0, 0]);
  t.deepEqual(readMade({ extensions: [...sni("a.example"), ...ech] }), refused("hides-name"));
  t.deepEqual(readMade({ extensions: [...ech, ...sni("a.example")] }), refused("hides-name"));
  t.deepEqual(readMade({ extensions: ech }), refused("hides-name"));
});

test("what is no TLS is refused by its first byte", (t) => {
  t.deepEqual(read(of(0x47)), refused("not-tls"));
  t.deepEqual(read(of(22, 2)), refused("not-tls"));
  // SSL 2.0's own form of a ClientHello.
  t.deepEqual(read(of(0x80, 0x2e, 1, 3, 1)), refused("not-tls"));
  t.deepEqual(read(of()), { kind: "more" });
});

test("a ClientHello that is longer than any is refused, in one record or in many", (t) => {
  const long = made({
    extensions: [
      ...sni("a.example"),
      ...extension(
        21,
        Array.from({ length: 32_000 }, () => 0),
      ),
    ],
  });
  t.deepEqual(read(inRecords(long, 16_384)), asked("a.example"));
  const longer = of(1, 0, ...u16(longestHello - 3), ...Array.from({ length: 20 }, () => 0));
  t.deepEqual(read(inRecords(longer, 16_384)), refused("too-long"));
  // Records of one byte each: six times as much as there is in them.
  t.deepEqual(read(inRecords(long, 1)), refused("too-long"));
});

const wrong: readonly (readonly [what: string, Uint8Array, reason?: string])[] = [
  ["an empty record", of(22, 3, 1, 0, 0)],
  ["a record beyond TLS's limit", of(22, 3, 1, 0x40, 1)],
  [
    "another record in between",
    concat(inRecords(made({}), 20).subarray(0, 25), of(20, 3, 3, 0, 1, 1)),
  ],
  ["another message", inRecords(of(2, 0, 0, 1, 0), 5)],
  ["another message behind it", inRecords(concat(made({}), of(1, 0, 0, 0)), 16_384)],
  ["a version that is none of TLS", inRecords(made({ version: [2, 3] }), 16_384)],
  [
    "a session id too long",
    inRecords(made({ session: Array.from({ length: 33 }, () => 0) }), 16_384),
  ],
  ["no cipher suites", inRecords(made({ suites: [] }), 16_384)],
  ["half a cipher suite", inRecords(made({ suites: [1, 2, 3] }), 16_384)],
  ["no compression", inRecords(made({ compressions: [] }), 16_384)],
  ["bytes behind the extensions", inRecords(made({ tail: [0] }), 16_384)],
  ["an extension beyond the end", inRecords(made({ extensions: [0, 0, 0, 9, 1] }), 16_384)],
  ["half an extension", inRecords(made({ extensions: [0] }), 16_384)],
  [
    "two of an extension",
    inRecords(made({ extensions: [...sni("a.example"), ...sni("b.example")] }), 16_384),
  ],
  [
    "two names",
    inRecords(made({ extensions: extension(0, [0, 8, 0, 0, 1, 97, 0, 0, 1, 98]) }), 16_384),
  ],
  ["a name of another type", inRecords(made({ extensions: sni("a.example", 1) }), 16_384)],
  [
    "bytes behind the list of names",
    inRecords(made({ extensions: extension(0, [0, 4, 0, 0, 1, 97, 9]) }), 16_384),
  ],
  ["an empty list of names", inRecords(made({ extensions: extension(0, [0, 0]) }), 16_384)],
  ["a message that ends within", inRecords(of(1, 0, 0, 2, 3, 3), 16_384)],
  ["an address for a name", inRecords(made({ extensions: sni("192.0.2.1") }), 16_384), "bad-name"],
  ["an empty name", inRecords(made({ extensions: sni("") }), 16_384), "bad-name"],
  [
    "a name with a zero in it",
    inRecords(made({ extensions: sni("a.example\u0000.b.example") }), 16_384),
    "bad-name",
  ],
  [
    "a name beyond ASCII",
    inRecords(made({ extensions: sni("b\u00fccher.example") }), 16_384),
    "bad-name",
  ],
];

for (const [what, bytes, reason = "malformed"] of wrong) {
  test(`a ClientHello is refused, with why: ${what}`, (t) => {
    t.deepEqual(read(bytes), refused(reason));
    t.deepEqual(read(...[...bytes].map((byte) => of(byte))), refused(reason));
  });
}

test("a client of TLS 1.2 without extensions asks for no name", (t) => {
  const bytes = made({ extensions: [] });
  const without = bytes.slice(0, -2);
  without[3] = (without[3] as number) - 2;
  t.deepEqual(read(inRecords(without, 16_384)), asked(null));
  t.deepEqual(readMade({ extensions: [] }), asked(null));
  t.deepEqual(readMade({ extensions: sni("A.Example.") }), asked("a.example"));
});
