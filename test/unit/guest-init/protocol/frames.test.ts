import test from "ava";
import * as fc from "fast-check";
import { FrameAssembler } from "../../../../guest-init/protocol/assembler.ts";
import { hexBytes, joinBytes, readU32, u32Bytes } from "../../../../guest-init/protocol/bytes.ts";
import {
  CtlDecoder,
  type CtlItem,
  ctlLimit,
  encodeCtlFrame,
} from "../../../../guest-init/protocol/ctl-frame.ts";
import { TtyDecoder, encodeTtyFrame, ttyLimit } from "../../../../guest-init/protocol/tty-frame.ts";

const u32 = fc.integer({ min: 0, max: 0xffffffff });

/** Cuts bytes at arbitrary places. */
function cut(all: Uint8Array, sizes: readonly number[]): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let at = 0;
  for (let i = 0; at < all.length; i++) {
    const size = sizes.length === 0 ? all.length : (sizes[i % sizes.length] as number);
    parts.push(all.subarray(at, at + size));
    at += size;
  }
  return parts;
}
const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 5 });

test("hexadecimal digits are read as Node reads them", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
      t.deepEqual(hexBytes(Buffer.from(bytes).toString("hex")), bytes);
    }),
  );
});

test("control frames survive any chunking", (t) => {
  const frame = fc.record({ code: u32, payload: fc.uint8Array({ maxLength: 200 }) });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 8 }), sizes, (frames, sizes) => {
      const all = joinBytes(frames.map((f) => encodeCtlFrame(f.code, f.payload)));
      const decoder = new CtlDecoder();
      const found = cut(all, sizes).flatMap((part) => decoder.push(part));
      t.false(decoder.pending);
      t.deepEqual(
        found,
        frames.map((f) => ({ kind: "frame" as const, ...f })),
      );
    }),
  );
});

test("shared bodies survive any chunking and memory that is used again, until they are done with", (t) => {
  const frame = fc.record({
    stream: fc.bigInt({ min: 1n, max: 5n }),
    length: fc.oneof(
      fc.integer({ min: 0, max: 300 }),
      fc.integer({ min: 15_000, max: ttyLimit.extension - 12 }),
    ),
    fill: fc.integer({ min: 1, max: 200 }),
  });
  const pieces = fc.array(fc.integer({ min: 1, max: 65_536 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 8 }), pieces, (frames, sizes) => {
      // Two guests that are read by turns, into the same memory.
      const guests = [0, 50].map((more) => {
        const bodies = frames.map(({ length, fill }) => new Uint8Array(length).fill(fill + more));
        const all = frames.map(({ stream }, i) => encodeTtyFrame(stream, bodies[i]));
        return {
          bodies,
          parts: cut(joinBytes(all), sizes),
          decoder: new TtyDecoder(ttyLimit.extension, { shares: true }),
          found: [] as Uint8Array[],
        };
      });
      const memory = new Uint8Array(65_536);
      const rounds = guests[0]?.parts.length ?? 0;
      for (let round = 0; round < rounds; round++)
        for (const { parts, decoder, found } of guests) {
          const part = parts[round] as Uint8Array;
          memory.set(part);
          for (let rest = memory.subarray(0, part.length); rest.length > 0; ) {
            const { items, taken } = decoder.cut(rest, 2);
            for (const item of items)
              if (item.kind === "frame") found.push(Uint8Array.from(item.data));
            decoder.done();
            rest = rest.subarray(taken);
          }
          memory.fill(0);
        }
      for (const { bodies, found } of guests)
        t.true(
          Buffer.concat(found).equals(Buffer.concat(bodies)) && found.length === bodies.length,
        );
    }),
    { numRuns: 30 },
  );
});

test("large bodies that came in one piece are shared, if that is asked for", (t) => {
  const large = new Uint8Array(20_000).fill(7);
  const all = joinBytes([
    encodeTtyFrame(1n, large),
    encodeTtyFrame(2n, large.subarray(0, 1000)),
    encodeTtyFrame(3n, large),
  ]);
  const buffersOf = (decoder: TtyDecoder): boolean[] =>
    [all.subarray(0, 30_000), all.subarray(30_000)]
      .flatMap((part) => decoder.push(part))
      .map((item) => {
        if (item.kind !== "frame") throw new Error("A frame is refused");
        t.true(item.data.every((byte) => byte === 7));
        t.is(item.data.length, item.stream === 2n ? 1000 : 20_000);
        return item.data.buffer === all.buffer;
      });
  t.deepEqual(buffersOf(new TtyDecoder()), [false, false, false]);
  // The second is short, the third came in two pieces.
  const sharing = new TtyDecoder(ttyLimit.extension, { shares: true });
  t.deepEqual(buffersOf(sharing), [true, false, false]);
  t.false(sharing.pending);
});

