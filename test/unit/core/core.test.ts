import test from "ava";
import fc from "fast-check";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import {
  parseHostname,
  parseIfName,
  parseNetworkName,
  parsePodId,
  parsePodName,
  podIdFromBytes,
  printable,
} from "../../../core/names.ts";
import { decodeUtf8, encodeUtf8 } from "../../../core/utf8.ts";

test("UTF-8 is what TextEncoder and TextDecoder make of it", (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      t.deepEqual(encodeUtf8(text), new Uint8Array(new TextEncoder().encode(text)));
    }),
  );
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      t.is(decodeUtf8(bytes), decoder.decode(bytes));
    }),
    { numRuns: 3000 },
  );
  const long = "ä".repeat(10_000);
  t.is(decodeUtf8(encodeUtf8(long)), long);
});

test("interface names the kernel or a rule file would stumble over are refused", (t) => {
  for (const name of ["eth0", "hyper0", "pn-abc.1", "a".repeat(15)])
    t.is(parseIfName(name), name as never);
  for (const name of [
    "",
    ".",
    "..",
    "-x",
    "a".repeat(16),
    "a b",
    "a/b",
    "a:b",
    "a'b",
    'a"b',
    "a\nb",
    "$(id)",
    "ä",
    "all",
    "default",
  ]) {
    t.is(
      t.throws(() => parseIfName(name, "guest_name"), { instanceOf: PodnetError })?.field,
      "guest_name",
      name,
    );
  }
});

test("pod ids, names and hostnames", (t) => {
  const id = podIdFromBytes(Uint8Array.from({ length: 12 }, (_, i) => i * 21));
  t.is(parsePodId(id), id);
  t.throws(() => parsePodId("ABC"), { instanceOf: PodnetError });
  t.is(parsePodName("web-1"), "web-1" as never);
  t.is(parseNetworkName("default"), "default" as never);
  for (const name of ["", "-a", "a-", "A", "a.b", "a_b", "a".repeat(64), "a\n"]) {
    t.throws(() => parsePodName(name), { instanceOf: PodnetError }, name);
  }
  t.is(parseHostname("Web-1.example"), "Web-1.example");
  for (const name of [
    "",
    ".",
    "a..b",
    `${"a".repeat(40)}.${"b".repeat(40)}`,
    "a b",
    "\u212aelvin",
  ]) {
    t.throws(() => parseHostname(name), { instanceOf: PodnetError }, name);
  }
});

test("text from outside cannot break out of a message", (t) => {
  t.is(printable('a"b\nc'), "a\\u0022b\\u000ac");
  t.is(printable("\u001b[2J\u009b\u202eb\u2066"), "\\u001b[2J\\u009b\\u202eb\\u2066");
  t.is(printable("Grüße, мир, 世界"), "Grüße, мир, 世界");
  t.is(printable("x".repeat(100)).length, 80);
  // Half a pair would make gRPC's percent-encoding of the message fail (encodeURIComponent).
  t.is(printable(`${"x".repeat(78)}😀x`), `${"x".repeat(78)}…`);
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 100 }), fc.nat(0x7ff), (text, half) => {
      t.true(printable(`${text}${String.fromCharCode(0xd800 + half)}`).isWellFormed());
    }),
  );
});

test("an error keeps its code, context and cause; the innermost context wins", (t) => {
  const cause = new Error("EBUSY");
  const inner = new PodnetError("SYSCALL_FAILED", "Tap cannot be opened", {
    cause,
    step: "tap.open",
  });
  const outer = inner.with({ step: "create", hint: "Try again", details: { pod: "x" } });
  t.like(outer, {
    code: "SYSCALL_FAILED",
    step: "tap.open",
    hint: "Try again",
    details: { pod: "x" },
  });
  t.is(outer.cause, cause);
  t.true(isPodnetError(outer, "SYSCALL_FAILED"));
  t.false(isPodnetError(outer, "INTERNAL"));
  t.is(toPodnetError(outer), outer);
  t.is(toPodnetError("text").code, "INTERNAL");
  t.is(toPodnetError(new DOMException("gone", "AbortError")).code, "CANCELLED");
});
