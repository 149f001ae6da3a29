import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { ACK, NEXT, Host, Line, command, listen, setUp } from "./fixtures/host.ts";

// The stand-in against what was recorded of the real hyperstart 1.1.0: numbers and bytes are
// written by hand.

test("READY comes once and empty; GETVERSION is 4244 with and without null", async (t) => {
  const { host, peer } = await setUp(t, { ready: false });
  host.write("00000000 0000000c 6e756c6c");
  const answer = "0000000e0000000c00000008 0000000e0000000c00000004 000000090000000c00001094";
  t.is((await host.control.take(36)).toString("hex"), answer.replaceAll(" ", ""));
  host.write("00000000 00000008");
  t.is(
    (await host.control.take(24)).toString("hex"),
    "0000000e0000000c00000008000000090000000c00001094",
  );
  t.deepEqual(peer.received, [
    { code: 0, payload: Buffer.from("null") },
    { code: 0, payload: Buffer.alloc(0) },
  ]);

  const fresh = await listen(t, {});
  const line = new Line(fresh.controlPath);
  t.teardown(() => line.socket.destroy());
  t.is((await line.take(8)).toString("hex"), "0000000800000008");
});

test("the host closes and opens the socket: PING is answered, READY not said again", async (t) => {
  const { host, paths } = await setUp(t);
  host.close();
  const again = new Host(paths.controlPath, paths.ttyPath);
  t.teardown(() => again.close());
  again.send(12);
  t.is((await again.message()).code, NEXT);
  t.is((await again.message()).code, ACK);
});

test("a second client is served when the first has gone", async (t) => {
  const { host, paths } = await setUp(t);
  const second = new Host(paths.controlPath, paths.ttyPath);
  t.teardown(() => second.close());
  second.send(12);
  await sleep(30);
  t.is(second.control.bytes.length, 0);
  t.is(await host.ask(12), "ACK");
  host.close();
  t.deepEqual(await second.reply(), { code: ACK, data: Buffer.alloc(0) });
});

test("what is sent before the agent runs is answered after READY", async (t) => {
  const { controlPath, ttyPath } = await listen(t, { bootMs: 50 });
  const host = new Host(controlPath, ttyPath);
  t.teardown(() => host.close());
  host.send(12);
  t.deepEqual(
    [await host.message(), await host.message(), await host.message()].map(({ code }) => code),
    [8, NEXT, ACK],
  );
});

test("NEXT counts each read: header first, then body", async (t) => {
  const { host } = await setUp(t);
  const message = command(12, "x".repeat(15_800 - 8));
  host.control.socket.write(message);
  await host.reply();
  t.deepEqual(host.nexts, [8, 15_792]);

  host.nexts = [];
  for (let at = 0; at < message.length; at += 512) {
    const chunk = message.subarray(at, at + 512);
    host.control.socket.write(chunk);
    let counted = 0;
    while (counted < chunk.length) {
      const { code, data } = await host.message();
      t.is(code, NEXT);
      counted += data.readUInt32BE(0);
      host.nexts.push(data.readUInt32BE(0));
    }
  }
  t.is((await host.message()).code, ACK);
  t.deepEqual(host.nexts, [8, 504, ...Array<number>(29).fill(512), 15_800 - 30 * 512]);

  host.nexts = [];
  for (const byte of command(12)) {
    host.control.socket.write(Buffer.of(byte));
    host.nexts.push((await host.message()).data.readUInt32BE(0));
  }
  t.is((await host.message()).code, ACK);
  t.deepEqual(host.nexts, [1, 1, 1, 1, 1, 1, 1, 1]);
});

test("three pipelined commands are answered in order", async (t) => {
  const { host } = await setUp(t);
  host.control.socket.write(Buffer.concat([command(12), command(0, "null"), command(12)]));
  const answers: string[] = [];
  for (let i = 0; i < 7; i++) {
    const { code, data } = await host.message();
    answers.push(`${code} ${data.toString("hex")}`);
  }
  t.deepEqual(answers, [
    "14 00000008",
    "9 ",
    "14 00000008",
    "14 00000004",
    "9 00001094",
    "14 00000008",
    "9 ",
  ]);
});

