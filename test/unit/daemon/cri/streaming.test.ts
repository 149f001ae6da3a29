import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { deflateSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { Queue } from "../../../../core/queue.ts";
import type { ConnectPort, PortConnection } from "../../../../daemon/cri/streaming/port-forward.ts";
import type { StreamedProgram } from "../../../../daemon/cri/streaming/remote-command.ts";
import { StreamingServer } from "../../../../daemon/cri/streaming/streaming-server.ts";
import { Tokens } from "../../../../daemon/cri/streaming/tokens.ts";
import type { ExecEvent } from "../../../../guest-init/channel/guest.ts";
import { until } from "../../../lab/until.ts";
import { type ClientStream, SpdyClient } from "../../../peers/spdy-client.ts";

/** A program that echoes its input, and ends with it; as played here it reads when it may. */
class Echo implements StreamedProgram {
  readonly events = new Queue<ExecEvent>();
  readonly sizes: (readonly [number, number])[] = [];
  code = 0;
  reads = Promise.resolve();
  taken = 0;

  async write(data: Uint8Array): Promise<void> {
    await this.reads;
    this.taken += data.length;
    this.events.push({ kind: "stdout", data });
  }

  closeInput(): Promise<void> {
    this.exit(this.code);
    return Promise.resolve();
  }

  resize(rows: number, columns: number): Promise<void> {
    this.sizes.push([rows, columns]);
    return Promise.resolve();
  }

  exit(code: number): void {
    this.events.push({ kind: "exit", code });
    this.events.end();
  }
}

const wanted = { stdin: true, stdout: true, stderr: true, tty: false };
const v4 = "v4.channel.k8s.io";

interface Served extends AsyncDisposable {
  readonly server: StreamingServer;
  readonly program: Echo;
  url(more?: Partial<typeof wanted>): string;
  /** The signal by which the program was started. */
  gone(): AbortSignal | undefined;
}

async function serve(start?: () => Promise<StreamedProgram>): Promise<Served> {
  const server = await StreamingServer.open("127.0.0.1", 0);
  const program = new Echo();
  let signal: AbortSignal | undefined;
  return {
    server,
    program,
    gone: () => signal,
    url: (more = {}) =>
      server.urlFor({
        kind: "exec",
        wanted: { ...wanted, ...more },
        start: (gone) => {
          signal = gone;
          gone.addEventListener("abort", () => program.events.end(), { once: true });
          return start === undefined ? Promise.resolve(program) : start();
        },
      }),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

type Streams = Readonly<Record<"error" | "stdin" | "stdout" | "stderr", ClientStream>>;

async function openAll(client: SpdyClient): Promise<Streams> {
  const streams: Partial<Record<string, ClientStream>> = {};
  // As kubectl does it, and it ends the one for errors at once.
  for (const streamtype of ["error", "stdin", "stdout", "stderr"])
    streams[streamtype] = await client.stream({ streamtype });
  streams["error"]?.end();
  return streams as unknown as Streams;
}

const closed = (client: SpdyClient): Promise<unknown> =>
  until("the connection's end", () => {
    client.socket.end();
    return Promise.resolve(client.isClosed);
  });

test("a program over SPDY: input, output, errors, and the exit code last", async (t) => {
  await using it = await serve();
  it.program.code = 3;
  using client = await SpdyClient.open(it.url(), "v9.channel.k8s.io", v4);
  t.is(client.protocol, v4);
  const { error, stdin, stdout, stderr } = await openAll(client);
  client.control(6, Buffer.from([0, 0, 0, 1]));
  it.program.events.push({ kind: "stderr", data: Buffer.from("oops") });
  stdin.write("one ");
  stdin.write("two");
  stdin.end();
  await Promise.all([error.ended, stdout.ended, stderr.ended]);
  t.is(stdout.text, "one two");
  t.is(stderr.text, "oops");
  t.like(JSON.parse(error.text), {
    status: "Failure",
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "3" }] },
  });
  t.deepEqual(client.pings, [1]);
  await until("GOAWAY", () => Promise.resolve(client.goneAway));
  await closed(client);
});

test("all output comes before the end, however large, and input that is not read is dropped", async (t) => {
  await using it = await serve();
  using client = await SpdyClient.open(it.url(), v4);
  const { error, stdin, stdout } = await openAll(client);
  const part = Buffer.alloc(100_000, "x");
  for (let i = 0; i < 100; i++) it.program.events.push({ kind: "stdout", data: part });
  it.program.exit(0);
  // More than is kept for a program: it must not keep the client from seeing the end.
  for (let i = 0; i < 40; i++) stdin.write(part);
  await Promise.all([error.ended, stdout.ended]);
  t.is(Buffer.concat(stdout.parts).length, 100 * part.length);
  t.deepEqual(JSON.parse(error.text), { metadata: {}, status: "Success" });
  await closed(client);
});

