import { createHash, randomBytes } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { encodeJson } from "../../guest-init/protocol/fields.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
});
test.after.always(() => host[Symbol.asyncDispose]());

const isAck = { code: command.ack };
const isError = { code: command.error };
const shell = (script: string): string[] => ["sh", "-c", script];
const digest = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

test.serial("output, errors and exit code", async (t) => {
  const { stdout, stderr, event } = await host.run(shell("echo out; echo err >&2; exit 3"));
  t.is(stdout.toString(), "out\n");
  t.is(stderr.toString(), "err\n");
  t.like(event, { container: "hyperstart", event: "finished", status: 3 });
});

test.serial(
  "a process ended by a signal, one that is not there, one that may not run",
  async (t) => {
    t.like((await host.run(shell("kill -9 $$"))).event, { status: 137 });
    const missing = await host.run(["no-such-program"]);
    t.like(missing.event, { status: 127 });
    t.regex(missing.stderr.toString(), /no-such-program: No such file/);
    t.like((await host.run(["/etc"])).event, { status: 126 });
    t.like((await host.run(["true"], { workdir: "/none" })).event, { status: 125 });
  },
);

test.serial(
  "arguments and variables of any text, the empty one too, arrive as they are",
  async (t) => {
    const texts = ["", "plain", "gr\u00fc\u00df \u20ac", "\u{1f600}", "a".repeat(5000)];
    const { stdout } = await host.run(["sh", "-c", 'printf "%s\\n" "$A" "$@"', "sh", ...texts], {
      envs: [{ env: "A", value: "\u00fc=\u20ac" }],
    });
    t.deepEqual(stdout.toString().split("\n"), ["\u00fc=\u20ac", ...texts, ""]);
  },
);

test.serial("a megabyte of any bytes goes through unharmed", async (t) => {
  const data = randomBytes(1024 * 1024 + 17);
  const { stdout } = await host.run(["cat"], {}, data);
  t.is(digest(stdout), digest(data));
});

test.serial("frames stay within 4,096 bytes until HELLO, and grow after it", async (t) => {
  await using plain = await AgentHost.start();
  const data = randomBytes(200_000);
  await plain.run(["cat"], {}, data);
  t.true(plain.largestFrame <= 4096);
  await plain.ack(command.hello, { versions: [1], nonce: "n" });
  const { stdout } = await plain.run(["cat"], {}, data);
  t.is(digest(stdout), digest(data));
  t.true(plain.largestFrame > 4096);
});

/** Writes a lot of random bytes at once, and their digest on its standard error. */
const muchOutput = `
import hashlib, os, sys
data = os.urandom(6000013)
sys.stdout.buffer.write(data)
sys.stderr.write(hashlib.sha256(data).hexdigest())
`;

test.serial("much output arrives unharmed at a host that keeps pausing", async (t) => {
  await using extended = await AgentHost.start();
  await extended.ack(command.hello, { versions: [1], nonce: "n" });
  const streams = await extended.begin(["python3", "-c", muchOutput]);
  const end = extended.finished(streams);
  // What the port has no room for is written later, and a frame of it is under way then.
  const pauses = setInterval(() => {
    extended.tty.pause();
    setTimeout(() => extended.tty.resume(), 3);
  }, 10);
  const { stdout, stderr, event } = await end;
  clearInterval(pauses);
  t.like(event, { status: 0 });
  t.is(stdout.length, 6_000_013);
  t.is(digest(stdout), stderr.toString());
});

/** Takes back some of what it writes: whoever has a pipe can open its other end. */
const readsItself = `
import os, sys
back = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
written = taken = 0
for i in range(200):
    written += os.write(1, b"x" * 50000)
    try:
        taken += len(os.read(back, 7001))
    except BlockingIOError:
        pass
os.close(back)
sys.stderr.write(f"{written - taken}")
`;

