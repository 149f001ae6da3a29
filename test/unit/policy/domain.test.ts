import test from "ava";
import fc from "fast-check";
import { PodnetError } from "../../../core/errors.ts";
import {
  canonicalName,
  domainText,
  matchesDomain,
  parseDomainPattern,
} from "../../../policy/domain.ts";

const matches = (pattern: string, text: string): boolean => {
  const name = canonicalName(text);
  return name !== undefined && matchesDomain(parseDomainPattern(pattern), name);
};

test("a name matches itself, whatever its letters' case and with the root's dot", (t) => {
  t.true(matches("api.example.com", "API.Example.COM"));
  t.true(matches("API.example.com.", "api.example.com."));
  t.false(matches("api.example.com", "example.com"));
  t.false(matches("api.example.com", "a.api.example.com"));
});

test("*.example.com has every name below, at any depth, and neither example.com nor names that only end alike", (t) => {
  t.true(matches("*.example.com", "api.example.com"));
  t.true(matches("*.example.com", "a.b.c.example.com"));
  t.false(matches("*.example.com", "example.com"));
  t.false(matches("*.example.com", "notexample.com"));
  t.false(matches("*.example.com", "example.com.attacker.test"));
  t.false(matches("*.example.com", ".example.com"));
  t.false(matches("*.example.com", "a..example.com"));
});

test("letters of other scripts become A-labels, as browsers make them; on the wire they are refused", (t) => {
  t.true(matches("bücher.example", "xn--bcher-kva.example"));
  t.true(matches("*.straße.example", "a.xn--strae-oqa.example"));
  t.true(matches("BÜCHER.example", "XN--BCHER-KVA.example"));
  t.is(canonicalName("bücher.example"), undefined);
  // The Kelvin sign is no k.
  t.is(canonicalName("\u212aube.example"), undefined);
  t.is(domainText(parseDomainPattern("\u212aube.example")), "kube.example");
});

const refused: readonly (readonly [string, RegExp])[] = [
  ["*", /default: allow/],
  ["*.", /whole labels in front/],
  ["*.*.example.com", /whole labels in front/],
  ["a*.example.com", /whole labels in front/],
  ["localhost", /with a dot/],
  ["https://api.example.com/", /name alone/],
  ["api.example.com:443", /ports/],
  ["192.0.2.1", /cidrs/],
  ["fd00::1", /cidrs/],
  ["10.0.0.0/8", /cidrs/],
  ["127.1", /with a dot/],
  ["0x7f.0x1", /with a dot/],
  ["a..example.com", /with a dot/],
  ["-a.example.com", /with a dot/],
  [`${"a".repeat(64)}.example.com`, /with a dot/],
  [`${"abcdefg.".repeat(32)}example.com`, /with a dot/],
  ["a b.example.com", /with a dot/],
  ["ü%2e.example", /with a dot/],
  ["", /with a dot/],
];

for (const [text, hint] of refused) {
  test(`not a domain, and what to write instead: ${text.slice(0, 30)}`, (t) => {
    const error = t.throws(() => parseDomainPattern(text), { instanceOf: PodnetError });
    t.is(error.code, "INVALID_ARGUMENT");
    t.regex(error.hint ?? "", hint);
  });
}

const label = fc
  .stringMatching(/^[a-z0-9]{1,6}$/)
  .filter((each) => !/^(?:[0-9]+|0x.*)$/.test(each));
const name = fc.array(label, { minLength: 2, maxLength: 5 }).map((labels) => labels.join("."));

test("a pattern is read back from its text, and matches by whole labels alone", (t) => {
  fc.assert(
    fc.property(name, name, fc.boolean(), (own, other, below) => {
      const pattern = parseDomainPattern(below ? `*.${own}` : own);
      t.is(domainText(pattern), below ? `*.${own}` : own);
      for (const each of [other, `${other}.${own}`, `${other}${own}`, own]) {
        const [mine, its] = [own.split("."), each.split(".")];
        const ends = mine.every((one, i) => its[its.length - mine.length + i] === one);
        const expected = ends && (below ? its.length > mine.length : its.length === mine.length);
        t.is(matches(domainText(pattern), each), expected);
      }
    }),
  );
});
