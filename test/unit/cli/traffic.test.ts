import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { serve } from "../api/fixtures/server.ts";
import type { Output } from "../../../cli/io.ts";
import { redrawing } from "../../../cli/views/redraw.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const server = await serve(playDaemon().routes);
const socket = server.h2;
const directory = mkdtempSync(join(tmpdir(), "podnet-cli-"));
test.after.always(() => {
  void server.kill();
  rmSync(directory, { recursive: true, force: true });
});

const here = { socket };
/** A header, and two packets of ten bytes. */
const captured = 24 + 2 * (16 + 10);

test("stop, pause and resume show the pod as it is then", async (t) => {
  for (const [command, state] of [
    ["stop", "stopped"],
    ["pause", "paused"],
    ["resume", "running"],
  ] as const) {
    const { code, out } = await podnet([command, "web"], here);
    t.is(code, 0);
    t.is(out, `web  abcdefghijkl  ${state}  192.168.123.2\n`);
    const json = JSON.parse((await podnet([command, "web", "-o", "json"], here)).out) as {
      state: string;
    };
    t.is(json.state, state);
    t.is((await podnet([command, "missing"], here)).code, 4);
  }
  const forced = await podnet(["stop", "--force", "web", "-o", "json"], here);
  t.is((JSON.parse(forced.out) as { reason: string }).reason, "forced");
});

test("stop, start, pause and resume take several pods, and a failure keeps none of them", async (t) => {
  for (const [command, pod] of [
    ["stop", "web"],
    ["start", "db"],
    ["pause", "web"],
    ["resume", "web"],
  ] as const) {
    const { code, out, err } = await podnet([command, pod, "missing", pod], here);
    t.is(code, 4, command);
    t.is(out.trim().split("\n").length, 2, command);
    t.regex(err, /POD_NOT_FOUND/);
    const json = await podnet([command, pod, pod, "-o", "json"], here);
    t.is(json.code, 0);
    const kinds = json.out
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as { kind: string }).kind);
    t.deepEqual(kinds, ["Pod", "Pod"]);
  }
});

test("update passes what is asked for, and says why a change is refused", async (t) => {
  t.is((await podnet(["update", "web", "--vcpu", "1"], here)).code, 0);
  t.is((await podnet(["update", "web", "--memory", "128M"], here)).code, 0);
  const refused = await podnet(["update", "web", "--memory", "1G"], here);
  t.is(refused.code, 1);
  t.regex(refused.err, /It has no room \(UNSUPPORTED\)\n {2}hint: Stop it/);
  const most = ["update", "web", "--max-vcpu", "4", "--max-memory", "1G"];
  t.is((await podnet(most, here)).code, 0);
  t.is((await podnet(["update", "web"], here)).code, 2, "nothing asked for");
});

test("label sets and removes labels, each named once with its value", async (t) => {
  const labelled = await podnet(["label", "web", "role=a=b-", "app-", "-o", "json"], here);
  t.is(labelled.code, 0, labelled.err);
  t.deepEqual((JSON.parse(labelled.out) as { labels: unknown }).labels, { role: "a=b-" });
  t.is((await podnet(["label", "web"], here)).code, 2, "nothing asked for");
  t.is((await podnet(["label", "web", "role"], here)).code, 2, "no value");
  t.is((await podnet(["label", "missing", "a=b"], here)).code, 4);
});

test("stats: a table once, again and again with rates, and documents", async (t) => {
  const once = await podnet(["stats", "web"], here);
  t.regex(once.out, /^POD +CPU +CPU TIME +MEMORY +LIMIT +DISK READ +RATE +DISK WRITTEN +RATE\n/);
  t.regex(once.out, /^web +1\.50 s +60 MiB +256 MiB +8\.2 kB +4\.0 MB\n\n/m);
  t.regex(once.out, /^POD +INTERFACE +RX +PACKETS +DROPPED +RATE +TX/m);
  t.regex(once.out, /^web +eth0 +1\.2 MB +1000 +0 +999 B +9 +0$/m);
  const watched = await podnet(["stats", "--watch", "--every", "100ms"], here);
  t.is(watched.out.match(/^POD/gm)?.length, 4);
  t.regex(watched.out, /^web +12\.3 % +1\.50 s .* 0 B\/s +4\.0 MB +500 B\/s\noff\n\n/m);
  t.regex(watched.out, / 12 kB\/s +999 B .* 0 B\/s$/m);
  const documents = (await podnet(["stats", "-w", "-o", "json"], here)).out.trim().split("\n");
  t.deepEqual(
    documents.map((line) => (JSON.parse(line) as { kind: string }).kind),
    ["Stats", "Stats"],
  );
  t.is((await podnet(["stats", "--every", "1s"], here)).code, 2, "without --watch");
  t.is((await podnet(["stats", "--watch", "--every", "0"], here)).code, 2);
});