test.serial("a process that reads its own output gets no stream out of step", async (t) => {
  await using extended = await AgentHost.start();
  await extended.ack(command.hello, { versions: [1], nonce: "n" });
  const greedy = await extended.begin(["python3", "-c", readsItself]);
  const honest = extended.run(["python3", "-c", muchOutput]);
  const { stdout, stderr, event } = await extended.finished(greedy);
  t.like(event, { status: 0 });
  t.is(stdout.length, Number(stderr.toString()));
  t.is(
    stdout.findIndex((byte) => byte !== 120),
    -1,
  );
  const unharmed = await honest;
  t.is(digest(unharmed.stdout), unharmed.stderr.toString());
});

test.serial("environment, directory, user and groups", async (t) => {
  const { stdout } = await host.run(shell("echo $A; echo $HOME; pwd; id -u; id -g; id -G"), {
    envs: [{ env: "A", value: "b c" }],
    workdir: "/run",
    user: "65534",
    group: "5",
    additionalGroups: ["7", "9"],
  });
  t.is(stdout.toString(), "b c\n/\n/run\n65534\n5\n5 7 9\n");
  const spec = { id: "u", terminal: false, stdio: 901, stderr: 902, args: ["true"] };
  for (const wrong of [{ user: "missing-here" }, { group: "none" }, { additionalGroups: ["none"] }])
    t.like(
      await host.ask(command.execCmd, { container: "hyperstart", process: { ...spec, ...wrong } }),
      isError,
    );
});

test.serial("a terminal: size, end of input, one stream", async (t) => {
  const streams = await host.begin(shell("tty -s && stty size; cat; stty size"), {
    terminal: true,
  });
  const end = host.finished(streams);
  await host.ack(command.winSize, {
    container: "hyperstart",
    process: `p${streams.stdio}`,
    row: 33,
    column: 99,
  });
  host.write(streams.stdio, Buffer.from("typed\n"));
  host.end(streams.stdio);
  const { stdout, stderr } = await end;
  t.regex(stdout.toString(), /typed\r\n[^]*33 99\r\n$/);
  t.is(stderr.length, 0);
});

test.serial("signals reach the whole process group", async (t) => {
  const streams = await host.begin(shell("sleep 60 & sleep 60; echo not reached"));
  const end = host.finished(streams);
  const target = { container: "hyperstart", process: `p${streams.stdio}` };
  await host.ack(command.signalProcess, { ...target, signal: 15 });
  t.like((await end).event, { status: 143 });
  t.like(await host.ask(command.signalProcess, { ...target, signal: 15 }), isError);
  t.like(await host.ask(command.winSize, { ...target, row: 1, column: 1 }), isError);
});

test.serial("a signal right behind EXECCMD finds the process", async (t) => {
  for (let i = 0; i < 50; i++) {
    const id = `quick${i}`;
    const process = { id, terminal: false, stdio: 9000 + 2 * i, stderr: 9001 + 2 * i };
    const spec = { ...process, args: ["sleep", "60"], workdir: "/" };
    const end = host.finished({ stdio: BigInt(process.stdio), stderr: BigInt(process.stderr) }, id);
    // Both are there before the agent looks: it takes them one right after the other.
    host.control.write(
      Buffer.concat([
        encodeCtlFrame(command.execCmd, encodeJson({ container: "hyperstart", process: spec })),
        encodeCtlFrame(
          command.signalProcess,
          encodeJson({ container: "hyperstart", process: id, signal: 9 }),
        ),
      ]),
    );
    t.like(await host.answer(), isAck);
    t.like(await host.answer(), isAck);
    t.like((await end).event, { status: 137 });
  }
});

test.serial("what a background child holds open does not delay the end", async (t) => {
  const { stdout } = await host.run(shell("sleep 30 & echo done"));
  t.is(stdout.toString(), "done\n");
});

test.serial(
  "EXECCMD is refused: unknown container, no arguments, streams in use or missing",
  async (t) => {
    const spec = { id: "x", terminal: false, stdio: 801, stderr: 802, args: ["sleep", "60"] };
    const exec = (process: object, container = "hyperstart") =>
      host.ask(command.execCmd, { container, process });
    for (const wrong of [
      { args: [] },
      { stdio: 0 },
      { stderr: undefined },
      { args: ["a\0b"] },
      { x: 1 },
    ])
      t.like(await exec({ ...spec, ...wrong }), isError, JSON.stringify(wrong));
    t.like(await exec(spec, "other"), isError);
    t.like(await exec(spec), { code: command.ack });
    t.like(await exec({ ...spec, id: "y" }), isError);
    t.like(await exec({ ...spec, stdio: 803 }), isError);
    const end = host.finished({ stdio: 801n, stderr: 802n }, "x");
    await host.ack(command.signalProcess, { container: "hyperstart", process: "x", signal: 9 });
    t.like((await end).event, { process: "x", status: 137 });
  },
);

