import { execFile } from "node:child_process";
import { once } from "node:events";
import {
  connect as connectHttp2,
  constants,
  type ClientHttp2Session,
  type ClientHttp2Stream,
} from "node:http2";
import { connect, type Socket } from "node:net";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { connectPodnet } from "../../../../api/client.ts";
import { endHeaders, endStream, fields, frame, preface, type } from "../../api/fixtures/frames.ts";
import { openServing, type Serving, type ServingOptions } from "../../api/fixtures/serving.ts";

const run = promisify(execFile);
const list = "/podnet.v1.PodService/List";
const json = { "content-type": "application/json" } as const;

function session(serving: Serving): ClientHttp2Session {
  const opened = connectHttp2("http://podnet", {
    createConnection: () => connect(serving.socket),
  });
  opened.on("error", () => {});
  return opened;
}

/** A connection that may break at any moment. */
const dial = (serving: Serving): Socket => connect(serving.socket).on("error", () => {});

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** A request over HTTP/2 and what comes of it. */
function ask(
  via: ClientHttp2Session,
  body: string | Buffer = "{}",
  headers: Record<string, string | string[]> = json,
  path = list,
): Promise<Answer> {
  return new Promise((resolve) => {
    const stream = via.request({ ":method": "POST", ":path": path, ...headers });
    let status = 0;
    let text = "";
    stream.on("response", (got) => {
      status = got[":status"] ?? 0;
    });
    stream.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    stream.on("error", () => {});
    // Node's client keeps a stream open whose rest is not wanted any more.
    stream.once("end", () => resolve({ status, text }));
    stream.once("close", () => resolve({ status, text }));
    stream.end(body);
  });
}

/** Resolves when a stream is over, broken or not. */
const over = (stream: ClientHttp2Stream): Promise<void> =>
  new Promise((resolve) => {
    if (stream.closed && stream.destroyed) resolve();
    else stream.once("close", () => resolve());
  });

/** What is waited for, or a failure after 15 s, which is long after it should have come. */
function soon<T>(what: string, wanted: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`${what}: not within 15 s`)), 15_000);
  return Promise.race([wanted, promise]).finally(() => clearTimeout(timer));
}

/** Everything a connection says until it ends. */
async function hear(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
  });
  socket.on("error", () => {});
  // (events.once would reject when it breaks, which is one way to end.)
  if (!socket.closed) await new Promise((resolve) => socket.once("close", resolve));
  return text;
}

/** A well-behaved caller is still served, on a connection of their own. */
async function serves(t: ExecutionContext, serving: Serving): Promise<void> {
  const via = session(serving);
  t.is((await ask(via)).status, 200);
  via.close();
}

async function until(met: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !met(); i++) await delay(10);
  if (!met()) throw new Error("It did not come to be within 10 s");
}

const withLimits = (limits: NonNullable<ServingOptions["limits"]>, more: ServingOptions = {}) =>
  openServing({ ...more, limits });

test("a body too large is refused before it has arrived, in any protocol", async (t) => {
  await using serving = await openServing();
  const via = session(serving);
  const large = Buffer.alloc(2 << 20, " ");
  t.regex((await ask(via, large)).text, /resource_exhausted/);
  // Said to be large, and not a byte of it sent.
  const stream = via.request({
    ":method": "POST",
    ":path": list,
    ...json,
    "content-length": String(1 << 30),
  });
  stream.write("{");
  const [headers] = (await once(stream, "response")) as [Record<string, unknown>];
  t.is(headers[":status"], 429);
  stream.close();
  // gRPC: five bytes announce the message; before the body arrives the limit is known.
  const grpc = via.request({
    ":method": "POST",
    ":path": list,
    "content-type": "application/grpc",
    te: "trailers",
  });
  grpc.write(Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]));
  const rss = process.memoryUsage().rss;
  const trailers = await new Promise<Record<string, unknown>>((resolve) => {
    grpc.on("trailers", (got) => resolve(got));
    grpc.on("response", (got) => got["grpc-status"] !== undefined && resolve(got));
    grpc.resume();
  });
  t.is(trailers["grpc-status"], "8");
  t.true(process.memoryUsage().rss - rss < 256 << 20);
  grpc.close();
  via.close();
  await serves(t, serving);
});