test("unknown and deprecated codes, and those only the guest says, are an empty ERROR", async (t) => {
  const { host } = await setUp(t);
  for (const code of [99, 3, 2, 5, 7, 13, 9, 10, 14, 23, 26, 100, 101])
    t.is(await host.ask(code), "ERROR", `${code}`);
});

test("READY of the host, ONLINECPUMEM and any PING are acknowledged", async (t) => {
  const { host } = await setUp(t);
  for (const [code, payload] of [
    [8, ""],
    [19, "null"],
    [12, "whatever"],
  ] as const)
    t.is(await host.ask(code, payload), "ACK");
});

test("STARTPOD: name and resolvers, and lo comes up", async (t) => {
  const { host, peer } = await setUp(t, { nineP: true });
  t.false(peer.state.links[0]?.up);
  const pod =
    '{"hostname":"pod-one","dns":["8.8.8.8"],"shareDir":"share_dir","portmappingWhiteLists":{}}';
  t.is(await host.ask(1, pod), "ACK");
  t.is(peer.state.hostname, "pod-one");
  t.is(peer.state.resolvConf, "nameserver 8.8.8.8\n");
  t.deepEqual(peer.state.links, [
    { name: "lo", mac: "00:00:00:00:00:00", mtu: 65536, up: true, addresses: ["127.0.0.1/8"] },
  ]);
  const other = await setUp(t);
  t.is(
    await other.host.ask(1, {
      dns: ["fd00:1234:5678::8888"],
      dnsSearch: ["a", "b"],
      dnsOptions: ["ndots:1"],
    }),
    "ACK",
  );
  t.is(
    other.peer.state.resolvConf,
    "nameserver fd00:1234:5678::\0\0\0\0\0search a b\noptions ndots:1\n",
  );
});

test("a second STARTPOD: ERROR, then power-off", async (t) => {
  const { host, peer } = await setUp(t);
  t.is(await host.ask(1, { hostname: "pod" }), "ACK");
  t.is(await host.ask(1, { hostname: "pod" }), "ERROR");
  t.is(await peer.exited, "powered off");
});

test("STARTPOD with an unknown key, or a share that cannot be mounted: ERROR, then power-off", async (t) => {
  for (const pod of [{ hostname: "a", extra: 1 }, { shareDir: "share_dir" }]) {
    const { host, peer } = await setUp(t);
    t.is(await host.ask(1, pod), "ERROR");
    t.is(await peer.exited, "powered off");
    await t.throwsAsync(host.control.take(1));
    await t.throwsAsync(host.tty.take(1));
  }
});

test("DESTROYPOD: ACK, then both sockets close and refuse connections", async (t) => {
  const { host, peer, paths } = await setUp(t);
  t.is(await host.ask(4, "null"), "ACK");
  t.is(await peer.exited, "powered off");
  await t.throwsAsync(host.control.take(1));
  await t.throwsAsync(host.tty.take(1));
  await t.throwsAsync(once(connect(paths.controlPath), "connect"), { code: "ENOENT" });
});

test("a control frame shorter than its header ends the agent and the machine", async (t) => {
  const { host, peer } = await setUp(t, { panicMs: 50 });
  host.write("0000000c 00000004");
  t.is((await host.message()).code, NEXT);
  t.regex(await peer.exited, /died/);
  await t.throwsAsync(host.control.take(1));
  await t.throwsAsync(host.tty.take(1));
});

test("a tty frame of more than 4096 bytes is a kernel panic, one of 4096 is not", async (t) => {
  const { host, peer } = await setUp(t, { panicMs: 50 });
  host.frame(9n, Buffer.alloc(4096 - 12));
  t.deepEqual(await host.ttyFrame(), { seq: 9n, data: "" });
  host.frame(9n, Buffer.alloc(5012 - 12));
  t.regex(await peer.exited, /kernel panic/);
  await t.throwsAsync(host.control.take(1));
  await t.throwsAsync(host.tty.take(1));
});
