import { randomUUID } from "node:crypto";
import type { JsonValue } from "@bufbuild/protobuf";
import test from "ava";
import { parseTemplate } from "../../../cli/jsonpath/parse.ts";
import { textOfTemplate } from "../../../cli/jsonpath/print.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const here = { socket: server.h2 };
test.after.always(() => server.kill());

const site: JsonValue = {
  kind: "List",
  items: [
    { name: "web", state: "running", n: 2, labels: { "a.b/c": "1" }, ports: [80, 81, 82] },
    { name: "db", state: "failed", n: 1, vm: null, ports: [] },
    { name: "it's", state: "running", n: 3, on: true, ports: [443] },
  ],
};

test("paths print what kubectl's print", (t) => {
  for (const [template, text] of [
    ["{.kind}", "List"],
    ["{$.kind}", "List"],
    ["{.items[*].name}", "web db it's"],
    ["{.items[0].name}", "web"],
    ["{.items[-1].name}", "it's"],
    ["{.items[-9].name}", ""],
    ["{.items[9].name}", ""],
    ["{.items[1:].name}", "db it's"],
    ["{.items[:1].name}", "web"],
    ["{.items[0].ports[0:2]}", "80 81"],
    ["{.items[0].ports}", "[80,81,82]"],
    ["{.items[1].vm}", ""],
    ["{.items[0]['name']}", "web"],
    ['{.items[0]["labels"]}', '{"a.b/c":"1"}'],
    ["{.items[0].labels['a.b/c']}", "1"],
    ["{.items[0].labels.a\\.b/c}", "1"],
    ["{.items[*].labels.*}", "1"],
    ["{..name}", "web db it's"],
    ["{.items..n}", "2 1 3"],
    ["{..ports[0]}", "80 443"],
    ['{.items[?(@.state=="running")].name}', "web it's"],
    ["{.items[?(@.state!='running')].name}", "db"],
    ["{.items[?(@.n==2)].name}", "web"],
    ["{.items[?(@.on)].name}", "it's"],
    ["{.items[?(@.on==true)].name}", "it's"],
    ["{.items[?(@.name=='it\\'s')].n}", "3"],
    ["pods: {.items[*].n}!", "pods: 2 1 3!"],
    ['{range .items[*]}{.name}{"\\t"}{.n}{"\\n"}{end}', "web\t2\ndb\t1\nit's\t3\n"],
    ["{range .items[*]}{.name}:{range .ports[*]} {.}{end};{end}", "web: 80 81 82;db:;it's: 443;"],
    ["{ .kind }", "List"],
    ["{.rangers}{.endings}", ""],
    ["{.nothing.at[*].all}", ""],
    ["{.__proto__}{.items.length}{.constructor}", ""],
  ] as const)
    t.is(textOfTemplate(parseTemplate(template), site), text, template);
  t.is(textOfTemplate(parseTemplate("{.}"), ["a"]), '["a"]');
});

test("a template that is wrong is refused before podnetd is asked", async (t) => {
  for (const [template, why] of [
    [".items[*].name", /has no \{path\}/],
    ["{.items[*].name", /cannot be read at ""/],
    ["{items}", /cannot be read at "items\}"/],
    ["{.items[}", /brackets without/],
    ["{.items[*}", /\[ without its \]/],
    ["{.items[name]}", /brackets without/],
    ["{.a b}", /cannot be read at "b\}|" b\}/],
    ["{range .items[*]}x", /without its \{end\}/],
    ["{end}", /without a \{range\}/],
    ['{"x}', /quote without its end/],
    ["{.items[?(@.a==b)]}", /compares with no/],
    ["{.items[?(@.a]}", /filter that is not/],
    ["{.a.}{..}", /dot without a name/],
  ] as [string, RegExp][]) {
    const socket = `/nowhere/${randomUUID()}`;
    const { code, err } = await podnet(["list", "-o", `jsonpath=${template}`], { socket });
    t.is(code, 2, template);
    t.regex(err, why);
    t.regex(err, /docs\/reference\/jsonpath\.md/);
  }
  const other = await podnet(["list", "-o", "jsonpath=TEMPLATE"], here);
  t.is(other.code, 2);
});

test("a template has a length and an amount of work that it cannot exceed", (t) => {
  t.throws(() => parseTemplate(`{.a}${"x".repeat(4096)}`), { message: /has 4100 characters/ });
  t.throws(() => parseTemplate(`{.a${"[?(@.a".repeat(30_000)}}`), { message: /characters/ });
  let deep: JsonValue = "end";
  for (let i = 0; i < 60; i++) deep = { a: deep };
  const parts = parseTemplate("{..*..*..*..*..*..*..*..*}");
  t.throws(() => textOfTemplate(parts, deep), { message: /passes more than 1000000 values/ });
  const nested = `${"{range ..*}".repeat(8)}{.}${"{end}".repeat(8)}`;
  t.throws(() => textOfTemplate(parseTemplate(nested), deep), { message: /passes more than/ });
});

test("every command that prints JSON takes a template, and a terminal is not steered", async (t) => {
  const list = await podnet(["list", "-o", "jsonpath={.items[*].name}"], here);
  t.deepEqual(list, { code: 0, out: "web db", err: "" });
  const get = await podnet(["inspect", "web", "--output=jsonpath={.state}"], here);
  t.is(get.out, "running");
  const network = await podnet(["network", "list", "-o", "jsonpath={..cidr}"], here);
  t.is(network.out, "192.168.123.0/24");
  const reason = ["get", "db", "-o", "jsonpath={.reason}"];
  t.is((await podnet(reason, here)).out, "the guest wrote \u001b[31mred");
  const shown = await podnet(reason, { ...here, tty: true });
  t.is(shown.out, "the guest wrote \\u001b[31mred\n");
  const stopped = await podnet(["stop", "web", "-o", "jsonpath={.name} {.state}"], here);
  t.is(stopped.out, "web stopped");
});
