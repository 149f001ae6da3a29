import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import test from "ava";
import { writeU32 } from "../../guest-init/protocol/bytes.ts";
import { CtlDecoder, ctlLimit, encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { TtyDecoder, encodeTtyFrame, ttyLimit } from "../../guest-init/protocol/tty-frame.ts";
import { Random, runSeed } from "./engine/random.ts";

// What the frames are read as is fuzzed in targets/frames.ts, without a million of them: here it is
// how many, and what they cost.

const frames = 1_000_000;
const seed = runSeed();
const kinds = {
  control: { lengthAt: 4, limit: ctlLimit.default, header: 8, decoder: () => new CtlDecoder() },
  tty: { lengthAt: 8, limit: ttyLimit.extension, header: 12, decoder: () => new TtyDecoder() },
} as const;
type Kind = keyof typeof kinds;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Bytes that typed arrays hold, garbage taken away. */
function held(): number {
  collect();
  return process.memoryUsage().arrayBuffers;
}

/** A frame that is right, cut short, oversize, undersize, or noise. */
function frame(kind: Kind, random: Random): Uint8Array {
  const body = new Uint8Array(random.below(64));
  const good =
    kind === "control"
      ? encodeCtlFrame(random.below(256), body)
      : encodeTtyFrame(BigInt(random.below(9)), body);
  const { lengthAt } = kinds[kind];
  switch (random.below(8)) {
    case 0:
      return good.subarray(0, random.below(good.length + 1));
    case 1:
      writeU32(good, lengthAt, random.below(0xffffffff));
      return good;
    case 2:
      writeU32(good, lengthAt, random.below(lengthAt + 4));
      return good;
    case 3:
      for (let i = 0; i < good.length; i++) good[i] = random.below(256);
      return good;
    default:
      return good;
  }
}

for (const kind of ["control", "tty"] as const) {
  const { limit, header, lengthAt, decoder: make } = kinds[kind];
  const fresh = (): CtlDecoder | TtyDecoder => make();

  test.serial(
    `${frames} ${kind} frames, right and wrong: never an exception, memory bounded`,
    (t) => {
      t.timeout(120_000);
      t.log(`PODNET_SEED=${seed}`);
      const random = new Random(seed);
      const before = process.memoryUsage().rss;
      let decoder = fresh();
      let [whole, refused, most] = [0, 0, 0];
      for (let i = 0; i < frames; i++) {
        const found = decoder.push(frame(kind, random));
        most = Math.max(most, decoder.reserved);
        const wrong = found.filter((item) => item.kind === "refused").length;
        whole += found.length - wrong;
        refused += wrong;
        // The host closes a channel on the first refusal; the agent goes on, so here some go on
        // too, unless a wrong length has them wait for megabytes.
        if ((wrong > 0 && random.below(4) > 0) || decoder.wanted > 4096) decoder = fresh();
      }
      t.true(most <= limit + header, `It held ${most} bytes`);
      t.true(whole > frames / 20 && refused > frames / 20, `${whole} frames, ${refused} refused`);
      collect();
      const grown = process.memoryUsage().rss - before;
      t.log(`at most ${most} bytes held; the process grew by ${grown >> 20} MiB`);
      t.true(grown < 128 << 20, `The process grew by ${grown} bytes`);
    },
  );

  test.serial(
    `1,000 ${kind} channels that announce much and send nothing hold what has arrived`,
    (t) => {
      const announce = (length: number): Uint8Array => {
        const bytes = new Uint8Array(header);
        writeU32(bytes, lengthAt, length);
        return bytes;
      };
      const before = held();
      for (const length of [limit + 1, 0x7fffffff, 0x80000000, 0xffffffff]) {
        const decoders = Array.from({ length: 1000 }, fresh);
        for (const decoder of decoders) t.is(decoder.push(announce(length))[0]?.kind, "refused");
        t.true(held() - before < 2 << 20, `${length} bytes were believed`);
        t.is(decoders.length, 1000);
      }
      // The largest that is allowed: 16 KiB each on the peer's word alone.
      const decoders = Array.from({ length: 1000 }, fresh);
      for (const decoder of decoders) t.deepEqual(decoder.push(announce(limit)), []);
      const taken = held() - before;
      t.log(`${limit} bytes announced 1,000 times: ${taken >> 10} KiB held`);
      t.true(taken < 1000 * (16 * 1024 + 512) + (2 << 20), `${taken} bytes`);
      t.is(decoders.length, 1000);
    },
  );
}
