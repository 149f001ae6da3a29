import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import {
  type HyperstartOptions,
  type HyperstartPeer,
  startHyperstartPeer,
} from "../peers/hyperstart.ts";

// The stand-in against what was recorded of the real hyperstart 1.1.0: numbers and bytes are written by hand.

const ACK = 9;
const ERROR = 10;
const NEXT = 14;
const eth0 = { name: "eth0", mac: "52:54:00:11:22:33" };
const configured = { ...eth0, addresses: ["192.168.123.2/24"] };
const byDefault = { dest: "default", gateway: "192.168.123.1" };

interface Message {
  readonly code: number;
  readonly data: Buffer;
}

interface Frame {
  readonly seq: bigint;
  readonly data: string;
}

/** One of the two sockets, as bytes. */
class Line {
  readonly socket: Socket;
  bytes = Buffer.alloc(0);
  closed = false;
  #changed = Promise.withResolvers<void>();

  constructor(path: string) {
    this.socket = connect(path);
    this.socket.on("data", (data) => {
      this.bytes = Buffer.concat([this.bytes, data]);
      this.#changed.resolve();
    });
    this.socket.on("error", () => this.socket.destroy());
    this.socket.on("close", () => {
      this.closed = true;
      this.#changed.resolve();
    });
  }

  async take(count: number): Promise<Buffer> {
    while (this.bytes.length < count) {
      if (this.closed) throw new Error(`Closed; ${this.bytes.length} of ${count} bytes came`);
      await this.#changed.promise;
      this.#changed = Promise.withResolvers();
    }
    const taken = this.bytes.subarray(0, count);
    this.bytes = this.bytes.subarray(count);
    return taken;
  }
}

/** A host that knows no more than the framing. */
class Host {
  readonly control: Line;
  readonly tty: Line;
  /** NEXT values since the last reply. */
  nexts: number[] = [];

  constructor(controlPath: string, ttyPath: string) {
    this.control = new Line(controlPath);
    this.tty = new Line(ttyPath);
  }

  write(hex: string): void {
    this.control.socket.write(Buffer.from(hex.replaceAll(" ", ""), "hex"));
  }

  async message(): Promise<Message> {
    const header = await this.control.take(8);
    const data = await this.control.take(header.readUInt32BE(4) - 8);
    return { code: header.readUInt32BE(0), data };
  }

  /** The next message that is not NEXT. */
  async reply(): Promise<Message> {
    for (;;) {
      const message = await this.message();
      if (message.code !== NEXT) return message;
      this.nexts.push(message.data.readUInt32BE(0));
    }
  }

  send(code: number, payload: string | object = ""): void {
    this.control.socket.write(command(code, payload));
  }

  /** Sends a command and returns what became of it: "ACK", "ERROR", with the reply's data if it has any. */
  async ask(code: number, payload: string | object = ""): Promise<string> {
    this.nexts = [];
    this.send(code, payload);
    const { code: reply, data } = await this.reply();
    const name = reply === ACK ? "ACK" : reply === ERROR ? "ERROR" : `${reply}`;
    return data.length === 0 ? name : `${name} ${data.toString("latin1")}`;
  }

  frame(seq: bigint, data: Buffer | string): void {
    const body = Buffer.from(data);
    const header = Buffer.alloc(12);
    header.writeBigUInt64BE(seq);
    header.writeUInt32BE(12 + body.length, 8);
    this.tty.socket.write(Buffer.concat([header, body]));
  }

  async ttyFrame(): Promise<Frame> {
    const header = await this.tty.take(12);
    const data = await this.tty.take(header.readUInt32BE(8) - 12);
    return { seq: header.readBigUInt64BE(), data: data.toString() };
  }

  /** Runs a command in the agent's namespaces to its end. */
  async run(
    ...args: readonly string[]
  ): Promise<{ output: string; errors: string; status: number }> {
    const answer = await this.ask(6, exec(args));
    if (answer !== "ACK") throw new Error(answer);
    let [output, errors] = ["", ""];
    for (;;) {
      const { seq, data } = await this.ttyFrame();
      if (data === "") break;
      if (seq === 1n) output += data;
      else errors += data;
    }
    const { data } = await this.reply();
    return { output, errors, status: JSON.parse(data.toString()).status as number };
  }

  close(): void {
    this.control.socket.destroy();
    this.tty.socket.destroy();
  }
}

function command(code: number, payload: string | object = ""): Buffer {
  const body = Buffer.from(typeof payload === "string" ? payload : JSON.stringify(payload));
  const header = Buffer.alloc(8);
  header.writeUInt32BE(code, 0);
  header.writeUInt32BE(8 + body.length, 4);
  return Buffer.concat([header, body]);
}

