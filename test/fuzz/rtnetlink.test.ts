import test from "ava";
import * as fc from "fast-check";
import { PodnetError } from "../../core/errors.ts";
import { parseAck } from "../../linux/rtnetlink/ack.ts";
import { parseAddress } from "../../linux/rtnetlink/address.ts";
import { parseAttributes } from "../../linux/rtnetlink/attributes.ts";
import { parseEvent } from "../../linux/rtnetlink/event.ts";
import { parseFdb } from "../../linux/rtnetlink/fdb.ts";
import { parseLink } from "../../linux/rtnetlink/link.ts";
import { encodeMessage, parseMessages } from "../../linux/rtnetlink/message.ts";
import { parseNeighbour } from "../../linux/rtnetlink/neighbour.ts";
import { parseRoute } from "../../linux/rtnetlink/route.ts";
import { Writer } from "../../linux/rtnetlink/writer.ts";

const runs = { numRuns: Number(process.env["PODNET_FUZZ_RUNS"] ?? 3000) };

/** Runs a parser over the bytes: it gives something or throws a `PodnetError`. */
function survives(parse: (bytes: Uint8Array) => unknown, bytes: Uint8Array): boolean {
  try {
    parse(bytes);
    return true;
  } catch (error) {
    if (error instanceof PodnetError && error.code === "NETLINK_FAILED") return true;
    throw error;
  }
}

/** Attributes as a hostile or newer kernel might send them: any type, any length, nests in nests. */
const { attributes } = fc.letrec<{ attributes: Uint8Array; value: Uint8Array }>((tie) => ({
  attributes: fc
    .array(fc.tuple(fc.integer({ min: 0, max: 60 }), tie("value")), { maxLength: 6 })
    .map((list) => {
      const writer = new Writer();
      for (const [type, value] of list) writer.attribute(type, value);
      return writer.finish();
    }),
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.uint8Array({ maxLength: 20 }),
    fc.constantFrom(new Uint8Array(4), new Uint8Array(6), new Uint8Array(16)),
    tie("attributes"),
  ),
}));

const families = fc.constantFrom(0, 2, 7, 10, 128);

/** A header of a plausible family, attributes behind it, and then some bytes cut off, changed or added. */
const payload = fc
  .tuple(
    families,
    fc.constantFrom(8, 12, 16),
    fc.uint8Array({ minLength: 16, maxLength: 16 }),
    attributes,
    fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { maxLength: 4 }),
    fc.option(fc.nat(60)),
  )
  .map(([family, size, header, rest, changes, cut]) => {
    const bytes = new Uint8Array([family, ...header.subarray(1, size), ...rest]);
    for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
    return cut === null ? bytes : bytes.subarray(0, cut);
  });

const parsers: Readonly<Record<string, (bytes: Uint8Array) => unknown>> = {
  messages: parseMessages,
  attributes: parseAttributes,
  link: parseLink,
  address: parseAddress,
  route: parseRoute,
  neighbour: parseNeighbour,
  "forwarding entry": parseFdb,
  "ack, error": (bytes) => parseAck({ type: 2, flags: 0x200, seq: 1, portId: 0, payload: bytes }),
  "ack, capped": (bytes) => parseAck({ type: 2, flags: 0x300, seq: 1, portId: 0, payload: bytes }),
  "ack, done": (bytes) => parseAck({ type: 3, flags: 0x200, seq: 1, portId: 0, payload: bytes }),
};

for (const [name, parse] of Object.entries(parsers)) {
  test(`no bytes break the parser of: ${name}`, (t) => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => survives(parse, bytes)),
      runs,
    );
    fc.assert(
      fc.property(payload, (bytes) => survives(parse, bytes)),
      runs,
    );
    t.pass();
  });
}

test("no datagram breaks the reader of events", (t) => {
  const message = fc
    .tuple(fc.integer({ min: 14, max: 32 }), payload)
    .map(([type, bytes]) => encodeMessage({ type, flags: 0, seq: 0, portId: 0, payload: bytes }));
  const datagram = fc.array(message, { maxLength: 4 }).map((list) => {
    const bytes = new Uint8Array(list.reduce((sum, part) => sum + part.length, 0));
    let offset = 0;
    for (const part of list) {
      bytes.set(part, offset);
      offset += part.length;
    }
    return bytes;
  });
  const read = (bytes: Uint8Array): void => {
    for (const part of parseMessages(bytes)) parseEvent(part);
  };
  fc.assert(
    fc.property(datagram, (bytes) => survives(read, bytes)),
    runs,
  );
  t.pass();
});

test("what is written is read back", (t) => {
  const written = fc.array(fc.tuple(fc.integer({ min: 0, max: 0x3fff }), fc.uint8Array()), {
    maxLength: 8,
  });
  fc.assert(
    fc.property(written, fc.nat(0xffff), fc.nat(), (list, type, seq) => {
      const writer = new Writer();
      for (const [kind, value] of list) writer.attribute(kind, value);
      const message = { type, flags: 5, seq, portId: 0, payload: writer.finish() };
      const [back] = parseMessages(encodeMessage(message));
      const read = parseAttributes(back?.payload as Uint8Array).list;
      t.deepEqual(
        read.map((attribute) => [attribute.type, Array.from(attribute.value)]),
        list.map(([kind, value]) => [kind, Array.from(value)]),
      );
    }),
    { numRuns: 500 },
  );
});
