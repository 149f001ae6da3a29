import { PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { FillRate } from "../../../../cli/commands/pool.ts";
import type { Output } from "../../../../cli/io.ts";
import { showProgress } from "../../../../cli/views/progress.ts";
import { sinceText, ticking } from "../../../../cli/views/ticking.ts";

/** A terminal, and all that was written to it. */
function terminal(isTTY = true): { readonly out: Output; text(): string } {
  const stream = new PassThrough();
  let text = "";
  stream.on("data", (data: Buffer) => {
    text += data.toString();
  });
  return { out: Object.assign(stream, { isTTY, columns: 60 }) as Output, text: () => text };
}

test("a time is said after the first second, and an end while it may be known", (t) => {
  t.is(sinceText(900, 5000), "");
  t.is(sinceText(2400, 5000), ", 2 s of about 5 s");
  t.is(sinceText(2400), ", 2 s");
  t.is(sinceText(7000, 5000), ", 7 s");
  t.is(sinceText(300_000), ", 5 min");
});

test("a step under way shows how long it has taken, while nothing else happens", async (t) => {
  const { out, text } = terminal();
  {
    using progress = showProgress(out);
    progress.started({ step: "guest.ready", title: "Booting\u001b[2J", usualMs: 60_000 });
    while (!text().includes("s of about 60 s")) await delay(50);
    progress.finished({ step: "guest.ready", durationMs: 1234, detail: "agent 1" });
  }
  t.regex(text(), / {2}Booting\\u001b\[2J, [1-9]\d* s of about 60 s …/);
  t.regex(text(), /✓.* {2}1\.23 s {2}Booting\\u001b\[2J {2}.*agent 1/);
  t.true(text().endsWith("\r\u001b[K"));
  const { length } = text();
  await delay(700);
  t.is(text().length, length, "it draws on after its end");
});

test("a line never takes more than one row, and elsewhere than on a terminal none is drawn", (t) => {
  const wide = terminal();
  const line = ticking(wide.out, () => "x".repeat(200));
  line.draw();
  line[Symbol.dispose]();
  t.true(wide.text().includes("x".repeat(59)));
  t.false(wide.text().includes("x".repeat(60)));
  const pipe = terminal(false);
  const none = ticking(pipe.out, () => t.fail());
  none.draw();
  none[Symbol.dispose]();
  t.is(pipe.text(), "");
});

test("filling pools shows how many machines are left, and how long it takes as it looks", (t) => {
  const rate = new FillRate(0);
  t.is(rate.text(100), "");
  const pools = (ready: number) => [
    { ready, size: 4 },
    { ready: 1, size: 2 },
  ];
  rate.look(pools(0));
  t.is(rate.text(500), "1 of 6 machines …");
  rate.look(pools(2));
  t.is(rate.text(4000), "3 of 6 machines, 4 s, about 6 s left …");
  rate.look([]);
  t.is(rate.text(5000), "0 of 0 machines, 5 s …");
});