function exec(args: readonly string[], process: object = {}, container = "hyperstart"): object {
  return {
    container,
    process: { id: "p", terminal: false, stdio: 1, stderr: 2, args, workdir: "/", ...process },
  };
}

interface Setup {
  readonly peer: HyperstartPeer;
  readonly host: Host;
  readonly paths: { readonly controlPath: string; readonly ttyPath: string };
}

async function listen(
  t: ExecutionContext,
  options: Partial<HyperstartOptions>,
): Promise<Setup["paths"] & { peer: HyperstartPeer }> {
  const folder = await mkdtemp(join(tmpdir(), "podnet-hyperstart-"));
  const paths = { controlPath: join(folder, "hyper.sock"), ttyPath: join(folder, "tty.sock") };
  const peer = await startHyperstartPeer({ ...paths, ...options });
  t.teardown(async () => {
    await peer.close();
    await rm(folder, { recursive: true });
  });
  return { ...paths, peer };
}

/** A peer whose READY has been read. */
async function setUp(
  t: ExecutionContext,
  options: Partial<HyperstartOptions> = {},
): Promise<Setup> {
  const { peer, ...paths } = await listen(t, options);
  const host = new Host(paths.controlPath, paths.ttyPath);
  t.teardown(() => host.close());
  if (options.ready !== false) t.is((await host.message()).code, 8);
  return { peer, host, paths };
}

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
  t.is(
    await host.ask(1, {
      dns: ["fd00:1234:5678::8888"],
      dnsSearch: ["a", "b"],
      dnsOptions: ["ndots:1"],
    }),
    "ACK",
  );
  t.is(peer.state.resolvConf, "nameserver fd00:1234:5678::\0\0\0\0\0search a b\noptions ndots:1\n");
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

test("DESTROYPOD: ACK, then both sockets close and nobody listens", async (t) => {
  const { host, peer, paths } = await setUp(t);
  t.is(await host.ask(4, "null"), "ACK");
  t.is(await peer.exited, "powered off");
  await t.throwsAsync(host.control.take(1));
  await t.throwsAsync(host.tty.take(1));
  await t.throwsAsync(once(connect(paths.controlPath), "connect"), { code: "ENOENT" });
});

test("SETUPINTERFACE refuses what it cannot read, without a wait", async (t) => {
  const { host, peer } = await setUp(t, { links: [eth0] });
  const at = performance.now();
  const address = (ipAddress: string, netMask: string): object => ({
    device: "eth0",
    ipAddresses: [{ ipAddress, netMask }],
  });
  for (const payload of [
    "{",
    "null",
    { device: "eth0", colour: "red" },
    { newDeviceName: "eth0" },
    address("10.0.0.300", "24"),
    address("10.0.0.3", "255.0.255.0"),
    address("10.0.0.3", "33"),
    address("fd00::1", "64"),
  ])
    t.is(await host.ask(20, payload), "ERROR", JSON.stringify(payload));
  // Each would be of two seconds.
  t.true(performance.now() - at < 8 * 1000);
  t.deepEqual(peer.state.links[1]?.addresses, []);
});

test("an unknown device holds the whole agent for two seconds", async (t) => {
  const { host } = await setUp(t);
  const at = performance.now();
  host.send(20, { device: "eth9", mtu: 0 });
  host.send(12);
  host.frame(7n, "x");
  t.is((await host.reply()).code, ERROR);
  const waited = performance.now() - at;
  t.true(waited > 1990 && waited < 4000, `${waited}`);
  t.is(host.tty.bytes.length, 0);
  t.is((await host.reply()).code, ACK);
  t.deepEqual(await host.ttyFrame(), { seq: 7n, data: "" });
});

test("a route by an unknown device is an ERROR after two seconds", async (t) => {
  const { host } = await setUp(t);
  const at = performance.now();
  t.is(await host.ask(21, { routes: [{ dest: "10.0.0.0/8", device: "eth9" }] }), "ERROR");
  t.true(performance.now() - at > 1990);
});