test("a program that does not read its input holds its client up, until it does", async (t) => {
  await using it = await serve();
  const reading = Promise.withResolvers<void>();
  it.program.reads = reading.promise;
  using client = await SpdyClient.open(it.url(), v4);
  const { error, stdin, stdout } = await openAll(client);
  const part = Buffer.alloc(1024 * 1024, "y");
  for (let i = 0; i < 64; i++) stdin.write(part);
  stdin.end();
  // Its socket's buffers are full, and so are the server's.
  await until("the client to wait", () => {
    const socket = client.socket as Socket;
    const before = socket.bytesWritten - socket.writableLength;
    return new Promise<"waits" | false>((resolve) =>
      setTimeout(() => {
        const { bytesWritten, writableLength } = socket;
        resolve(writableLength > 0 && bytesWritten - writableLength === before && "waits");
      }, 200),
    );
  });
  t.true(client.socket.writableLength > 32 * part.length, "most of it waits at the client");
  reading.resolve();
  await Promise.all([error.ended, stdout.ended]);
  t.is(it.program.taken, 64 * part.length);
  await closed(client);
});

test("a terminal has sizes, and no stream of errors", async (t) => {
  await using it = await serve();
  using client = await SpdyClient.open(it.url({ tty: true, stderr: false }), v4);
  const open = (streamtype: string) => client.stream({ streamtype });
  const error = await open("error");
  const stdin = await open("stdin");
  const stdout = await open("stdout");
  const resize = await open("resize");
  resize.write('{"Width":80,"Height":24}\n{"Wid');
  resize.write('th":100,"Height":30}\n{"Width":0,"Height":1}{"Width":"x"}[}');
  await until("the sizes", () => Promise.resolve(it.program.sizes.length === 2));
  t.deepEqual(it.program.sizes, [
    [24, 80],
    [30, 100],
  ]);
  stdin.write("typed");
  stdin.end();
  await Promise.all([error.ended, stdout.ended]);
  t.is(stdout.text, "typed");
});

test("with a client that vanishes its program ends", async (t) => {
  await using it = await serve();
  using client = await SpdyClient.open(it.url(), v4);
  await openAll(client);
  await until("the start", () => Promise.resolve(it.gone() !== undefined));
  t.false(it.gone()?.aborted);
  client.socket.destroy();
  await until("the program's end", () => Promise.resolve(it.gone()?.aborted === true));
});

test("what cannot be started says why, as a status", async (t) => {
  await using it = await serve(() =>
    Promise.reject(new PodnetError("WRONG_STATE", "Container c is ended, not running")),
  );
  using client = await SpdyClient.open(it.url(), v4);
  const { error } = await openAll(client);
  await error.ended;
  t.like(JSON.parse(error.text), {
    status: "Failure",
    reason: "InternalError",
    message: "Container c is ended, not running",
  });
});

test("a URL is good once, for what it was made for, and for a minute", async (t) => {
  await using it = await serve();
  const url = it.url();
  await t.throwsAsync(SpdyClient.open(url.replace("/exec/", "/attach/"), v4), { message: /404/ });
  await t.throwsAsync(SpdyClient.open(url, v4), { message: /404/ }, "it was used");
  const second = it.url();
  await t.throwsAsync(SpdyClient.open(second, "v1.channel.k8s.io"), { message: /403/ });
  await t.throwsAsync(SpdyClient.open(second, v4), { message: /404/ });
  await t.throwsAsync(SpdyClient.open(`${it.url()}x`, v4), { message: /404/ });
  const plain = await fetch(it.url());
  t.is(plain.status, 400);
  let now = 0;
  const tokens = new Tokens<string>(() => now);
  const [first, late] = [tokens.give("first"), tokens.give("late")];
  t.not(first, late);
  t.is(tokens.take(first), "first");
  t.is(tokens.take(first), undefined);
  now = 60_000;
  t.is(tokens.take(late), undefined);
  for (let i = 0; i < 1000; i++) tokens.give("many");
  t.throws(() => tokens.give("one more"), { code: "LIMIT_REACHED" });
  now = 120_000;
  t.notThrows(() => tokens.give("later"));
});

