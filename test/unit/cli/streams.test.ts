import { execFile } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { serve } from "../api/fixtures/server.ts";
import { hostilePrint, playDaemon } from "./fixtures/daemon.ts";
import { podnet, start } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const socket = server.h2;
test.after.always(() => server.kill());

const here = { socket };
const onTerminal = { socket, tty: true };
/** Everything between escape sequences. */
const plain = (text: string): string => text.replace(/\u001b\[[0-9;]*[A-Za-z]/g, "");

test("watch prints lines for people and documents for programs", async (t) => {
  const { code, out } = await podnet(["watch"], here);
  t.is(code, 0);
  t.regex(out, /^22:13:20\.005 {2}web +is +running +192\.168\.123\.2\/24\n/);
  t.regex(out, /db +step +failed +nic\.plug 3\.0 ms\n$/);
  const events = (await podnet(["watch", "-o", "json"], here)).out.trim().split("\n");
  t.deepEqual(
    events.map((line) => (JSON.parse(line) as { type: string }).type),
    ["snapshot", "synced", "step"],
  );
  t.is(
    (await podnet(["watch", "-o", "json", "--after", "5"], here)).out.trim().split("\n").length,
    1,
  );
});

test("ctrl-c ends a create with 130, TERM with 143", async (t) => {
  for (const [name, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    const session = start(["create", "--name", "slow"], onTerminal);
    await once(session.stderr, "data");
    session.signal(name);
    t.is(await session.done, code);
    t.regex(plain(session.stderr.text), /CANCELLED\)\n {2}hint: podnetd undoes what was begun\n$/);
  }
});

test("ctrl-c ends a watch or a console without a word", async (t) => {
  const session = start(["console", "web"], here);
  await once(session.stdout, "data");
  session.signal("SIGINT");
  t.is(await session.done, 130);
  t.is(session.stderr.text, "");
});

test("exec passes arguments, environment, output and the exit code", async (t) => {
  const { code, err } = await podnet(
    ["exec", "-e", "A=b", "-w", "/tmp", "web", "ls", "-l", "--help"],
    here,
  );
  t.is(code, 3);
  t.is(err, "bye\n");
  t.like(daemon.calls.execs.at(-1), {
    idOrName: "web",
    args: ["ls", "-l", "--help"],
    env: { A: "b" },
    workdir: "/tmp",
    terminal: false,
  });
  t.is((await podnet(["exec", "web", "--", "ls", "--"], here)).code, 3);
  t.deepEqual(daemon.calls.execs.at(-1)?.args, ["ls", "--"], "only the first -- is ours");
  t.is((await podnet(["exec", "web", "--"], here)).code, 2);
  t.is((await podnet(["exec", "web", "nosuch"], here)).code, 127);
  t.is((await podnet(["exec", "absent", "ls"], here)).code, 125);
  t.is((await podnet(["exec", "web"], here)).code, 2);
});

test("exec -i passes standard input to its end", async (t) => {
  const session = start(["exec", "-i", "web", "cat"], here);
  const data = "x".repeat(300_000);
  session.stdin.end(data);
  t.is(await session.done, 3);
  t.is(session.stdout.text, data);
});

test("exec -it: raw keys, size, signals; the terminal is put back", async (t) => {
  const session = start(["exec", "-it", "web", "sh"], { ...onTerminal, env: { TERM: "vt100" } });
  session.stdin.write("\u0003");
  await once(session.stdout, "data");
  t.is(session.stdout.text, "\u0003");
  t.like(daemon.calls.execs.at(-1), {
    terminal: true,
    rows: 30,
    columns: 100,
    env: { TERM: "vt100" },
  });
  session.stdout.rows = 50;
  session.signal("SIGWINCH");
  session.signal("SIGTERM");
  t.is(await session.done, 143);
  t.deepEqual(daemon.calls.inputs, ["resize 50", "signal 15"]);
  t.deepEqual(session.stdin.raw, [true, false]);
  const piped = await podnet(["exec", "-it", "web", "sh"], here);
  t.deepEqual([piped.code, /no terminal/.test(piped.err)], [2, true]);
});

test("console without a terminal reads, and types nothing", async (t) => {
  const kept = await podnet(["console", "--no-follow", "web"], here);
  t.deepEqual([kept.code, kept.out], [0, "booting\r\n"]);
  const reading = start(["console", "--no-stdin", "web"], onTerminal);
  await once(reading.stdout, "data");
  reading.stdin.write("only read");
  reading.signal("SIGINT");
  t.is(await reading.done, 130);
  t.deepEqual([reading.stdin.raw, daemon.calls.typed.includes("only read")], [[], false]);
});

/** What the terminal shows, as soon as it does. */
async function shows(session: ReturnType<typeof start>, text: string): Promise<void> {
  while (!session.stdout.text.includes(text)) await once(session.stdout, "data");
}

test("console on a terminal: keys go to the guest, the detach keys leave it, and the terminal is put back", async (t) => {
  const session = start(["console", "web"], onTerminal);
  await shows(session, "login: ");
  session.stdin.write("root\u0003\u0010x");
  await shows(session, "x");
  session.stdin.write("\u0010");
  session.stdin.write("\u0011not typed");
  t.is(await session.done, 0);
  t.regex(session.stderr.text, /ctrl-p,ctrl-q detaches[^]*Detached from web/);
  t.true(daemon.calls.typed.includes("root\u0003\u0010x"));
  t.false(daemon.calls.typed.includes("not typed"));
  t.deepEqual(session.stdin.raw, [true, false]);

  const other = start(["console", "--detach-keys", "ctrl-a,d", "web"], onTerminal);
  await shows(other, "login: ");
  other.stdin.write("\u0010\u0011\u0001d");
  t.is(await other.done, 0);
  t.is((await podnet(["console", "--detach-keys", "ctrl-ab", "web"], onTerminal)).code, 2);
});

test("console: every other ending puts the terminal back, too", async (t) => {
  const ends = start(["console", "web"], onTerminal);
  await shows(ends, "login: ");
  ends.stdin.write("\u0004");
  t.is(await ends.done, 0);
  t.regex(ends.stderr.text, /The console of web has ended/);
  const refused = start(["console", "db"], onTerminal);
  t.is(await refused.done, 5);
  t.regex(plain(refused.stderr.text), /Another client types on this console.*\(WRONG_STATE\)/);
  for (const [name, code] of [
    ["SIGTERM", 143],
    ["SIGHUP", 0],
  ] as const) {
    const session = start(["console", "--detach-keys", "", "web"], onTerminal);
    await shows(session, "login: ");
    session.signal(name);
    t.is(await session.done, code);
    t.deepEqual(session.stdin.raw, [true, false], name);
  }
  for (const { stdin } of [ends, refused]) t.deepEqual(stdin.raw, [true, false]);
});

test("logs prints what is kept, the last lines of it, and harmless to a terminal", async (t) => {
  t.deepEqual((await podnet(["logs", "-n", "1", "web"], here)).out, "booting\r\n");
  t.is((await podnet(["logs", "db"], onTerminal)).out, shownPrint);
  t.is((await podnet(["logs", "absent"], here)).code, 4);
});

/** The output on a terminal, as hostilePrint may reach it. */
const shownPrint =
  "\tä€\\u001b]0;root@host\\u0007\\u001b]52;c;cm0=\\u0007\\u001b[c\\u009b31m\\u202e\\u0008\\u0000\ufffdok\r\n";

/** Runs the podnet command on a terminal of its own, and answers all that reaches it. */
async function onRealTerminal(args: readonly string[]): Promise<Buffer> {
  const top = path.resolve(import.meta.dirname, "../../..");
  // Without translation of line ends, which is the terminal's own.
  const program = `import os, pty, sys, tty
def child():
    tty.setraw(1)
    os.execvp(sys.argv[1], sys.argv[1:])
pid, fd = pty.fork()
if pid == 0: child()
while True:
    try: data = os.read(fd, 65536)
    except OSError: break
    if not data: break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`;
  const { stdout } = await promisify(execFile)(
    "/usr/bin/python3",
    ["-c", program, path.join(top, "bin/podnet"), ...args],
    { encoding: "buffer", timeout: 60_000, env: { ...process.env, PODNET_SOCKET: socket } },
  );
  return stdout;
}

test("what a guest prints does not steer a terminal, unless it is asked for; a pipe gets it as it is", async (t) => {
  t.is((await onRealTerminal(["console", "--no-follow", "db"])).toString(), shownPrint);
  t.deepEqual(await onRealTerminal(["console", "--no-follow", "--raw", "db"]), hostilePrint);
  const piped = await promisify(execFile)(
    path.resolve(import.meta.dirname, "../../../bin/podnet"),
    ["console", "--no-follow", "db"],
    { encoding: "buffer", timeout: 60_000, env: { ...process.env, PODNET_SOCKET: socket } },
  );
  t.deepEqual(piped.stdout, hostilePrint);
});
