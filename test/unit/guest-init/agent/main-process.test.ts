import test from "ava";
import * as fc from "fast-check";
import { KeptOutput } from "../../../../core/kept-output.ts";
import {
  encodeFollowMain,
  encodeMainEnded,
  encodeStartMain,
  parseFollowMain,
  parseMainEnded,
  parseStartMain,
} from "../../../../guest-init/protocol/main-process.ts";

const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

test("of output the end is kept, in order, and no byte comes twice", (t) => {
  const pieces = fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 3000 })), {
    maxLength: 60,
  });
  t.notThrows(() =>
    fc.assert(
      fc.property(pieces, (all) => {
        const kept = new KeptOutput(20_000);
        let value = 0;
        const written: number[] = [];
        for (const [stderr, length] of all) {
          const data = Uint8Array.from({ length }, () => value++ % 251);
          written.push(...data);
          kept.push(stderr, data);
        }
        if (kept.end !== written.length) return false;
        let at = kept.start;
        for (let piece = kept.from(at); piece !== undefined; piece = kept.from(at)) {
          if (piece.at !== at || piece.data.some((byte, i) => byte !== written[at + i]))
            return false;
          at += piece.data.length;
        }
        return at === kept.end && kept.end - kept.start <= 20_000;
      }),
    ),
  );
});

test("a flood of single bytes of two streams stays within its memory", (t) => {
  const kept = new KeptOutput(64 * 1024);
  for (let i = 0; i < 100_000; i++) kept.push(i % 2 === 0, Uint8Array.of(1));
  t.true(kept.end - kept.start < 1100);
  t.is(kept.from(0)?.at, kept.start);
});

test("messages about the main process are strict", (t) => {
  const spec = {
    id: "start-1",
    args: ["sh"],
    env: [{ env: "A", value: "" }],
    workdir: "/",
    terminal: false,
    stdin: true,
    addresses: [],
  };
  t.deepEqual(parseStartMain(encodeStartMain(spec)), spec);
  const follow = { stdout: 5n, stderr: 6n, from: 7 };
  t.deepEqual(parseFollowMain(encodeFollowMain(follow)), follow);
  for (const end of [{ code: 3 }, { signal: 9 }]) {
    const ended = { id: "start-1", at: 12, end };
    t.deepEqual(parseMainEnded(encodeMainEnded(ended)), ended);
  }
  for (const bad of [
    { id: "a", at: 0 },
    { id: "a", at: -1, code: 0 },
    { id: "a", at: 0, code: 256 },
    { id: "a", at: 0, signal: 65 },
    { id: "a b", at: 0, code: 0 },
    { id: "a", at: 0, code: 0, more: 1 },
  ])
    t.throws(() => parseMainEnded(json(bad)), { code: "AGENT_PROTOCOL" }, JSON.stringify(bad));
  t.throws(() => parseStartMain(json({ ...spec, args: [] })), { code: "AGENT_PROTOCOL" });
});