const hostile: readonly (readonly [string, (client: SpdyClient) => unknown])[] = [
  ["no SPDY at all", ({ socket }) => socket.write(Buffer.alloc(100, 0xff))],
  [
    "a control frame of 16 MiB",
    ({ socket }) => socket.write(Buffer.from("80030001ffffffff", "hex")),
  ],
  ["a frame of SPDY/2", ({ socket }) => socket.write(Buffer.from("8002000100000000", "hex"))],
  ["a frame that is too short", (client) => client.control(1, Buffer.alloc(9))],
  ["a stream with a server's number", (client) => client.openRaw(2, { streamtype: "error" })],
  [
    "a number that was there before",
    async (client) => {
      await client.openRaw(5, { streamtype: "error" });
      await client.openRaw(3, { streamtype: "stdin" });
    },
  ],
  [
    "headers that are a bomb",
    async (client) => {
      const block = await client.compressed(Buffer.alloc(40 * 1024 * 1024));
      client.control(1, Buffer.concat([Buffer.from("00000001000000000000", "hex"), block]));
    },
  ],
  [
    "headers that are not compressed",
    (client) => client.control(1, Buffer.from(`0000000100000000${"00".repeat(20)}`, "hex")),
  ],
  [
    "headers that say more than there is",
    async (client) => {
      const block = await client.compressed(Buffer.from([0x7f, 0xff, 0xff, 0xff]));
      client.control(1, Buffer.concat([Buffer.from("00000001000000000000", "hex"), block]));
    },
  ],
  ["a stream that was not asked for", (client) => client.openRaw(1, { streamtype: "data" })],
];

for (const [what, act] of hostile)
  test(`a client over SPDY that sends ${what} is sent away`, async (t) => {
    await using it = await serve();
    using client = await SpdyClient.open(it.url(), v4);
    await act(client);
    await closed(client);
    t.is(it.gone(), undefined, "nothing was started");
  });

/** Node's own client of WebSocket. */
async function openSocket(url: string, protocol: string) {
  const socket = new WebSocket(url.replace("http:", "ws:"), protocol);
  socket.binaryType = "arraybuffer";
  const messages: Buffer[] = [];
  const over = Promise.withResolvers<number>();
  socket.addEventListener("message", ({ data }) =>
    messages.push(Buffer.from(data as string | ArrayBuffer as string)),
  );
  socket.addEventListener("close", ({ code }) => over.resolve(code));
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve, { once: true });
    socket.addEventListener("error", () => reject(new Error("refused")), { once: true });
  });
  const on = (channel: number): string =>
    Buffer.concat(
      messages.filter(([first]) => first === channel).map((m) => m.subarray(1)),
    ).toString();
  return { socket, messages, over: over.promise, on };
}

const message = (channel: number, text: string): Buffer =>
  Buffer.concat([Uint8Array.of(channel), Buffer.from(text)]);

test("a program over WebSocket, whose input a client of version 5 can end", async (t) => {
  await using it = await serve();
  it.program.code = 1;
  const { socket, messages, over, on } = await openSocket(it.url(), "v5.channel.k8s.io");
  t.is(socket.protocol, "v5.channel.k8s.io");
  await until("the first message", () => Promise.resolve(messages.length === 1));
  t.deepEqual(messages[0], Buffer.from([1]), "an empty one: it is ready");
  socket.send(message(0, "typed "));
  socket.send(message(0, "x".repeat(200_000)));
  socket.send(message(4, '{"Width":80,"Height":24}'));
  it.program.events.push({ kind: "stderr", data: Buffer.from("oops") });
  socket.send(Uint8Array.of(255, 0));
  t.is(await over, 1000);
  t.is(on(1), `typed ${"x".repeat(200_000)}`);
  t.is(on(2), "oops");
  t.like(JSON.parse(on(3)), { reason: "NonZeroExitCode" });
  t.deepEqual(it.program.sizes, [], "it has no terminal");
});

test("a program over WebSocket in text", async (t) => {
  await using it = await serve();
  const { socket, messages, over } = await openSocket(it.url(), "v4.base64.channel.k8s.io");
  socket.send(`0${Buffer.from("typed").toString("base64")}`);
  await until("the echo", () => Promise.resolve(messages.length === 2));
  t.is(messages[1]?.toString(), `1${Buffer.from("typed").toString("base64")}`);
  it.program.exit(0);
  t.is(await over, 1000);
  t.is(
    Buffer.from(messages.at(-1)?.subarray(1).toString() ?? "", "base64").toString(),
    '{"metadata":{},"status":"Success"}',
  );
});

test("a client over WebSocket that closes ends its program, and one without a protocol gets none", async (t) => {
  await using it = await serve();
  const { socket, over } = await openSocket(it.url(), v4);
  await until("the start", () => Promise.resolve(it.gone() !== undefined));
  socket.close();
  await over;
  await until("the program's end", () => Promise.resolve(it.gone()?.aborted === true));
  await t.throwsAsync(openSocket(it.url(), "chat"));
});