test.serial("a slow reader of standard input loses nothing", async (t) => {
  const data = randomBytes(600_000);
  const { stdout } = await host.run(shell("sleep 0.2; sha256sum"), {}, data);
  t.is(stdout.toString().slice(0, 64), digest(data));
});

test.serial("a host that does not read makes the process wait, not the agent grow", async (t) => {
  const streams = await host.begin(shell("head -c 3000000 /dev/zero"));
  host.tty.pause();
  const end = host.finished(streams);
  t.like(await host.ask(command.ping), { code: command.ack });
  host.tty.resume();
  t.is((await end).stdout.length, 3_000_000);
});

test.serial("a process that waits for a host goes on when that host is gone", async (t) => {
  const id = "waits";
  const spec = { id, terminal: false, stdio: 7001, stderr: 7002, workdir: "/" };
  const args = shell("echo $$ > /run/waits; exec head -c 3000000 /dev/zero");
  host.tty.pause();
  await host.ack(command.execCmd, { container: "hyperstart", process: { ...spec, args } });
  const written = (): string => {
    if (!existsSync("/run/waits")) return "";
    const pid = readFileSync("/run/waits", "utf8").trim();
    if (pid === "") return "";
    return /wchar: (\d+)/.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1] ?? "";
  };
  // Each PING is a round of the agent's loop: one that passes over the output has no room for it.
  for (let seen = "", rounds = 0; rounds < 50; rounds++) {
    await host.ack(command.ping);
    if (written() === "" || written() !== seen) rounds = 0;
    seen = written();
  }
  const end = host.ended(id);
  await host.ttyAgain();
  t.like(await end, { status: 0 });
});

/**
 * Holds a lease on a program: whoever opens it waits until it is let go, at the longest
 * /proc/sys/fs/lease-break-time.
 */
const holdProgram = `
import fcntl, os, shutil, signal, sys
shutil.copy(shutil.which("true"), "/tmp/held")
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open("/tmp/held", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
`;

test.serial("a program that cannot be opened yet holds up itself alone", async (t) => {
  const holder = await host.begin(["python3", "-c", holdProgram]);
  await host.output(holder.stdio, "held");
  const held = await host.begin(["/tmp/held"]);
  const end = host.finished(held);
  let over = false;
  void end.finally(() => {
    over = true;
  });
  t.like((await host.run(shell("echo $((6 * 7))"))).event, { status: 0 });
  t.false(over, "it waits all the while");
  await host.ack(command.signalProcess, {
    container: "hyperstart",
    process: `p${held.stdio}`,
    signal: 9,
  });
  t.like((await end).event, { status: 137 }, "and can be ended");
  host.end(holder.stdio);
  t.like((await host.finished(holder)).event, { status: 0 });
  t.like((await host.run(["/tmp/held"])).event, { status: 0 }, "no process holds it now");
});

test.serial("a thousand processes leave neither descriptors nor memory behind", async (t) => {
  const pid = host.process.pid as number;
  const descriptors = (): number => readdirSync(`/proc/${pid}/fd`).length;
  const rss = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  const thousand = async (): Promise<void> => {
    for (let i = 0; i < 1000; i++) await host.run(["true"]);
  };
  // The first thousand fills what garbage collection leaves until a threshold; the second must find
  // room there.
  await thousand();
  const before = { descriptors: descriptors(), rss: rss() };
  await thousand();
  t.is(descriptors(), before.descriptors);
  t.true(rss() - before.rss <= 128, `grew from ${before.rss} to ${rss()} KiB`);
  t.true(rss() <= 3072, `${rss()} KiB`);
  t.log(`${before.rss} KiB before, ${rss()} KiB after`);
});