test("stats that are watched on a terminal stay in their place, and within its rows", async (t) => {
  const { out } = await podnet(["stats", "-w"], { socket, tty: true });
  const frames = out.split("\u001b[H").slice(1);
  t.is(frames.length, 2);
  t.true(frames.every((frame) => frame.startsWith("POD ") && frame.endsWith("\u001b[J")));
  t.regex(frames[1] ?? "", /^web +12\.3 % .*\u001b\[K$/m);
  const written: string[] = [];
  const write = (text: string): boolean => written.push(text) > 0;
  const small = { isTTY: true, rows: 5, columns: 3, write } as unknown as Output;
  redrawing(small)("abcdef\n2\n3\n4\n5\n");
  t.is(
    written.join("").replaceAll("\u001b[K", ""),
    "\n\n\n\n\u001b[Habc\n2\n3\n… 2 more lines\n\u001b[J",
  );
});

test("a capture goes to a file that only its owner can read, and says what it has", async (t) => {
  const file = join(directory, "web.pcap");
  const { code, out, err } = await podnet(["capture", "web", "-c", "2", "-w", file], here);
  t.is(code, 0);
  t.is(out, "");
  t.regex(err, /^Capturing web; ctrl-c ends\n2 packets captured, 3 lost\n$/);
  t.is(statSync(file).size, captured);
  t.is(statSync(file).mode & 0o777, 0o600);
  t.is(readFileSync(file).readUInt32LE(0), 0xa1b23c4d);
});

test("a capture goes into a pipe, and not onto a terminal", async (t) => {
  for (const more of [[], ["-w", "-"]]) {
    const piped = await podnet(["capture", "web", "-c", "2", ...more], here);
    t.is(piped.code, 0);
    t.true(piped.out.length > 0);
    const shown = await podnet(["capture", "web", ...more], { socket, tty: true });
    t.is(shown.code, 2);
    t.regex(shown.err, /no text for a terminal/);
    t.is(shown.out, "");
  }
});

test("ctrl-c ends a capture with all it has in the file, and is no failure", async (t) => {
  const file = join(directory, "interrupted.pcap");
  const session = start(["capture", "web", "-w", file], here);
  await once(session.stderr, "data");
  while (statSync(file).size < captured) await new Promise((resolve) => setTimeout(resolve, 5));
  session.signal("SIGINT");
  t.is(await session.done, 0);
  t.regex(session.stderr.text, /2 packets captured, 3 lost\n$/);
  t.is(statSync(file).size, captured);
});

test("a file that cannot be made is an error, and nothing is captured", async (t) => {
  const { code, err } = await podnet(["capture", "web", "-w", join(directory, "no/such")], here);
  t.is(code, 2);
  t.regex(err, /Cannot write ".*no\/such": .*no such file.*INVALID_ARGUMENT.*\n.*hint/i);
});

test("a file of before is kept when there is no such pod", async (t) => {
  const file = join(directory, "before.pcap");
  writeFileSync(file, "of before");
  t.is((await podnet(["capture", "missing", "-w", file], here)).code, 4);
  t.is(readFileSync(file, "utf8"), "of before");
  t.is((await podnet(["capture", "web", "-c", "2", "-w", file], here)).code, 0);
  t.is(statSync(file).size, captured, "control: it is written over");
});

test("a zero where nothing is meant by it is refused", async (t) => {
  for (const line of [
    "capture web -w /dev/null --count 0",
    "capture web -w /dev/null --snaplen 0",
    "console web --tail 0",
    "create --timeout 0",
    "stats web --watch --every 0s",
  ]) {
    const { code, err } = await podnet(line.split(" "), here);
    t.is(code, 2, line);
    t.regex(err, /"0s?" is (?:too small|no time)/, line);
  }
});

test("a set of nothing is refused", async (t) => {
  const { code, err } = await podnet(["interface", "set", "web", "eth0", "--plan"], here);
  t.is(code, 2);
  t.regex(err, /Nothing is to be changed/);
});
