import test from "ava";
import { element, escapeXml, label, picture, ticks } from "../../../../scripts/plot/svg.ts";

test("text is escaped, in content and in attributes", (t) => {
  t.is(escapeXml(`<a> & "b" 'c'`), "&lt;a&gt; &amp; &quot;b&quot; &apos;c&apos;");
  t.is(label("a<b", { x: 1, y: 2 }), '<text x="1" y="2">a&lt;b</text>');
  t.is(element("rect", { class: 'a"b', x: 1.26 }), '<rect class="a&quot;b" x="1.3"/>');
});

test("an axis has round steps, some five of them, from 0 and not beyond its end", (t) => {
  t.deepEqual(ticks(2073), [0, 500, 1000, 1500, 2000]);
  t.deepEqual(ticks(0.9), [0, 0.2, 0.4, 0.6, 0.8]);
  t.deepEqual(ticks(10), [0, 2, 4, 6, 8, 10]);
  t.deepEqual(ticks(0), [0]);
});

test("a picture has a title, and colours for light and for dark", (t) => {
  const svg = picture({ width: 10, height: 20, title: "a & b" }, ["<g/>"]);
  t.regex(svg, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" width="10" height="20"/);
  t.true(svg.includes("<title>a &amp; b</title>"));
  t.true(svg.includes("@media(prefers-color-scheme:dark){"));
  t.true(svg.endsWith("<g/>\n</svg>\n"));
});