for (const [what, bytes, code] of [
  ["is not masked", "8201 00", 1002],
  ["uses an extension", "c281 00000000 00", 1002],
  ["goes on with what has not begun", "8081 00000000 00", 1002],
  ["is a control frame in parts", "0980 00000000", 1002],
  ["has 16 MiB", "82ff 0000000001000000 00000000", 1009],
  ["has more than memory", "82ff 1000000001000000 00000000", 1009],
  ["is of no known kind", "8381 00000000 00", 1002],
] as const)
  test(`a frame over WebSocket that ${what} ends the connection`, async (t) => {
    await using it = await serve();
    const { hostname, port, pathname } = new URL(it.url());
    const socket = connect({ host: hostname, port: Number(port) });
    socket.write(
      [
        `GET ${pathname} HTTP/1.1`,
        "Host: x",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        `Sec-WebSocket-Protocol: ${v4}`,
        "",
        "",
      ].join("\r\n"),
    );
    const [answer] = (await once(socket, "data")) as [Buffer];
    // The example of RFC 6455.
    t.regex(answer.toString(), /Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/);
    socket.write(Buffer.from(bytes.replaceAll(" ", ""), "hex"));
    const parts: Buffer[] = [];
    for await (const part of socket) parts.push(part as Buffer);
    const last = Buffer.concat(parts).subarray(-4);
    t.is(last.subarray(0, 2).toString("hex"), "8802");
    t.is(last.readUInt16BE(2), code);
  });

/** A port that echoes, and says goodbye. */
async function echoPort(t: ExecutionContext): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("data", (data) => socket.write(data));
    socket.on("end", () => socket.end(" bye"));
    socket.on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => void server.close());
  return (server.address() as AddressInfo).port;
}

const toLoopback: ConnectPort = async (port) => {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  await once(socket, "connect").catch((cause: unknown) => {
    throw new PodnetError("SYSCALL_FAILED", `port ${port} refuses connections`, { cause });
  });
  const connection: PortConnection = {
    output: socket,
    write: async (data) => void socket.write(data),
    endInput: () => void socket.end(),
    close: () => void socket.destroy(),
  };
  return connection;
};

test("ports over SPDY: several connections at once, each with an end of its own", async (t) => {
  await using it = await serve();
  const port = await echoPort(t);
  const url = it.server.urlFor({ kind: "portforward", ports: [], connect: toLoopback });
  using client = await SpdyClient.open(url, "portforward.k8s.io");
  const pair = async (requestid: string, to: number) => {
    const headers = { port: String(to), requestid };
    const error = await client.stream({ ...headers, streamtype: "error" });
    error.end();
    return { error, data: await client.stream({ ...headers, streamtype: "data" }) };
  };
  const [one, two] = [await pair("0", port), await pair("1", port)];
  one.data.write("first");
  two.data.write(" and second");
  await until("both", () => Promise.resolve(one.data.text + two.data.text === "first and second"));
  one.data.end();
  await Promise.all([one.data.ended, one.error.ended]);
  t.is(one.data.text, "first bye");
  t.is(one.error.text, "");
  two.data.write(" more");
  await until("the other", () => Promise.resolve(two.data.text === " and second more"));
  const none = await pair("2", 1);
  await Promise.all([none.data.ended, none.error.ended]);
  t.is(none.error.text, "port 1 refuses connections");
  const odd = await client.stream({ streamtype: "stdin", requestid: "3", port: "1" });
  await odd.ended;
  t.is(odd.resetBy, 5);
  two.data.end();
  await two.data.ended;
  client.control(7, Buffer.alloc(8));
  await until("GOAWAY", () => Promise.resolve(client.goneAway));
});

test("ports over WebSocket: two channels for each, which begin with its number", async (t) => {
  await using it = await serve();
  const port = await echoPort(t);
  const url = it.server.urlFor({ kind: "portforward", ports: [port, 1], connect: toLoopback });
  const { socket, on } = await openSocket(url, v4);
  socket.send(message(0, "hello"));
  await until("the echo", () => Promise.resolve(on(0).endsWith("hello")));
  await until("the failure", () => Promise.resolve(on(3).includes("refuses")));
  socket.close();
  t.pass();
});

test("headers are compressed with the dictionary of SPDY/3", async (t) => {
  const { spdyDictionary } = await import("../../../../daemon/cri/streaming/spdy-dictionary.ts");
  t.is(spdyDictionary.length, 1423);
  // Its checksum, as each client sends it in the head of its first headers.
  const head = deflateSync(Buffer.alloc(0), { dictionary: spdyDictionary }).subarray(2, 6);
  t.is(head.toString("hex"), "e3c6a7c2");
});
