import {
  create,
  type DescField,
  type DescMessage,
  ScalarType,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { DescMethod } from "@bufbuild/protobuf";
import { gzipSync } from "node:zlib";
import { mutateJson } from "./engine/mutate-json.ts";
import type { Random } from "./engine/random.ts";

/** A request as it goes over the wire, right or wrong. */
export interface FuzzRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

// What rule files, argument lists, terminals, paths and URLs could take for something else.
const words = [
  "",
  "one",
  "default",
  "-x",
  "--help",
  "$(reboot)",
  "`id`",
  "a\nCOMMIT\n*filter",
  'a"b',
  "a'b",
  "a b",
  "../../etc/passwd",
  "/dev/null",
  "\u0000",
  "\u001b[2J",
  "\u202e",
  "\ud7ff\uffff",
  "%s%n",
  "a".repeat(64),
  "a".repeat(5000),
  "192.168.123.2",
  "192.168.123.40/24",
  "0.0.0.0/0",
  "::",
  "52:54:00:00:00:01",
  "true",
  "echo",
  "__proto__",
] as const;
const numbers = [0, 1, 2, 7, 64, 128, 1500, 9000, 65_535, 65_536, 2 ** 31, 2 ** 32 - 1] as const;

/** A random value for every field of a message, or most of them. */
export function randomMessage(
  desc: DescMessage,
  random: Random,
  depth = 0,
): ReturnType<typeof create> {
  const message = reflect(desc, create(desc));
  for (const field of desc.fields) {
    // (Rules drawn at random are wrong nearly always, and a create goes no further then.)
    if (random.once(3) || depth > 4 || (field.name === "policy" && !random.once(4))) continue;
    switch (field.fieldKind) {
      case "scalar":
        message.set(field, named(field, random) ?? scalar(field.scalar, random));
        break;
      case "enum":
        message.set(field, random.pick([0, 1, 2, 99]));
        break;
      case "message":
        message.set(field, reflect(field.message, randomMessage(field.message, random, depth + 1)));
        break;
      case "list": {
        const list = message.get(field);
        for (let i = random.below(4); i > 0; i--) list.add(item(field, random, depth));
        break;
      }
      case "map": {
        const map = message.get(field);
        for (let i = random.below(4); i > 0; i--)
          map.set(scalar(field.mapKey, random), item(field, random, depth));
        break;
      }
    }
  }
  return message.message;
}

function item(field: DescField, random: Random, depth: number): unknown {
  if (field.message !== undefined)
    return reflect(field.message, randomMessage(field.message, random, depth + 1));
  return scalar(
    "scalar" in field && field.scalar !== undefined ? field.scalar : ScalarType.STRING,
    random,
  );
}

/** Fields that chance would hardly ever fill in such a way that a call goes beyond its checks. */
const known: Readonly<Record<string, string>> = { destination: "192.168.123.1" };

/** Half of the time what such a field is known to take. */
const named = ({ name }: DescField, random: Random): string | undefined =>
  random.once(2) ? known[name] : undefined;

function scalar(type: ScalarType, random: Random): unknown {
  switch (type) {
    case ScalarType.STRING:
      // Mostly no pod's name; what asks about one that is there goes further.
      return random.once(4) ? words[1] : random.pick(words);
    case ScalarType.BOOL:
      return random.once(2);
    case ScalarType.BYTES:
      return random.bytes(random.below(100));
    case ScalarType.UINT64:
      return BigInt(random.pick(numbers));
    case ScalarType.INT64:
      return BigInt(random.pick(numbers));
    case ScalarType.DOUBLE:
      return random.pick(numbers);
    default:
      return type === ScalarType.INT32 ? random.below(2 ** 31) : random.pick(numbers);
  }
}

/**
 * What changes the node. Mostly it is asked for its plan, by a field that goes after whatever else
 * is there, since the last one counts: `plan_only` is field 3 of a create, field 1 of a down (what
 * has no such field refuses it, or passes it over). Now and then it is not, and changed bytes may
 * have the plan's own taken for something else: then it happens.
 */
const changing: Readonly<
  Record<string, { readonly plan: readonly number[]; readonly inEarnest: number }>
> = {
  Create: { plan: [0x18, 1], inEarnest: 20 },
  CreateStream: { plan: [0x18, 1], inEarnest: 20 },
  Down: { plan: [0x08, 1], inEarnest: 500 },
  Update: { plan: [0x18, 1], inEarnest: 3 },
  AddInterface: { plan: [0x20, 1], inEarnest: 3 },
  UpdateInterface: { plan: [0x40, 1], inEarnest: 3 },
  RemoveInterface: { plan: [0x18, 1], inEarnest: 3 },
  PublishPorts: { plan: [0x18, 1], inEarnest: 3 },
  UnpublishPorts: { plan: [0x18, 1], inEarnest: 3 },
};

function encode(method: DescMethod, format: "json" | "proto", random: Random): Uint8Array {
  const message = randomMessage(method.input, random);
  if (format === "proto") {
    const bytes = Buffer.from(toBinary(method.input, message));
    for (let i = random.below(4); i > 0 && bytes.length > 0; i--)
      bytes[random.below(bytes.length)] = random.below(256);
    return bytes;
  }
  let bytes: Uint8Array = Buffer.from(jsonOf(method.input, message));
  for (let i = random.below(4); i > 0; i--)
    bytes = mutateJson(bytes, random, bytes, words) ?? bytes;
  return bytes;
}

function planned(plan: readonly number[], format: "json" | "proto", bytes: Uint8Array): Uint8Array {
  if (format === "proto") return Buffer.concat([bytes, Buffer.from(plan)]);
  const text = Buffer.from(bytes).toString().trimEnd();
  if (!text.endsWith("}")) return bytes;
  return Buffer.from(`${text.slice(0, -1)}${/^\{\s*\}$/.test(text) ? "" : ","}"planOnly":true}`);
}

function jsonOf(desc: DescMessage, message: ReturnType<typeof create>): string {
  try {
    return JSON.stringify(toJson(desc, message, { useProtoFieldName: false }));
  } catch {
    // JSON cannot hold it (an enum's unknown number can be, an invalid text not).
    return "{}";
  }
}

const nested = (depth: number): string => `${'{"spec":'.repeat(depth)}1${"}".repeat(depth)}`;

/** Bodies that are no message at all. */
function noise(random: Random): Uint8Array {
  return random.pick([
    () => random.bytes(random.below(2000)),
    () => Buffer.from(nested(20_000)),
    () => Buffer.from(`{"labels":${"[".repeat(50_000)}`),
    () => Buffer.from('{"idOrName":"\\ud800"}'),
    () => Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
    () => Buffer.from('{"timeoutMs":1e400,"timeoutMs":-1}'),
    () => Buffer.from('{"spec":{"name":1e999}}'),
    () => Buffer.from("null"),
    () => Buffer.alloc(0),
    () => gzipSync(Buffer.alloc(8 << 20)),
    () => Buffer.alloc((1 << 20) + 1, "{"),
    // A group that nests as deep as it is long, and a length beyond every end.
    () => Buffer.alloc(20_000, 0x0b),
    () => Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
  ])();
}

/** In streams and gRPC each message has its flags and length before it. */
function enveloped(bytes: Uint8Array, random: Random): Uint8Array {
  const head = Buffer.alloc(5);
  head[0] = random.once(12) ? random.below(256) : 0;
  head.writeUInt32BE(
    random.once(12) ? random.pick([0, bytes.length + 1, 2 ** 31, 2 ** 32 - 1]) : bytes.length,
    1,
  );
  const whole = Buffer.concat([head, bytes]);
  return random.once(15) ? whole.subarray(0, random.below(whole.length)) : whole;
}

/** A request of a method, by any of its protocols, more or less as it should be. */
export function randomRequest(method: DescMethod, random: Random): FuzzRequest {
  const format = random.pick(["json", "proto"] as const);
  const unary = method.methodKind === "unary";
  const protocol = random.pick([unary ? "" : "connect+", "grpc+", "grpc-web+"]);
  const type = random.once(25)
    ? random.pick([
        "text/plain",
        "application/json; charset=latin1",
        "application/x",
        "application/grpc",
      ])
    : `application/${protocol}${format}`;
  const asked = random.once(6) ? noise(random) : encode(method, format, random);
  const change = changing[method.name];
  const message =
    change === undefined || random.once(change.inEarnest)
      ? asked
      : planned(change.plan, format, asked);
  const one = protocol === "" ? message : enveloped(message, random);
  const body = !unary && random.once(3) ? Buffer.concat([one, enveloped(message, random)]) : one;
  const headers: Record<string, string> = { "content-type": type };
  if (protocol === "grpc+") headers["te"] = "trailers";
  if (random.once(12))
    headers[random.pick(["content-encoding", "grpc-encoding", "connect-content-encoding"])] =
      random.pick(["gzip", "br", "identity", "x", "gzip, gzip"]);
  if (random.once(12))
    headers[random.pick(["connect-timeout-ms", "grpc-timeout"])] = random.pick([
      "0",
      "1",
      "-1",
      "1n",
      "99999999H",
      "999999999999",
      "x",
      "1e9",
    ]);
  if (random.once(20)) headers["connect-protocol-version"] = random.pick(["1", "2", "x"]);
  const query = random.once(30)
    ? random.pick(["?", "?a=b", "?connect=v1&encoding=json&message=%zz"])
    : "";
  return { path: `/${method.parent.typeName}/${method.name}${query}`, headers, body };
}
