import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { environmentOf } from "../../../cli/env-text.ts";
import { parseSignal } from "../../../cli/parse.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const here = { socket: server.h2 };
test.after.always(() => server.kill());

const [running, ended, killed] = ["aa", "bb", "cc"].map((end) => `00000000000000${end}`);

test("exec -d prints an id; users, time and environment are passed on", async (t) => {
  const flags = ["-d", "-u", "web:adm", "--timeout", "2m", "-e", "A=b=c"];
  const { code, out } = await podnet(["exec", ...flags, "web", "make", "all"], here);
  t.deepEqual([code, out], [0, `${running}\n`]);
  t.like(daemon.calls.execs.at(-1), {
    idOrName: "web",
    args: ["make", "all"],
    user: "web:adm",
    timeoutMs: 120_000,
    env: { A: "b=c" },
  });
  t.is((await podnet(["exec", "-d", "-i", "web", "cat"], here)).code, 2);
  t.is((await podnet(["exec", "--timeout", "soon", "web", "cat"], here)).code, 2);
  t.is((await podnet(["exec", "-d", "absent", "cat"], here)).code, 125);
});

test("execs list, get, wait, kill and logs", async (t) => {
  const list = await podnet(["execs", "list"], here);
  t.regex(list.out, /aa +web +running +\d+ d +make all\n/);
  t.regex(list.out, /bb +web +exited 3 /);
  t.regex(list.out, /cc +web +DEADLINE_EXCEEDED /);
  t.notRegex(list.out, /\u001b/);
  const json = JSON.parse((await podnet(["execs", "list", "db", "-o", "json"], here)).out);
  t.like(json, { kind: "ExecList", items: [] });
  t.regex((await podnet(["execs", "get", ended ?? ""], here)).out, /state: exited/);
  t.is((await podnet(["execs", "get", "00000000000000ff"], here)).code, 4);

  const waited = await podnet(["execs", "wait", ended ?? "", ended ?? ""], here);
  t.deepEqual([waited.code, waited.out], [0, "3\n3\n"]);
  const late = await podnet(["execs", "wait", killed ?? ""], here);
  t.is(late.code, 124);
  t.regex(late.err, /did not end in 5 ms/);

  t.is((await podnet(["execs", "kill", "-s", "term", running ?? ""], here)).code, 0);
  t.is(daemon.calls.inputs.at(-1), `signal 15 to ${running}`);
  t.is((await podnet(["execs", "kill", running ?? ""], here)).code, 0);
  t.is(daemon.calls.inputs.at(-1), `signal 9 to ${running}`);

  const logs = await podnet(["execs", "logs", running ?? ""], here);
  t.deepEqual([logs.code, logs.out], [0, "out\n"]);
  t.is(logs.err, "7 bytes are no longer kept\nerr\n");
  t.is((await podnet(["execs", "logs", "-f", ended ?? ""], here)).code, 3);
});

test("signals by name and number", (t) => {
  for (const text of ["TERM", "sigterm", "SIGTERM", "15"]) t.is(parseSignal(text), 15);
  for (const text of ["", "0", "65", "NONE", "SIG", "-9", "__proto__"])
    t.throws(() => parseSignal(text), { code: "INVALID_ARGUMENT" });
});

test("an environment as docker has it: files, then flags, and names alone", (t) => {
  const file = path.join(mkdtempSync(path.join(tmpdir(), "podnet-env-")), "env");
  writeFileSync(file, '# words\n\nA=1\r\n  B="two words"\nHOME\nABSENT\nC=\n__proto__=x\n');
  const own = { HOME: "/home/me" };
  const env = environmentOf({ envFile: [file], env: ["A=2", "HOME"] }, own);
  const wanted = { A: "2", B: '"two words"', HOME: "/home/me", C: "" };
  t.deepEqual({ ...env }, Object.fromEntries([...Object.entries(wanted), ["__proto__", "x"]]));
  for (const wrong of [{ env: ["=x"] }, { env: ["A B=x"] }, { envFile: [`${file}-none`] }])
    t.throws(() => environmentOf(wrong, own), { code: "INVALID_ARGUMENT" });
  writeFileSync(file, Buffer.from([0x41, 0x3d, 0xff]));
  t.throws(() => environmentOf({ envFile: [file] }, own), { message: /not UTF-8/ });
});
