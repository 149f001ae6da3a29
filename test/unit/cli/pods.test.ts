import test from "ava";
import { parse } from "yaml";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
test.after.always(() => server.kill());
const here = { socket: server.h2 };
const names = async (...words: string[]): Promise<string[]> =>
  (await podnet(["list", "-q", ...words], here)).out.trim().split("\n").filter(Boolean);

const [web, db] = ["abcdefghijkl", "mnopqrstuvwx"];

test("a list has the pods that its filters let through", async (t) => {
  t.deepEqual(await names("--filter", "state=running"), [web]);
  t.deepEqual(await names("--filter", "state=running,state=failed"), [web, db]);
  t.deepEqual(await names("--filter", "name=w*"), [web]);
  t.deepEqual(await names("--filter", "name=*b"), [web, db]);
  t.deepEqual(await names("--filter", "name=w*b", "--filter", "state=failed"), []);
  t.deepEqual(await names("--filter", "name=we"), []);
  t.deepEqual(await names("--filter", "name=web*web"), [], "the parts do not overlap");
  t.deepEqual(await names("--filter", "network=default"), [web]);
  t.deepEqual(await names("--filter", "address=192.168.123.2"), [web]);
  t.deepEqual(await names("--filter", "label=app"), [web]);
  t.deepEqual(await names("--filter", "label=app=shop"), [web]);
  t.deepEqual(await names("--filter", "label=app=shop,label=tier"), [], "all labels are wanted");
  t.deepEqual(await names("--filter", "id=mno*"), [db]);
});

test("a list is sorted as asked, and the other way round", async (t) => {
  t.deepEqual(await names("--sort", "name"), [db, web]);
  t.deepEqual(await names("--sort", "-name"), [web, db]);
  t.deepEqual(await names("--sort", "created"), [db, web], "one without a time comes first");
  t.deepEqual(await names("--sort", "memory"), [db, web]);
});

test("an unknown filter or order is refused, with the known ones", async (t) => {
  for (const [words, said] of [
    [["--filter", "stat=running"], /--filter "stat" is not known.*\n.*Did you mean state\?/],
    [["--filter", "state=up"], /--filter state "up" is not known.*\n.*running/],
    [["--filter", "name="], /has no value/],
    [["--filter", "constructor=x"], /is not known/],
    [["--sort", "adress"], /--sort "adress" is not known.*\n.*There are name, created/],
    [["--sort", "-age"], /--sort "age" is not known.*\n.*Write created, oldest first, or -created/],
  ] as const) {
    const { code, err } = await podnet(["list", ...words], here);
    t.is(code, 2);
    t.regex(err, said);
  }
});

test("a wide list and a CSV file have what a pod has", async (t) => {
  const [heading = "", first = ""] = (await podnet(["list", "-o", "wide"], here)).out.split("\n");
  t.regex(heading, /ADDRESS +VCPU +MEMORY +PORTS +LABELS +EXPIRES +IDLE +REASON$/);
  t.regex(first, /192\.168\.123\.2 +1 +128 .*app=shop/);
  const rows = (await podnet(["list", "-o", "csv"], here)).out.split("\r\n");
  t.is(rows[0], "NAME,ID,STATE,AGE,NETWORK,ADDRESS,VCPU,MEMORY,PORTS,LABELS,EXPIRES,IDLE,REASON");
  t.is(rows.length, 4);
});

test("a wide list and a pod's page say when podnetd ends the pod", async (t) => {
  const wide = (await podnet(["list", "-o", "wide"], here)).out;
  t.regex(wide, /^db .* in (?:59|60) min +5 min/m);
  t.regex(
    (await podnet(["get", "db"], here)).out,
    /Lifetime +is deleted in \d+ min; is stopped when idle for 10 min, idle for/,
  );
});

test("a table fits the terminal, and is whole elsewhere", async (t) => {
  const { out } = await podnet(["list"], { ...here, tty: true });
  for (const line of out.trimEnd().split("\n")) t.true(line.length <= 100, line);
  const session = start(["list"], { ...here, tty: true });
  session.stdout.columns = 40;
  await session.done;
  const lines = session.stdout.text.trimEnd().split("\n");
  t.true(lines.every((line) => line.length <= 40));
  t.true(lines[1]?.endsWith("…"));
  t.false((await podnet(["list"], here)).out.includes("…"));
});

test("a restart stops each pod and starts it; one that fails does not keep the others", async (t) => {
  const { out, err, code } = await podnet(["restart", "-f", "db", "nosuch"], here);
  t.regex(out, /^db +mnopqrstuvwx +running/);
  t.regex(err, /POD_NOT_FOUND/);
  t.is(code, 4);
});

test("wait --for returns with the pod once it is as asked", async (t) => {
  for (const condition of ["running", "configured"]) {
    const { out, code } = await podnet(["wait", "web", "--for", condition], here);
    t.is(code, 0);
    t.regex(out, /^web +abcdefghijkl +running/);
  }
});

test("wait --for gives up with 124, and refuses what is no condition", async (t) => {
  const late = await podnet(["wait", "web", "--for", "stopped", "--timeout", "50ms"], here);
  t.is(late.code, 124, late.err);
  t.regex(late.err, /is not stopped after 50 ms/);
  for (const condition of ["port:0", "port:65536", "port:22x", "ready"]) {
    const { code, err } = await podnet(["wait", "web", "--for", condition], here);
    t.is(code, 2, condition);
    t.regex(err, /Write running, configured, stopped, or port:/);
  }
  t.regex((await podnet(["wait", "web", "--timeout", "1s"], here)).err, /--timeout needs --for/);
  t.is((await podnet(["wait", "nosuch", "--for", "running"], here)).code, 4);
});

test("a shell is a login shell on a terminal, with the exit code of its end", async (t) => {
  const session = start(["shell", "-u", "www", "web"], { ...here, tty: true });
  session.stdin.end("exit\n");
  t.is(await session.done, 3);
  const last = daemon.calls.execs.at(-1);
  t.like(last, { idOrName: "web", user: "www", terminal: true });
  t.deepEqual(last?.args.slice(0, 2), ["sh", "-c"]);
  t.regex(last?.args[2] ?? "", /exec bash -l; exec sh -l$/);
  const piped = await podnet(["shell", "web"], here);
  t.regex(piped.err, /no terminal.*\n.*podnet exec -i web sh/);
});

test("a list as YAML stays what it was", async (t) => {
  const text = (await podnet(["list", "-o", "yaml", "--sort", "name"], here)).out;
  t.deepEqual(
    (parse(text) as { items: { name: string }[] }).items.map(({ name }) => name),
    ["db", "web"],
  );
});
