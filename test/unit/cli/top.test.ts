import test from "ava";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const server = await serve(playDaemon().routes);
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test("top --once prints one table with rates, the busiest pod first", async (t) => {
  const { code, out } = await podnet(["top", "--once"], here);
  t.is(code, 0);
  const [heading = "", first = "", second = "", ...rest] = out.trimEnd().split("\n");
  t.regex(heading, /^POD +CPU +MEMORY +LIMIT +RECEIVED +SENT$/);
  t.regex(first, /^web +12\.3 % +60 MiB +256 MiB +12 kB\/s +0 B\/s$/);
  t.is(second, "off", "one that does not run uses nothing");
  t.deepEqual(rest, []);
});

test("top of one pod shows that pod", async (t) => {
  const { out } = await podnet(["top", "web", "--once"], here);
  t.regex(out, /^web /m);
  t.notRegex(out, /^off/m);
});

test("top repeats, and its JSON is that of stats", async (t) => {
  const { out } = await podnet(["top"], here);
  t.is([...out.matchAll(/^POD /gm)].length, 2);
  const json = JSON.parse((await podnet(["top", "--once", "-o", "json"], here)).out);
  t.is(json.kind, "Stats");
  t.is(json.pods.length, 2);
});

test("top redraws on a terminal, and refuses no time", async (t) => {
  const session = start(["top"], { ...here, tty: true });
  t.is(await session.done, 0);
  t.true(session.stdout.text.includes("\u001b[H"));
  t.is((await podnet(["top", "--every", "0s"], here)).code, 2);
});
