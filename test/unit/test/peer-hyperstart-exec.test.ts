import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { ACK, exec, setUp } from "./fixtures/host.ts";

// The stand-in against what was recorded of the real hyperstart 1.1.0: numbers and bytes are
// written by hand.

test("exec: output, an end on the stdio stream only, then the event", async (t) => {
  const { host } = await setUp(t);
  host.send(
    6,
    exec(["sh", "-c", "echo out; echo err >&2; exit 7"], { id: "hyperstart-exec-XXXXXXXXXX" }),
  );
  const hex = (await host.tty.take(16 + 16 + 12)).toString("hex");
  const out = "0000000000000001000000106f75740a";
  const err = "0000000000000002000000106572720a";
  t.is(hex, `${out}${err}00000000000000010000000c`);
  t.is((await host.reply()).code, ACK);
  const event = await host.reply();
  t.is(event.code, 23);
  t.is(
    event.data.toString(),
    '{"container":"hyperstart","process":"hyperstart-exec-XXXXXXXXXX","event":"finished","status":7}',
  );
  await sleep(10);
  t.is(host.tty.bytes.length, 0);
});

test("exec: what is asked for wrongly, and what does not need to be there", async (t) => {
  const { host } = await setUp(t);
  t.is(await host.ask(6, exec(["true"], {}, "nowhere")), "ERROR");
  t.is(await host.ask(6, exec([])), "ERROR");
  t.is(await host.ask(6, exec(["true"], { stdio: 0 })), "ERROR");
  t.is(await host.ask(6, exec(["true"], { stderr: undefined })), "ERROR");
  t.is(await host.ask(6, exec(["true"], { rlimits: [] })), "ERROR");
  t.is(await host.ask(6, exec(["true"], { id: undefined })), "ACK");
  t.is((await host.reply()).code, 23);
  t.is((await host.run("ipvsadm", "-R")).status, 127);
  t.is((await host.run("false")).status, 1);
});

test("exec: streams are 64 bits wide, a terminal has one of them and CR LF", async (t) => {
  const { host } = await setUp(t);
  const seq = 2n ** 63n + 1n;
  const request = JSON.stringify(
    exec(["sh", "-c", "echo a; echo b >&2"], { terminal: true, stderr: undefined }),
  );
  t.is(await host.ask(6, request.replace('"stdio":1', `"stdio":${seq}`)), "ACK");
  let shown = "";
  for (let frame = await host.ttyFrame(); frame.data !== ""; frame = await host.ttyFrame()) {
    t.is(frame.seq, seq);
    shown += frame.data;
  }
  t.is(shown, "a\r\nb\r\n");
});

test("stdin: small frames arrive whole, of a large one 512 bytes", async (t) => {
  const { host, peer } = await setUp(t);
  t.is(await host.ask(6, exec(["wc", "-c"])), "ACK");
  for (let i = 0; i < 640; i++) host.frame(1n, "x".repeat(16));
  host.frame(1n, "x".repeat(1000));
  host.frame(1n, "");
  t.deepEqual(await host.ttyFrame(), { seq: 1n, data: `${640 * 16 + 512}\n` });
  t.is(peer.state.processes[0]?.lostInput, 488);
});

test("stdin of a process that does not read: pipe and buffer fill, the rest is lost", async (t) => {
  const { host, peer } = await setUp(t);
  t.is(await host.ask(6, exec(["sleep", "60"])), "ACK");
  for (let i = 0; i < 140; i++) host.frame(1n, "x".repeat(500));
  t.is(await host.ask(12), "ACK");
  while (peer.state.processes[0]?.lostInput === 0) await sleep(5);
  await sleep(20);
  t.is(peer.state.processes[0]?.lostInput, 140 * 500 - 16 * 8 * 500 - 512);
});

test("an unknown stream is answered with its end", async (t) => {
  const { host } = await setUp(t);
  host.frame(77n, "hello");
  t.deepEqual(await host.ttyFrame(), { seq: 77n, data: "" });
});

test("WINSIZE and SIGNALPROCESS find running processes only", async (t) => {
  const { host, peer } = await setUp(t);
  const it = { container: "hyperstart", process: "p" };
  t.is(await host.ask(11, { ...it, row: 25, column: 80 }), "ERROR");
  t.is(await host.ask(24, { ...it, signal: 9 }), "ERROR");
  t.is(await host.ask(6, exec(["cat"])), "ACK");
  t.is(await host.ask(11, { ...it, row: 25, column: 80 }), "ACK");
  t.deepEqual(peer.state.processes[0]?.size, [25, 80]);
  t.is(await host.ask(24, { ...it, signal: 9 }), "ACK");
  t.deepEqual(await host.ttyFrame(), { seq: 1n, data: "" });
  t.is(peer.state.processes[0]?.status, 137);
});

test("KILLCONTAINER of an unknown container says so, with a NUL", async (t) => {
  const { host } = await setUp(t);
  t.is(await host.ask(18, { container: "nowhere", signal: 9 }), "ERROR no such container\0");
});

test("containers: files, resolvers and name of their own", async (t) => {
  const { host } = await setUp(t);
  const process = { id: "init", terminal: false, stdio: 5, stderr: 6, args: ["cat"] };
  const container = { id: "c1", rootfs: "rootfs", image: "", process };
  t.is(await host.ask(17, container), "ERROR");
  t.is(await host.ask(1, { hostname: "pod-one", dns: ["8.8.8.8"] }), "ACK");
  t.is(await host.ask(17, { ...container, colour: "red" }), "ERROR");
  t.is(await host.ask(17, container), "ACK");
  t.is(await host.ask(15, '{"container":"c1","file":"/etc/motd"}a } b'), "ACK");
  t.is(await host.ask(16, { container: "c1", file: "/etc/motd" }), "ACK a } b");
  t.is(await host.ask(16, { container: "c1", file: "/etc/none" }), "ERROR");
  t.is(
    await host.ask(16, { container: "c1", file: "/etc/resolv.conf" }),
    "ACK nameserver 8.8.8.8\n",
  );
  t.is(await host.ask(6, exec(["hostname"], {}, "c1")), "ACK");
  t.is((await host.ttyFrame()).data, "pod-one\n");
  t.is((await host.ttyFrame()).data, "");
  t.is((await host.reply()).code, 23);
  t.is(await host.ask(22, { container: "c1" }), "ERROR");
  t.is(await host.ask(18, { container: "c1", signal: 9 }), "ACK");
  t.is(
    (await host.reply()).data.toString(),
    '{"container":"c1","process":"init","event":"finished","status":137}',
  );
  t.is(await host.ask(22, { container: "c1" }), "ACK");
  t.deepEqual(await host.ttyFrame(), { seq: 5n, data: "" });

  t.is((await host.run("hostname")).output, "(none)\n");
  t.is((await host.run("cat", "/etc/resolv.conf")).status, 1);
  t.is((await host.run("cat", "/tmp/hyper/resolv.conf")).output, "nameserver 8.8.8.8\n");
});
