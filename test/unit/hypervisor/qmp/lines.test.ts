import test from "ava";
import * as fc from "fast-check";
import { LineSplitter } from "../../../../hypervisor/qmp/lines.ts";

test("lines come out the same however the bytes are cut", (t) => {
  const line = fc.string({ unit: "grapheme" }).map((text) => text.replaceAll(/[\r\n]/g, "").trim());
  fc.assert(
    fc.property(fc.array(line), fc.array(fc.nat(7)), (lines, cuts) => {
      const bytes = Buffer.from(lines.map((text) => `${text}\r\n`).join(""));
      const splitter = new LineSplitter(4096);
      const seen: string[] = [];
      let at = 0;
      for (const cut of cuts) {
        seen.push(...splitter.push(bytes.subarray(at, at + cut)));
        at += cut;
      }
      seen.push(...splitter.push(bytes.subarray(at)));
      t.deepEqual(seen, lines);
      t.false(splitter.midLine);
    }),
  );
});

test("a line of the limit passes, one byte more does not", (t) => {
  t.deepEqual(new LineSplitter(8).push(Buffer.from("12345678\n")), ["12345678"]);
  const error = t.throws(() => new LineSplitter(8).push(Buffer.from("123456789")));
  t.like(error, { code: "QMP_PROTOCOL" });
});

test("the limit counts what earlier chunks left behind", (t) => {
  const splitter = new LineSplitter(8);
  t.deepEqual(splitter.push(Buffer.from("12345")), []);
  t.true(splitter.midLine);
  t.like(
    t.throws(() => splitter.push(Buffer.from("6789"))),
    { code: "QMP_PROTOCOL" },
  );
});
