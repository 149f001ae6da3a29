import { createServer, type Server, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import type { BackendCheck } from "../../../../api/service-spec.ts";
import type { Ip } from "../../../../core/address.ts";
import type { ServiceName } from "../../../../core/names.ts";
import { openLog } from "../../../../linux/log.ts";
import { type Checked, HealthChecks } from "../../../../daemon/services/health/health-checks.ts";
import { probe } from "../../../../daemon/services/health/probe.ts";
import { judge, unasked, type Verdict } from "../../../../daemon/services/health/verdict.ts";

const loopback = "127.0.0.1" as Ip;

/** A backend that does as `met` says, and what was said to it. */
async function backend(t: ExecutionContext, met: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const heard: string[] = [];
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", (chunk) => heard.push(chunk.toString()));
    met(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, loopback, resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  return { port, heard, sockets };
}

const asking = (port: number, path?: string, timeoutS = 30) =>
  probe(
    { address: loopback, port, timeoutS, ...(path !== undefined && { path }) },
    new AbortController().signal,
  );

test("a connection is enough for a check by TCP, and nothing is said", async (t) => {
  const { port, heard } = await backend(t, () => {});
  t.is(await asking(port), undefined);
  t.deepEqual(heard, []);
});

test("a port without a listener is answered as the kernel names it", async (t) => {
  const { port, sockets } = await backend(t, () => {});
  t.is(sockets.size, 0);
  t.is(await asking(port), undefined);
  // (Port 1 of loopback, in the test's own namespace.)
  t.is(await asking(1), "connection failed: ECONNREFUSED");
});

for (const [said, why] of [
  ["HTTP/1.1 200 OK\r\n\r\n", undefined],
  ["HTTP/1.0 204 No Content\r\n\r\n", undefined],
  ["HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", undefined],
  ["HTTP/1.1 404 Not Found\r\n\r\n", "it answered with status 404"],
  ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "it answered with status 503"],
  ["HTTP/1.1 100 Continue\r\n\r\n", "it answered with status 100"],
  ["SSH-2.0-OpenSSH_9.2\r\n", "its answer is no HTTP"],
  ["HTTP/9.9 200 OK\r\n\r\n", "its answer is no HTTP"],
] as const)
  test(`an answer by HTTP: ${JSON.stringify(said.slice(0, 20))}`, async (t) => {
    const { port, heard } = await backend(t, (socket) => {
      socket.once("data", () => socket.end(said));
    });
    t.is(await asking(port, "/healthz?full=1"), why);
    t.regex(heard.join(""), /^GET \/healthz\?full=1 HTTP\/1\.1\r\nHost: 127\.0\.0\.1:\d+\r\n/);
    t.true(heard.join("").endsWith("\r\n\r\n"));
  });

test("an answer that comes byte by byte is read", async (t) => {
  const { port } = await backend(t, (socket) => {
    const bytes = "HTTP/1.1 200 OK\r\n\r\n".split("");
    const next = (): void => {
      const byte = bytes.shift();
      if (byte === undefined || socket.destroyed) return;
      socket.write(byte, () => setImmediate(next));
    };
    socket.once("data", next);
  });
  t.is(await asking(port, "/"), undefined);
});

test("hostile: an answer without an end is cut off after its first bytes", async (t) => {
  const closed = Promise.withResolvers<void>();
  const { port } = await backend(t, (socket) => {
    const flood = (): void => {
      while (!socket.destroyed && socket.write("x".repeat(65_536)));
    };
    socket.once("close", closed.resolve);
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\nX: ");
      socket.on("drain", flood);
      flood();
    });
  });
  t.is(await asking(port, "/"), undefined);
  await closed.promise;
});

for (const [what, met] of [
  ["that says nothing", () => {}],
  [
    "that says less than a status",
    (socket: Socket) => socket.once("data", () => socket.write("HTTP/1.1 2")),
  ],
] as const)
  test(`hostile: a backend ${what} is left after the timeout`, async (t) => {
    const { port } = await backend(t, met);
    t.is(await asking(port, "/", 0.2), "no answer within 0.2 s");
  });

test("a backend that ends the connection has not answered", async (t) => {
  const { port } = await backend(t, (socket) => socket.end("HTTP/1."));
  t.is(await asking(port, "/"), "it ended the connection before it had answered");
});

test("so many answers in a row turn a verdict, and no fewer", (t) => {
  const thresholds = { rise: 2, fall: 3 };
  const after = (answers: string, begin: Verdict = unasked): Verdict =>
    answers
      .split("")
      .reduce(
        (verdict, each) => judge(verdict, each === "+" ? undefined : "no", thresholds),
        begin,
      );
  for (const [answers, healthy] of [
    ["", true],
    ["--", true],
    ["---", false],
    ["--+--", true],
    ["---+", false],
    ["---+-+", false],
    ["---++", true],
    ["---++--", true],
  ] as const)
    t.is(after(answers).healthy, healthy, answers);
  t.false(after("").asked);
  t.is(after("--").why, "no");
  t.is(after("--+").why, undefined);
});

const check: BackendCheck = { intervalS: 1, timeoutS: 1, rise: 1, fall: 1 };
const checked = (port: number, more: Partial<BackendCheck> = {}): Checked => ({
  service: "web" as ServiceName,
  address: loopback,
  port,
  check: { ...check, ...more },
});
const log = openLog({ component: "test", level: "silent" });

test("no more than 64 backends are asked at a time, and all in the end", async (t) => {
  const asked = new Set<number>();
  let [now, most] = [0, 0];
  const all = Promise.withResolvers<void>();
  const full = Promise.withResolvers<void>();
  using checks = new HealthChecks({
    log,
    changed: () => {},
    draw: () => 0,
    async probe({ port }) {
      most = Math.max(most, ++now);
      if (now === 64) full.resolve();
      await full.promise;
      await new Promise((resolve) => setImmediate(resolve));
      now--;
      asked.add(port);
      if (asked.size === 300) all.resolve();
      return undefined;
    },
  });
  checks.follow(Array.from({ length: 300 }, (_, i) => checked(1000 + i, { intervalS: 3600 })));
  await all.promise;
  t.is(most, 64);
});

test("a backend that is let go is not judged, and one with another check begins anew", async (t) => {
  const held = Promise.withResolvers<string | undefined>();
  const begun = Promise.withResolvers<AbortSignal>();
  let changes = 0;
  using checks = new HealthChecks({
    log,
    changed: () => changes++,
    draw: () => 0,
    probe: (_, signal) => {
      begun.resolve(signal);
      return held.promise;
    },
  });
  checks.follow([checked(80)]);
  t.deepEqual(checks.of(checked(80)), unasked);
  const signal = await begun.promise;
  checks.follow([checked(80, { fall: 2 })]);
  t.true(signal.aborted);
  held.resolve("down");
  await new Promise((resolve) => setImmediate(resolve));
  t.is(changes, 0);
  t.is(checks.of(checked(80)), undefined);
  t.true(checks.of(checked(80, { fall: 2 }))?.healthy);
});