test("compressed bodies are refused, small or not", async (t) => {
  await using serving = await openServing();
  const via = session(serving);
  const bomb = gzipSync(Buffer.alloc(64 << 20));
  for (const body of [bomb, gzipSync("{}")]) {
    const answer = await ask(via, body, { ...json, "content-encoding": "gzip" });
    t.regex(answer.text, /"unimplemented"/);
  }
  via.close();
});

test("headers too large or too many are refused", async (t) => {
  await using serving = await openServing();
  const via = session(serving);
  t.is((await ask(via)).status, 200);
  const large = await ask(via, "{}", { ...json, "x-large": "y".repeat(20_000) });
  t.not(large.status, 200);
  const other = session(serving);
  const names = Array.from({ length: 100 }, (_, i) => [`x-${i}`, "y"]);
  const many = await ask(other, "{}", { ...json, ...Object.fromEntries(names) });
  t.not(many.status, 200);
  const plain = dial(serving);
  plain.write(`POST ${list} HTTP/1.1\r\nhost: x\r\nx-large: ${"y".repeat(20_000)}\r\n\r\n`);
  t.regex(await hear(plain), /^HTTP\/1\.1 431/);
  t.is(serving.refused.get("headers"), 1);
  // Node's client keeps to the limit by itself; curl does not.
  const curl = "-s --http2-prior-knowledge --max-time 20 -w %{http_code} -d {}".split(" ");
  const head = ["-H", `x-large: ${"y".repeat(20_000)}`, "-H", "content-type: application/json"];
  const to = ["--unix-socket", serving.socket, `http://podnet${list}`];
  t.regex((await run("curl", [...curl, ...head, ...to])).stdout, /more than 16384 bytes\n431$/);
  t.is(serving.refused.get("headers"), 2);
  via.destroy();
  other.destroy();
  await serves(t, serving);
});

test("requests without a host's name are refused; the server lives on", async (t) => {
  await using serving = await openServing();
  const heads = ["HTTP/1.0\r\n", "HTTP/1.1\r\nhost: a b[\r\n", "HTTP/1.1\r\nhost: [\r\n"];
  for (const head of heads) {
    const socket = dial(serving);
    socket.write(`POST ${list} ${head}content-length: 2\r\nconnection: close\r\n\r\n{}`);
    t.regex(await hear(socket), /^HTTP\/1\.1 400/, head);
  }
  const via = session(serving);
  const stream = via.request({ ":method": "POST", ":path": list, ":authority": "", ...json });
  stream.on("error", () => {});
  stream.end("{}");
  stream.resume();
  await over(stream);
  via.close();
  t.true((serving.refused.get("bad_request") ?? 0) >= 3);
  await serves(t, serving);
});

test("connections: so many of one caller, and one that closes makes room", async (t) => {
  await using serving = await withLimits({ connectionsPerCaller: 3 });
  const open = [1, 2, 3].map(() => dial(serving));
  await Promise.all(open.map((socket) => once(socket, "connect")));
  const refused = dial(serving);
  t.is(await hear(refused), "");
  t.is(serving.refused.get("connections_per_caller"), 1);
  open[0]?.destroy();
  await until(() => serving.server.connections === 2);
  await serves(t, serving);
  for (const socket of open) socket.destroy();
});

test("connections: so many in all", async (t) => {
  await using serving = await withLimits({ connections: 8 });
  const open = Array.from({ length: 8 }, () => dial(serving));
  await Promise.all(open.map((socket) => once(socket, "connect")));
  t.is(await hear(dial(serving)), "");
  t.is(serving.refused.get("connections"), 1);
  for (const socket of open) socket.destroy();
  await until(() => serving.server.connections === 0);
  await serves(t, serving);
});

test("rate: a burst of twice the rate, then LIMIT_REACHED with the time to wait", async (t) => {
  await using serving = await withLimits({ requestsPerS: 5 });
  const via = session(serving);
  const answers = await Promise.all(Array.from({ length: 30 }, () => ask(via)));
  const refused = answers.filter(({ status }) => status === 429);
  t.true(answers.filter(({ status }) => status === 200).length >= 10);
  t.true(refused.length >= 10);
  t.regex(refused[0]?.text ?? "", /LIMIT_REACHED/);
  const retry = /"retry_after_ms":\s*"(\d+)"/.exec(refused[0]?.text ?? "");
  t.true(Number(retry?.[1]) <= 200);
  t.is(serving.refused.get("requests_per_s"), refused.length);
  // Whoever waits is served again.
  await delay(400);
  t.is((await ask(via)).status, 200);
  via.close();
});