test("tty frames survive any chunking", (t) => {
  const frame = fc.record({
    stream: fc.bigInt({ min: 0n, max: 0xffffffffffffffffn }),
    data: fc.uint8Array({ maxLength: 200 }),
  });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 8 }), sizes, (frames, sizes) => {
      const all = joinBytes(frames.map((f) => encodeTtyFrame(f.stream, f.data)));
      const decoder = new TtyDecoder();
      const found = cut(all, sizes).flatMap((part) => decoder.push(part));
      t.deepEqual(
        found,
        frames.map((f) => ({ kind: "frame" as const, ...f })),
      );
    }),
  );
});

test("what is decoded does not share memory with what was pushed", (t) => {
  // Part of a Buffer is one, and `slice` of that no copy.
  for (const bytes of [
    encodeCtlFrame(9, Uint8Array.of(1, 2, 3)),
    Buffer.from(encodeCtlFrame(9, Uint8Array.of(1, 2, 3))),
  ]) {
    const [item] = new CtlDecoder().push(bytes);
    bytes.fill(0);
    t.deepEqual(item, { kind: "frame", code: 9, payload: Uint8Array.of(1, 2, 3) });
  }
});

test("`wanted` is the rest of the header, then of the body, as hyperstart reads", (t) => {
  const decoder = new CtlDecoder();
  const seen: number[] = [];
  let bytes = encodeCtlFrame(20, new Uint8Array(15_792));
  while (bytes.length > 0) {
    seen.push(decoder.wanted);
    const part = bytes.subarray(0, decoder.wanted);
    bytes = bytes.subarray(part.length);
    decoder.push(part);
  }
  t.deepEqual(seen, [8, 15_792]);
  decoder.push(Uint8Array.of(0, 0, 0));
  t.is(decoder.wanted, 5);
  t.true(decoder.pending);
});

test("the limit is exact, and configurable up to 10 MiB", (t) => {
  const at = (limit: number, length: number): CtlItem | undefined =>
    new CtlDecoder(limit).push(joinBytes([u32Bytes(9), u32Bytes(length)]))[0];
  t.is(at(64, 64), undefined);
  t.deepEqual(at(64, 65), { kind: "refused", code: 9, length: 65, reason: "too-long" });
  t.is(at(ctlLimit.max, ctlLimit.max), undefined);
  t.is(at(ctlLimit.max, ctlLimit.max + 1)?.kind, "refused");
  t.throws(() => new CtlDecoder(ctlLimit.max + 1), { instanceOf: RangeError });
  t.throws(() => new CtlDecoder(7), { instanceOf: RangeError });
  const tty = new TtyDecoder(ttyLimit.hyperstart);
  t.is(tty.push(encodeTtyFrame(1n, new Uint8Array(4084)))[0]?.kind, "frame");
  t.is(tty.push(encodeTtyFrame(1n, new Uint8Array(4085)))[0]?.kind, "refused");
});

test("after a frame too long its bytes are skipped and the next one is read", (t) => {
  const decoder = new CtlDecoder(32);
  const all = joinBytes([encodeCtlFrame(1, new Uint8Array(100)), encodeCtlFrame(12)]);
  const found = cut(all, [7]).flatMap((part) => decoder.push(part));
  t.deepEqual(found, [
    { kind: "refused", code: 1, length: 108, reason: "too-long" },
    { kind: "frame", code: 12, payload: new Uint8Array(0) },
  ]);
});

test("after a frame too short the next byte begins a header", (t) => {
  for (let length = 0; length < 8; length++) {
    const all = joinBytes([u32Bytes(9), u32Bytes(length), encodeCtlFrame(12)]);
    t.deepEqual(new CtlDecoder().push(all), [
      { kind: "refused", code: 9, length, reason: "too-short" },
      { kind: "frame", code: 12, payload: new Uint8Array(0) },
    ]);
  }
});

test("memory follows what arrives, not what is announced", (t) => {
  const limit = 10 * 1024 * 1024;
  const assembler = new FrameAssembler({
    headerSize: 8,
    lengthOf: (header) => readU32(header, 4),
    limit,
    itemOf: (found) => found,
  });
  assembler.push(joinBytes([u32Bytes(9), u32Bytes(limit)]));
  let arrived = 0;
  for (let i = 0; i < 1000; i++) {
    t.true(assembler.reserved <= Math.max(16 * 1024, 2 * arrived) + 8);
    arrived += assembler.push(new Uint8Array(1000)).length === 0 ? 1000 : 0;
  }
});
