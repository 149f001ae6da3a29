import { EventEmitter, once } from "node:events";
import { mkdtempSync, readFileSync } from "node:fs";
import { connect as connectTcp, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { Duplex } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import test from "ava";
import { Handshakes } from "../../../../daemon/listeners/handshakes.ts";
import { makeCertificates } from "../../api/fixtures/certificates.ts";
import { freePort } from "../../api/fixtures/free-port.ts";
import { openServing, type Serving, type ServingOptions } from "../../api/fixtures/serving.ts";

const folder = mkdtempSync(path.join(tmpdir(), "podnet-handshakes-"));
const read = (name: string): Buffer => readFileSync(path.join(folder, name));

test.before(async () => {
  await makeCertificates(folder);
});

/** What a client sends first. */
async function clientHello(): Promise<Buffer> {
  const sent = Promise.withResolvers<Buffer>();
  const wire = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      sent.resolve(chunk);
      done();
    },
  });
  const client = connectTls({ socket: wire, servername: "localhost", ALPNProtocols: ["h2"] });
  client.on("error", () => {});
  const hello = await sent.promise;
  client.destroy();
  return hello;
}

/** Says nothing, half of it, or all of it, and stays. */
const staying: readonly ((socket: Socket, hello: Buffer) => void)[] = [
  () => {},
  (socket, hello) => socket.write(hello.subarray(0, 50)),
  (socket, hello) => socket.write(hello),
];

/** Ways to begin a handshake and not to end it. */
const beginnings = [
  ...staying,
  ...staying,
  (socket: Socket, hello: Buffer) => socket.end(hello),
  (socket: Socket, hello: Buffer) => socket.write(hello, () => socket.resetAndDestroy()),
  (socket: Socket) => socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
];

/** A connection that may break at any moment. */
const dial = (port: number, localAddress: string): Socket =>
  connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});

/** So many connections of one source, each begun in another of these ways. */
async function attack(port: number, source: string, count: number): Promise<Socket[]> {
  const hello = await clientHello();
  const opened: Socket[] = [];
  while (opened.length < count) {
    // Fewer at a time than a listening socket keeps waiting.
    const some = Array.from({ length: Math.min(100, count - opened.length) }, () =>
      dial(port, source),
    );
    await Promise.all(some.map((each) => once(each, "connect")));
    for (const each of some) beginnings[opened.push(each) % beginnings.length]?.(each, hello);
  }
  return opened;
}

/** The status that a caller with a certificate gets, or why it gets none. */
function honest(port: number, localAddress: string): Promise<string> {
  return new Promise((resolve) => {
    const caller = connectTls({
      socket: dial(port, localAddress),
      servername: "localhost",
      ca: read("ca.crt"),
      cert: read("client.crt"),
      key: read("client.key"),
    });
    let answer = "";
    const timer = setTimeout(() => caller.destroy(new Error("no answer in 5 s")), 5000);
    caller.on("data", (data: Buffer) => {
      answer += data.toString();
    });
    caller.on("error", (error) => resolve(error.message));
    caller.on("close", () => {
      clearTimeout(timer);
      resolve(answer.slice(0, 12));
    });
    caller.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
  });
}

/**
 * Sockets of the server's end that are there, whatever their state, but for the one that listens:
 * their lines of /proc/net/tcp.
 */
function socketsAt(port: number): readonly string[] {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const rows = readFileSync("/proc/self/net/tcp", "utf8").trim().split("\n").slice(1);
  return rows.filter((row) => {
    const [, own = "", , state, , , , , , inode] = row.trim().split(/\s+/);
    // 0A listens; without an inode it is the kernel's alone.
    return own.endsWith(local) && state !== "0A" && inode !== "0";
  });
}

async function serve(
  limits: NonNullable<ServingOptions["limits"]>,
): Promise<{ readonly port: number; readonly serving: Serving }> {
  const port = await freePort();
  const at = (name: string): string => path.join(folder, name);
  const pair = { cert: at("server.crt"), key: at("server.key"), clientCa: at("ca.crt") };
  const serving = await openServing({
    tcp: { host: "127.0.0.1", port, ...pair },
    access: { viewer: [{ kind: "cert", name: "client" }] },
    limits,
  });
  return { port, serving };
}

