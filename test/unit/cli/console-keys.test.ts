import test from "ava";
import * as fc from "fast-check";
import { DetachWatch, keysOf } from "../../../cli/detach-keys.ts";
import { screen } from "../../../cli/views/screen.ts";

const [p, q] = [16, 17];

test("keys are written as podman has them", (t) => {
  t.deepEqual(keysOf("ctrl-p,ctrl-q"), [p, q]);
  t.deepEqual(keysOf("ctrl-A,d,ctrl-@,ctrl-[,ctrl-_,ctrl-\\,ctrl-]"), [1, 100, 0, 27, 31, 28, 29]);
  t.deepEqual(keysOf(""), []);
  for (const wrong of ["ctrl-", "ctrl-1", "ab", ",", "a,", "ä", " "])
    t.throws(() => keysOf(wrong), { message: /is no key/ }, wrong);
});

test("all that is typed goes through but the detach keys, however it is cut", (t) => {
  const bytes = fc.array(fc.constantFrom(p, q, 1, 2), { maxLength: 12 });
  const sequences = fc.array(fc.constantFrom(p, q, 1), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(sequences, fc.array(bytes), (keys, chunks) => {
      const watch = new DetachWatch(keys);
      const typed = chunks.flat();
      const text = String.fromCharCode(...typed);
      const end = text.indexOf(String.fromCharCode(...keys));
      const passed: number[] = [];
      let left = false;
      for (const chunk of chunks) {
        const { pass, detached } = watch.feed(Uint8Array.from(chunk));
        passed.push(...pass);
        left = detached;
        if (detached) break;
      }
      t.is(left, end >= 0);
      const wanted = end >= 0 ? typed.slice(0, end) : typed;
      // Without the end, what may still become one is held back.
      const held = wanted.slice(passed.length);
      t.deepEqual([...passed, ...held], wanted);
      t.deepEqual(held, keys.slice(0, held.length));
      if (end >= 0) t.deepEqual(held, []);
    }),
  );
});

test("no keys: everything is passed on", (t) => {
  const watch = new DetachWatch([]);
  t.deepEqual(watch.feed(Uint8Array.of(p, q, 3)), {
    pass: Uint8Array.of(p, q, 3),
    detached: false,
  });
});

test("a screen draws, and shows what would reach beyond it; however it is cut", (t) => {
  const drawn = "\u001b[1;31mred\u001b[0m\u001b[K\b \b\u001b[2J\u001b[H\tä\r\n";
  const beyond =
    "\u001b]0;title\u0007\u001b]52;c;cm0=\u0007\u001b[c\u001b[5n\u001b[?1000h\u009b6n\u202e\u001bP\u001b[21t";
  const whole = Buffer.from(`${drawn}\u001b[6n${beyond}${drawn}\u001b[`);
  const shown =
    "\\u001b]0;title\\u0007\\u001b]52;c;cm0=\\u0007\\u001b[c\\u001b[5n\\u001b[?1000h\\u009b6n\\u202e\\u001bP\\u001b[21t";
  fc.assert(
    fc.property(fc.array(fc.nat(whole.length)), (places) => {
      const fit = screen();
      let out = "";
      let at = 0;
      for (const place of [...places.toSorted((a, b) => a - b), whole.length]) {
        out += Buffer.from(fit(whole.subarray(at, place))).toString();
        at = place;
      }
      out += Buffer.from(fit()).toString();
      t.is(out, `${drawn}${shown}${drawn}\\u001b[`);
    }),
  );
});