test("requests under way: so many of one caller over all of its connections", async (t) => {
  const go = Promise.withResolvers<void>();
  await using serving = await withLimits(
    { requestsPerCaller: 4 },
    {
      pods: {
        async get() {
          await go.promise;
          return {};
        },
      },
    },
  );
  const [one, two] = [session(serving), session(serving)];
  const get = "/podnet.v1.PodService/Get";
  const waiting = [one, two, one, two].map((via) => ask(via, "{}", json, get));
  let refused: Answer | undefined;
  await until(() => serving.server.connections === 2);
  for (let i = 0; i < 50 && refused?.status !== 429; i++) refused = await ask(two);
  t.regex(refused?.text ?? "", /LIMIT_REACHED.*|requests_per_caller/);
  go.resolve();
  for (const { status } of await Promise.all(waiting)) t.is(status, 200);
  t.is((await ask(one)).status, 200);
  one.close();
  two.close();
});

test("slow requests: silence, dripped headers and a body that does not come are cut", async (t) => {
  await using serving = await withLimits({ requestMs: 1500 });
  const silent = dial(serving);
  const dripping = dial(serving);
  const dripped = hear(dripping);
  dripping.write(`POST ${list} HTTP/1.1\r\nhost: x\r\n`);
  const drip = setInterval(() => dripping.write("x"), 100).unref();
  const preface = dial(serving);
  preface.on("error", () => {});
  const bytes = "PRI * HTTP/2.0".split("");
  const dripPreface = setInterval(() => preface.write(bytes.shift() ?? ""), 300).unref();
  const bodiless = dial(serving);
  bodiless.write(
    `POST ${list} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n{`,
  );
  const via = session(serving);
  const stream = via.request({ ":method": "POST", ":path": list, ...json });
  let text = "";
  stream.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  stream.write("{");
  t.teardown(() => {
    clearInterval(drip);
    clearInterval(dripPreface);
    for (const each of [silent, dripping, preface, bodiless, via]) each.destroy();
  });
  await soon("the answer to a body that does not come", once(stream, "end"));
  t.regex(text, /DEADLINE_EXCEEDED/);
  t.is(await soon("the end of a silent connection", hear(silent)), "");
  // What is written on after the answer may have it thrown away.
  t.regex(await soon("the end of dripped headers", dripped), /^$|408/);
  await soon("the end of a dripped preface", hear(preface));
  t.regex(
    await soon("the end of a request without a body", hear(bodiless)),
    /^$|408|DEADLINE_EXCEEDED/,
  );
  t.true((serving.refused.get("silent") ?? 0) >= 2);
  t.true((serving.refused.get("slow_request") ?? 0) >= 3, JSON.stringify([...serving.refused]));
  await serves(t, serving);
});

test("a request refused before its body was read is no slow one", async (t) => {
  await using serving = await withLimits({ requestMs: 1000 });
  const via = session(serving);
  for (let i = 0; i < 3; i++)
    t.is((await ask(via, "{}", { ...json, "connect-timeout-ms": "x" })).status, 400);
  await delay(1300);
  t.is(serving.refused.get("slow_request"), undefined);
  via.close();
});

test("a stream of requests that is refused is over for good, though its rest never comes", async (t) => {
  await using serving = await withLimits({});
  const via = session(serving);
  const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  const refused = async (sent: string): Promise<void> => {
    const type = "application/connect+json";
    const asked = { ":method": "POST", ":path": path, "content-type": type };
    const stream = via.request({ ...asked, "connect-timeout-ms": "x" });
    if (sent !== "") stream.write(Buffer.from(sent, "latin1"));
    let text = "";
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
    await soon("the end of the stream", over(stream));
    t.is(stream.rstCode, constants.NGHTTP2_NO_ERROR);
    t.regex(text, /"code":"INVALID_ARGUMENT".*\}$/s);
  };
  await Promise.all(["", "\0\0\0", "\0\0\0\0\x02{}", "\0\0\0\0\x02{}\0\0"].map(refused));
  via.close();
});