test("every form of mask and address is applied", async (t) => {
  const { host, peer } = await setUp(t, { links: [eth0] });
  const addresses = (): readonly string[] | undefined => peer.state.links[1]?.addresses;
  const ask = (...ipAddresses: object[]): Promise<string> =>
    host.ask(20, { device: "eth0", ipAddresses });
  t.is(await ask({ ipAddress: "192.168.123.2", netMask: "255.255.255.0" }), "ACK");
  t.is(await ask({ ipAddress: "10.9.0.2", netMask: "16" }), "ACK");
  t.is(await ask({ ipAddress: "10.10.0.2", netMask: "0x18" }), "ACK");
  t.is(
    await host.ask(20, { device: "eth0", ipAddress: "10.11.0.2", netMask: "255.255.0.0" }),
    "ACK",
  );
  t.is(
    await ask({ ipAddress: "10.12.0.2", netMask: "24" }, { ipAddress: "10.13.0.2", netMask: "24" }),
    "ACK",
  );
  t.deepEqual(addresses(), [
    "192.168.123.2/24",
    "10.9.0.2/16",
    "10.10.0.2/24",
    "10.11.0.2/16",
    "10.12.0.2/24",
    "10.13.0.2/24",
  ]);
  t.is(await ask({ ipAddress: "-10.9.0.2", netMask: "16" }), "ACK");
  t.false(addresses()?.includes("10.9.0.2/16"));
});

test("a duplicate address is acknowledged and changes nothing", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  const before = peer.state;
  const ipAddresses = [{ ipAddress: "192.168.123.2", netMask: "255.255.255.0" }];
  t.is(await host.ask(20, { device: "eth0", ipAddresses }), "ACK");
  t.deepEqual(peer.state, before);
});

test("runv's AddIP and SetMtu shapes take a live link's routes with them", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
  t.is(peer.state.routes.length, 3);
  const ipAddresses = [{ ipAddress: "10.9.0.2", netMask: "255.255.0.0" }];
  t.is(await host.ask(20, { device: "eth0", newDeviceName: "", ipAddresses, mtu: 0 }), "ACK");
  const connected = [
    { dest: "10.9.0.0/16", device: "eth0", connected: true },
    { dest: "192.168.123.0/24", device: "eth0", connected: true },
  ];
  t.deepEqual(peer.state.routes, connected);

  t.is(await host.ask(21, { routes: [byDefault] }), "ACK");
  t.is(peer.state.routes.length, 3);
  t.is(
    await host.ask(20, { device: "eth0", newDeviceName: "", ipAddresses: [], mtu: 1400 }),
    "ACK",
  );
  t.deepEqual(peer.state.routes, connected);
  t.like(peer.state.links[1], { mtu: 1400, up: true });
});

test("what the kernel refuses is acknowledged: second default, gateway out of reach, host bits", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  const before = peer.state;
  for (const route of [
    { dest: "0.0.0.0/0", gateway: "192.168.123.1", device: "eth0" },
    { dest: "any", gateway: "192.168.123.254" },
    { dest: "10.0.0.0/8", gateway: "203.0.113.1", device: "eth0" },
    { dest: "10.0.0.1/8", gateway: "192.168.123.1" },
    { dest: "10.0.0.0/8" },
  ])
    t.is(await host.ask(21, { routes: [route] }), "ACK");
  t.deepEqual(peer.state, before);
});

test("destinations: dotted mask, single address, four ways to say default", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  const gateway = "192.168.123.1";
  t.is(await host.ask(21, { routes: [{ dest: "172.20.0.0/255.255.0.0", gateway }] }), "ACK");
  t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
  t.deepEqual(peer.state.routes, [
    { dest: "172.20.0.0/16", gateway, device: "eth0", connected: false },
    { dest: "172.21.0.5/32", device: "eth0", connected: false },
    { dest: "192.168.123.0/24", device: "eth0", connected: true },
  ]);
  for (const dest of ["0.0.0.0/0", "default", "any", "all"]) {
    const fresh = await setUp(t, { links: [configured] });
    t.is(await fresh.host.ask(21, { routes: [{ dest, gateway }] }), "ACK");
    t.deepEqual(fresh.peer.state.routes[0], {
      dest: "default",
      gateway,
      device: "eth0",
      connected: false,
    });
  }
});

