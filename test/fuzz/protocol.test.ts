import test from "ava";
import { FrameAssembler } from "../../guest-init/protocol/assembler.ts";
import { readU32, writeU32 } from "../../guest-init/protocol/bytes.ts";
import { CtlDecoder, encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { TtyDecoder, encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";

/** Frames per test; PODNET_FUZZ_RUNS asks for more. */
const runs = Number(process.env.PODNET_FUZZ_RUNS ?? 1_000_000);
const seed = Number(process.env.PODNET_FUZZ_SEED ?? Date.now() % 0x7fffffff);

/** xorshift32: the same seed gives the same frames. */
function random(start: number): (below: number) => number {
  let state = start | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

/** A frame that is right, truncated, oversize, undersize, or noise. */
function frame(next: (below: number) => number, header: "ctl" | "tty"): Uint8Array {
  const body = new Uint8Array(next(64));
  const good =
    header === "ctl" ? encodeCtlFrame(next(256), body) : encodeTtyFrame(BigInt(next(9)), body);
  const lengthAt = header === "ctl" ? 4 : 8;
  switch (next(8)) {
    case 0:
      return good.subarray(0, next(good.length + 1));
    case 1:
      writeU32(good, lengthAt, next(0xffffffff));
      return good;
    case 2:
      writeU32(good, lengthAt, next(lengthAt + 4));
      return good;
    case 3:
      for (let i = 0; i < good.length; i++) good[i] = next(256);
      return good;
    default:
      return good;
  }
}

const limit = 64 * 1024;

for (const kind of ["ctl", "tty"] as const)
  test(`${runs} ${kind} frames, right and wrong: never an exception, memory bounded`, (t) => {
    t.log(`PODNET_FUZZ_SEED=${seed}`);
    const next = random(seed);
    const fresh = (): CtlDecoder | TtyDecoder =>
      kind === "ctl" ? new CtlDecoder(limit) : new TtyDecoder(limit);
    let decoder = fresh();
    let frames = 0;
    let refused = 0;
    let most = 0;
    for (let i = 0; i < runs; i++) {
      const found = decoder.push(frame(next, kind));
      most = Math.max(most, decoder.reserved);
      const wrong = found.filter((item) => item.kind === "refused").length;
      frames += found.length - wrong;
      refused += wrong;
      // The host closes a channel on the first refusal; the agent goes on, so here some go on too, unless
      // a wrong length has them wait for megabytes.
      if ((wrong > 0 && next(4) > 0) || decoder.wanted > 4096) decoder = fresh();
    }
    t.true(most <= limit + 12);
    t.true(frames > runs / 20 && refused > runs / 20, `${frames} frames, ${refused} refused`);
  });

test("a slow reference agrees on what is in any stream", (t) => {
  const next = random(seed);
  for (let round = 0; round < 20_000; round++) {
    const bytes = new Uint8Array(next(80));
    // Small numbers, so that lengths are plausible.
    for (let i = 0; i < bytes.length; i++) bytes[i] = i % 4 === 3 ? next(40) : 0;
    const assembler = new FrameAssembler({
      headerSize: 8,
      lengthOf: (header) => readU32(header, 4),
      limit: 24,
    });
    const found: string[] = [];
    for (let at = 0; at < bytes.length; ) {
      const part = bytes.subarray(at, at + 1 + next(12));
      at += part.length;
      for (const item of assembler.push(part))
        found.push(
          item.kind === "frame" ? `frame ${item.body.join()}` : `${item.reason} ${item.length}`,
        );
    }
    if (found.join(";") !== reference(bytes, 24).join(";")) {
      t.fail(`seed ${seed} round ${round}: ${bytes.join()}`);
      return;
    }
  }
  t.pass();
});

/** The same rules written once more, over the whole stream at once. */
function reference(bytes: Uint8Array, limit: number): string[] {
  const found: string[] = [];
  for (let at = 0; at + 8 <= bytes.length; ) {
    const length = readU32(bytes, at + 4);
    if (length < 8) {
      found.push(`too-short ${length}`);
      at += 8;
    } else if (length > limit) {
      found.push(`too-long ${length}`);
      at += length;
    } else {
      if (at + length > bytes.length) break;
      found.push(`frame ${bytes.subarray(at + 8, at + length).join()}`);
      at += length;
    }
  }
  return found;
}