for (const protocol of ["HTTP/1.1", "HTTP/2"] as const) {
  test(`a stream that is not read is cut, and what makes it stops (${protocol})`, async (t) => {
    let made = 0;
    const ended = Promise.withResolvers<void>();
    await using serving = await withLimits(
      { stallMs: 500 },
      {
        pods: {
          async *console() {
            try {
              for (;;) {
                made++;
                yield { data: Buffer.alloc(65_536) };
              }
            } finally {
              ended.resolve();
            }
          },
        },
      },
    );
    const path = "/podnet.v1.PodService/Console";
    const message = Buffer.from("\0\0\0\0\x02{}", "latin1");
    const type = "application/connect+json";
    if (protocol === "HTTP/2") {
      const via = session(serving);
      const stream = via.request({ ":method": "POST", ":path": path, "content-type": type });
      stream.on("error", () => {});
      stream.end(message);
      await once(stream, "response");
      stream.pause();
      await soon("the end of what makes the stream", ended.promise);
      await until(() => serving.refused.get("slow_reader") === 1);
      stream.resume();
      await soon("the end of the stream", over(stream));
      t.is(stream.rstCode, constants.NGHTTP2_ENHANCE_YOUR_CALM);
      via.destroy();
    } else {
      const socket = dial(serving);
      socket.on("error", () => {});
      socket.write(
        `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\ncontent-length: ${message.length}\r\n\r\n`,
      );
      socket.write(message);
      socket.pause();
      await soon("the end of what makes the stream", ended.promise);
      await until(() => serving.refused.get("slow_reader") === 1);
      socket.resume();
      await soon("the end of the connection", hear(socket));
    }
    // Bounded by the buffers in between: a few chunks, not what memory holds.
    t.true(made < 100, `${made} chunks of 64 KiB`);
    await serves(t, serving);
  });
}

test("an ordinary call counts nothing, however its connection ends; a breach of the protocol counts", async (t) => {
  let listed = 0;
  await using serving = await withLimits({}, { pods: { list: () => (listed++, {}) } });
  // A connection that breaks with the answer unread but for a byte.
  const onread = { buffer: Buffer.alloc(1), callback: () => false };
  const broken = connect({ path: serving.socket, onread });
  const asked = [
    frame(type.headers, endHeaders, 1, fields),
    frame(type.data, endStream, 1, Buffer.from("{}")),
  ];
  broken.write(Buffer.concat([preface, ...asked]));
  await until(() => listed > 0);
  broken.destroy();
  await until(() => serving.server.connections === 0);
  const ends: readonly ((via: ClientHttp2Session) => void)[] = [
    (via) => via.close(),
    (via) => via.destroy(),
    // As Connect's client ends its connection.
    (via) => via.destroy(undefined, constants.NGHTTP2_CANCEL),
    (via) => via.socket.destroy(),
  ];
  for (const end of ends) {
    const via = session(serving);
    t.is((await ask(via)).status, 200);
    end(via);
    await until(() => serving.server.connections === 0);
  }
  {
    using podnet = connectPodnet({ socket: serving.socket });
    await podnet.pods.list({});
  }
  await until(() => serving.server.connections === 0);
  t.deepEqual([...serving.refused], []);
  const breach = dial(serving);
  // Settings belong to no stream (RFC 9113 6.5).
  breach.write(Buffer.concat([preface, frame(type.settings, 0, 1)]));
  await hear(breach);
  t.deepEqual([...serving.refused], [["http2", 1]]);
});

test("a session that asks for nothing is closed; one with a stream open is not", async (t) => {
  await using serving = await withLimits({ idleMs: 300 });
  const idle = session(serving);
  const watching = session(serving);
  const stream = watching.request({
    ":method": "POST",
    ":path": "/grpc.health.v1.Health/Watch",
    "content-type": "application/connect+json",
  });
  stream.end(Buffer.from("\0\0\0\0\x02{}", "latin1"));
  stream.resume();
  await once(stream, "response");
  await soon("the end of the idle session", once(idle, "close"));
  t.is(serving.refused.get("idle"), 1);
  await delay(600);
  t.false(stream.closed);
  watching.destroy();
});

test("a session is closed for asking nothing after what it asked has ended, too", async (t) => {
  await using serving = await withLimits({ idleMs: 300 });
  const via = session(serving);
  const stream = via.request({
    ":method": "POST",
    ":path": "/grpc.health.v1.Health/Watch",
    "content-type": "application/connect+json",
  });
  stream.on("error", () => {});
  stream.end(Buffer.from("\0\0\0\0\x02{}", "latin1"));
  stream.resume();
  await once(stream, "response");
  await delay(400);
  stream.close(constants.NGHTTP2_CANCEL);
  t.false(via.closed);
  await soon("the end of the session", once(via, "close"));
  t.is(serving.refused.get("idle"), 1);
});