const sum = (counts: ReadonlyMap<string, number>): number =>
  [...counts.values()].reduce((all, each) => all + each, 0);

/** With podnetd's own limits in complete runs, else with an eighth of them. */
const [places, size] =
  process.env["PODNET_TEST_FULL"] === "1"
    ? [{}, 350]
    : [{ connections: 128, connectionsPerCaller: 32, handshakes: 32 }, 44];

test("handshakes that are never finished keep out no caller with a certificate, and leave no socket", async (t) => {
  const { port, serving } = await serve({ ...places, requestMs: 2000 });
  await using _serving = serving;
  const attackers: Socket[] = [];
  t.teardown(() => attackers.forEach((each) => each.destroy()));
  for (const source of ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]) {
    attackers.push(...(await attack(port, source, size)));
    t.is(await honest(port, source), "HTTP/1.1 200", `alongside ${size} of ${source}`);
  }
  t.is(await honest(port, "127.0.0.9"), "HTTP/1.1 200");
  const until = Date.now() + 10_000;
  while (socketsAt(port).length > 0 && Date.now() < until) await delay(50);
  t.deepEqual(socketsAt(port), []);
  // Each is counted once, whatever ended it.
  t.is(sum(serving.refused), attackers.length, JSON.stringify([...serving.refused]));
});

test("one source address connects only so often; another is served meanwhile", async (t) => {
  const { port, serving } = await serve({ connectionsPerS: 10 });
  await using _serving = serving;
  const attackers = await attack(port, "127.0.0.2", 60);
  t.teardown(() => attackers.forEach((each) => each.destroy()));
  t.is(await honest(port, "127.0.0.1"), "HTTP/1.1 200");
  const refused = serving.refused.get("connections_per_s") ?? 0;
  t.true(refused > 0 && refused <= 40, `${refused} of 60 refused`);
});

/** A pool that holds so many, and what it ended: `SOURCE: REASON`. */
function pool(handshakes: number) {
  const ended: string[] = [];
  const time = { ms: 0 };
  const clock = { now: () => time.ms, monotonic: () => time.ms };
  const limits = { handshakes, connectionsPerS: 1000, ms: 1_000_000 };
  let reason = "";
  const all = new Handshakes({ limits, clock, refused: (why) => (reason = why) });
  let ports = 0;
  const begin = (remoteAddress: string, remotePort = ports++): Socket => {
    const fake = new EventEmitter();
    const ends = { remoteAddress, remotePort, localAddress: "::1" };
    const destroy = (): void => {
      ended.push(`${remoteAddress}: ${reason}`);
      fake.emit("close");
    };
    const socket = Object.assign(fake, { ...ends, destroy }) as unknown as Socket;
    all.begin(socket);
    return socket;
  };
  return { all, begin, ended };
}

test("a full pool of handshakes ends the oldest of the source that has the most", (t) => {
  const { begin, ended } = pool(8);
  for (const source of ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"]) begin(source);
  for (const source of ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]) begin(source);
  t.deepEqual(ended, []);
  begin("10.0.0.8");
  t.deepEqual(ended, ["10.0.0.2: handshakes"]);
  begin("10.0.0.9");
  t.is(ended[1], "10.0.0.1: handshakes");
});

test("a client that takes its port again before its last connection has ended holds one place", (t) => {
  const { begin, ended } = pool(8);
  for (let i = 0; i < 5; i++) begin("10.0.0.1", 5555);
  t.deepEqual(
    ended,
    Array.from({ length: 4 }, () => "10.0.0.1: tls"),
  );
  // A quarter of the pool is still its source's: one more, and not the oldest in its place.
  begin("10.0.0.1", 5556);
  t.is(ended.length, 4);
});

test("addresses of one IPv6 network are one source; what is finished takes no place", (t) => {
  const { all, begin, ended } = pool(8);
  const first = begin("2001:db8::1");
  t.true(all.finish(first));
  t.false(all.finish(first));
  for (const host of ["2", "ffff:1", "ffff:ffff:ffff:ffff"]) begin(`2001:db8::${host}`);
  t.deepEqual(ended, ["2001:db8::2: handshakes_per_source"]);
  begin("2001:db8:0:1::1");
  begin("::ffff:192.0.2.1");
  begin("fe80::1%eth0");
  t.is(ended.length, 1);
});