test("routes: no destination or an empty gateway is an ERROR, none at all an ACK", async (t) => {
  const { host } = await setUp(t, { links: [configured] });
  t.is(await host.ask(21, { routes: [{ gateway: "192.168.123.1" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [{ dest: "default", gateway: "" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [{ dest: "fd00::/8" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [] }), "ACK");
  t.is(await host.ask(21, "{}"), "ACK");
});

test("400 routes in one message", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  const routes = Array.from({ length: 400 }, (_, i) => ({
    dest: `10.${i >> 8}.${i & 255}.0/24`,
    device: "eth0",
  }));
  t.is(await host.ask(21, { routes }), "ACK");
  t.is(peer.state.routes.length, 401);
});

test("a hot-plugged card is found by name, renamed and given its MTU", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  host.send(20, {
    device: "eth1",
    newDeviceName: "eth5",
    ipAddresses: [{ ipAddress: "10.5.0.2", netMask: "255.255.255.0" }],
    mtu: 1300,
  });
  await sleep(50);
  peer.addLink("eth1", "52:54:00:11:22:44");
  t.is((await host.reply()).code, ACK);
  t.deepEqual(peer.state.links[2], {
    name: "eth5",
    mac: "52:54:00:11:22:44",
    mtu: 1300,
    up: true,
    addresses: ["10.5.0.2/24"],
  });
  t.is(await host.ask(25, { device: "eth5" }), "ACK");
  t.deepEqual(
    peer.state.links.map(({ name }) => name),
    ["lo", "eth0"],
  );
  t.is(await host.ask(25, { device: "eth5" }), "ERROR");
});

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
  t.is(peer.state.processes[0]?.lostInput, 140 * 500 - 65536 - 512);
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

// Lines as busybox 1.35 and iproute2 6.1 printed them on a real kernel with the same addresses and routes.
const busybox = {
  "ip addr show dev eth0": `\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast qlen 1000
    link/ether 52:54:00:11:22:33 brd ff:ff:ff:ff:ff:ff
    inet 192.168.123.2/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.9.0.2/16 scope global eth0
       valid_lft forever preferred_lft forever
    inet 192.168.123.9/24 scope global secondary eth0
       valid_lft forever preferred_lft forever
    inet6 fe80::5054:ff:fe11:2233/64 scope link${" "}
       valid_lft forever preferred_lft forever
`,
  "ip -4 -o addr": `\
2: eth0    inet 192.168.123.2/24 scope global eth0\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.9.0.2/16 scope global eth0\\       valid_lft forever preferred_lft forever
2: eth0    inet 192.168.123.9/24 scope global secondary eth0\\       valid_lft forever preferred_lft forever
`,
  "ip route": `\
default via 192.168.123.1 dev eth0${" "}
10.9.0.0/16 dev eth0 scope link  src 10.9.0.2${" "}
172.21.0.5 dev eth0 scope link${" "}
192.168.123.0/24 dev eth0 scope link  src 192.168.123.2${" "}
`,
  "ip link": `\
1: lo: <LOOPBACK> mtu 65536 qdisc noop qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast qlen 1000
    link/ether 52:54:00:11:22:33 brd ff:ff:ff:ff:ff:ff
`,
  "busybox cat /sys/class/net/eth0/operstate": "up\n",
};

const iproute2 = {
  "ip -4 addr show dev eth0": `\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast state UP group default qlen 1000
    inet 192.168.123.2/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.9.0.2/16 scope global eth0
       valid_lft forever preferred_lft forever
    inet 192.168.123.9/24 scope global secondary eth0
       valid_lft forever preferred_lft forever
`,
  "/sbin/ip route": `\
default via 192.168.123.1 dev eth0${" "}
10.9.0.0/16 dev eth0 proto kernel scope link src 10.9.0.2${" "}
172.21.0.5 dev eth0 scope link${" "}
192.168.123.0/24 dev eth0 proto kernel scope link src 192.168.123.2${" "}
`,
  "ip route show default": "default via 192.168.123.1 dev eth0 \n",
};

for (const [ip, printed] of Object.entries({ busybox, iproute2 })) {
  test(`ip prints as ${ip} does`, async (t) => {
    const { host } = await setUp(t, {
      links: [{ ...eth0, addresses: ["192.168.123.2/24", "10.9.0.2/16", "192.168.123.9/24"] }],
      routes: [byDefault],
      ip: ip as "busybox" | "iproute2",
    });
    t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
    for (const [line, output] of Object.entries(printed))
      t.deepEqual(await host.run(...line.split(" ")), { output, errors: "", status: 0 }, line);
    const unknown = await host.run("ip", "addr", "show", "eth9");
    t.deepEqual(unknown, {
      output: "",
      errors:
        ip === "busybox" ? "ip: can't find device 'eth9'\n" : 'Device "eth9" does not exist.\n',
      status: 1,
    });
  });
}

test("the last address of a link takes its routes, the first of a subnet its seconds", async (t) => {
  const { host, peer } = await setUp(t, {
    links: [{ ...eth0, addresses: ["192.168.123.2/24", "192.168.123.9/24", "10.9.0.2/16"] }],
    routes: [byDefault],
  });
  const remove = (ipAddress: string, netMask: string): Promise<string> =>
    host.ask(20, { device: "eth0", ipAddresses: [{ ipAddress: `-${ipAddress}`, netMask }] });
  t.is(await remove("192.168.123.2", "24"), "ACK");
  t.deepEqual(peer.state.links[1]?.addresses, ["10.9.0.2/16"]);
  t.deepEqual(
    peer.state.routes.map(({ dest }) => dest),
    ["default", "10.9.0.0/16"],
  );
  t.is(await remove("10.9.0.2", "16"), "ACK");
  t.deepEqual(peer.state.routes, []);
});
