import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { makeCertificates } from "../../api/fixtures/certificates.ts";
import { type Asked, FrameClient } from "../../api/fixtures/frame-client.ts";
import { type as kind } from "../../api/fixtures/frames.ts";
import { openServing, type Serving, type ServingOptions } from "../../api/fixtures/serving.ts";

// Answers that are ready before their request has ended. The end of the answer waits for the end of
// the request: curl 7.88 (Debian
// 12) misses an end that comes while it is sending, and then waits until its own time limit.

const run = promisify(execFile);
const full = process.env["PODNET_TEST_FULL"] === "1";

const pods = "/podnet.v1.PodService";
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const json = Buffer.from("{}");
const envelope = (text: string): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, Buffer.from(text)]);
};
const stream = "application/connect+json";
const tooLong = Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]);
const badTimeout = { "connect-timeout-ms": "x" };
const length = { "content-length": "7" };

/** Trailers of gRPC are compressed. */
const anything = /^/;

interface Case extends Asked {
  /** Sent with the headers. */
  readonly first?: Buffer;
  readonly last?: Buffer;
  readonly says: RegExp;
}

/** By the calls' names: what everybody is refused. */
const refusals: Readonly<Record<string, Case>> = {
  "a header of a stream": {
    path: `${pods}/Watch`,
    type: stream,
    headers: badTimeout,
    last: envelope("{}"),
    says: /INVALID_ARGUMENT/,
  },
  "a header of one message": {
    path: `${pods}/List`,
    type: "application/json",
    headers: badTimeout,
    last: json,
    says: /INVALID_ARGUMENT/,
  },
  "a header of gRPC": {
    path: `${pods}/List`,
    type: "application/grpc",
    headers: { te: "trailers", "grpc-timeout": "x" },
    last: envelope(""),
    says: anything,
  },
  "a header of gRPC-Web": {
    path: `${pods}/Watch`,
    type: "application/grpc-web+json",
    headers: { "grpc-timeout": "x" },
    last: envelope("{}"),
    says: /grpc-status: 3/,
  },
  "a stream of requests that says its length": {
    path: reflection,
    type: stream,
    headers: { ...badTimeout, ...length },
    last: envelope("{}"),
    says: /INVALID_ARGUMENT/,
  },
  "an unknown method": {
    path: `${pods}/Burn`,
    type: "application/json",
    headers: { "content-length": "2" },
    last: json,
    says: /There is no such method/,
  },
  "an unknown content type": {
    path: `${pods}/List`,
    type: "text/xml",
    last: json,
    says: /Content-Type is none/,
  },
  "an unknown field": {
    path: `${pods}/Watch`,
    type: stream,
    first: envelope('{"colour":1}'),
    says: /colour/,
  },
  "a message too long": {
    path: `${pods}/Watch`,
    type: stream,
    first: tooLong,
    last: Buffer.alloc(10),
    says: /LIMIT_REACHED/,
  },
  "a message of gRPC too long": {
    path: `${pods}/List`,
    type: "application/grpc",
    headers: { te: "trailers" },
    first: tooLong,
    last: Buffer.alloc(10),
    says: anything,
  },
};

/** How long an answer's end waits for its request's, milliseconds. */
const restMs = 1000;

interface Answer {
  /** Whether the answer had ended before the request. */
  readonly early: boolean;
  /** Whether it had ended soon after the request. */
  readonly ended: boolean;
  readonly reset: boolean;
  readonly text: string;
}

/** Sends a request but for its end, and its end when the server has had time to answer. */
async function endLate(
  client: FrameClient,
  each: Case,
  answered: () => Promise<void> = () => client.pings(20),
): Promise<Answer> {
  const { first, last, ...asked } = each;
  const from = performance.now();
  const id = client.ask(asked, ...(first === undefined ? [] : [first]));
  await answered();
  const early = client.ended(id);
  client.end(id, last);
  // On a machine that is busy the server may have waited long enough.
  if (early && performance.now() - from >= restMs) return endLate(client, each, answered);
  await client.pings(20);
  const ended = client.ended(id);
  const reset = client.came(id).some((frame) => frame.kind === kind.reset);
  return { early, ended, reset, text: client.text(id) };
}

for (const [what, each] of Object.entries(refusals)) {
  test.serial(`an answer does not end before its request: refused for ${what}`, async (t) => {
    await using serving = await openServing();
    using client = FrameClient.unix(serving.socket);
    const { text, ...how } = await endLate(client, each);
    t.deepEqual(how, { early: false, ended: true, reset: false });
    t.regex(text, each.says);
  });
}

test.serial("an answer does not end before its request: refused by a limit", async (t) => {
  await using serving = await openServing({ limits: { requestsPerS: 1 } });
  using client = FrameClient.unix(serving.socket);
  const list: Case = { path: `${pods}/Watch`, type: stream, last: envelope("{}"), says: anything };
  for (let refused = false; !refused; ) {
    const { text, ...how } = await endLate(client, list);
    t.deepEqual(how, { early: false, ended: true, reset: false });
    refused = text.includes("LIMIT_REACHED");
  }
});

test.serial("an answer does not end before its request: out of time", async (t) => {
  await using serving = await openServing({ limits: { requestMs: 50 } });
  using client = FrameClient.unix(serving.socket);
  const slow = { path: `${pods}/Watch`, type: stream, last: envelope("{}"), says: anything };
  let refused = 0;
  const late = async (): Promise<void> => {
    refused++;
    while (serving.refused.get("slow_request") !== refused) await delay(5);
    await client.pings(20);
  };
  const { early, text } = await endLate(client, slow, late);
  t.false(early);
  t.regex(text, /DEADLINE_EXCEEDED/);
});

test("a request of HTTP/1.1 that is refused is read to its end, and the next one is answered", async (t) => {
  await using serving = await openServing();
  const socket = connect(serving.socket);
  t.teardown(() => socket.destroy());
  let heard = "";
  socket.on("data", (chunk: Buffer) => {
    heard += chunk.toString("latin1");
  });
  const large = Buffer.concat([tooLong, Buffer.alloc(2 << 20)]);
  socket.write(
    `POST ${pods}/Watch HTTP/1.1\r\nhost: x\r\ncontent-type: ${stream}\r\ncontent-length: ${large.length}\r\n\r\n`,
  );
  const from = performance.now();
  socket.write(large.subarray(0, 70_000));
  while (!heard.includes("LIMIT_REACHED")) await once(socket, "data");
  // (Unless the machine is so busy that a second has gone by.)
  t.true(!heard.includes("\r\n0\r\n") || performance.now() - from >= restMs);
  socket.write(large.subarray(70_000));
  while (!heard.endsWith("\r\n0\r\n\r\n")) await once(socket, "data");
  heard = "";
  socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
  while (!heard.includes("healthz\n")) await once(socket, "data");
  t.regex(heard, /^HTTP\/1\.1 200/);
});

test("a request that ends after its answer has its caller hear something more", async (t) => {
  await using serving = await openServing();
  using client = FrameClient.unix(serving.socket);
  const id = client.ask({ path: reflection, type: stream, headers: badTimeout });
  await client.until(() => client.ended(id));
  const pings = (): number =>
    client.came(0).filter((each) => each.kind === kind.ping && each.flags === 0).length;
  const before = pings();
  client.end(id, envelope("{}"));
  await client.until(() => pings() > before);
  t.false(client.came(id).some((each) => each.kind === kind.reset));
});

test("a request that goes on is read on for a while, and then reset without an error", async (t) => {
  await using serving = await openServing();
  using client = FrameClient.unix(serving.socket);
  const id = client.ask({ path: `${pods}/Watch`, type: stream, headers: badTimeout });
  await client.until(() => client.came(id).some((each) => each.kind === kind.reset));
  const frames = client.came(id);
  t.true(client.ended(id));
  const last = frames.at(-1);
  t.is(last?.kind, kind.reset);
  t.deepEqual([...(last?.payload ?? [])], [0, 0, 0, 0]);
});

const folder = mkdtempSync(path.join(tmpdir(), "podnet-early-"));

/** A server on TCP whose callers have certificates and no role. */
async function servingForeign(options: ServingOptions = {}): Promise<{
  readonly serving: Serving;
  dial(): Promise<FrameClient>;
}> {
  const { ca, client } = await makeCertificates(folder);
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as { port: number };
  probe.close();
  const at = (name: string): string => path.join(folder, name);
  const files = { cert: at("server.crt"), key: at("server.key"), clientCa: at("ca.crt") };
  const serving = await openServing({ ...options, tcp: { host: "127.0.0.1", port, ...files } });
  const dial = (): Promise<FrameClient> =>
    FrameClient.tls({ port, host: "127.0.0.1", servername: "localhost", ca, ...client });
  return { serving, dial };
}

/** Calls in all, and on one connection at once. */
const calls = full ? 10_000 : 1_000;
const atOnce = 50;

test("thousands of refused streams end, whenever their requests end (TLS)", async (t) => {
  t.timeout(300_000);
  const limits = { requestsPerS: 1e6, requestsPerCaller: 1000 };
  const { serving, dial } = await servingForeign({ limits });
  await using _ = serving;
  for (let done = 0; done < calls; done += 10 * atOnce) {
    using client = await dial();
    for (let round = 0; round < 10; round++) {
      const ids = Array.from({ length: atOnce }, async (_each, i) => {
        const path = i % 2 === 0 ? `${pods}/Watch` : `${pods}/Console`;
        const id = client.ask({ path, type: stream, headers: length });
        // At once, a moment later, or when the refusal has come.
        if (i % 3 === 1) await delay(i % 5);
        if (i % 3 === 2) await client.until(() => client.text(id).includes("PERMISSION_DENIED"));
        const early = client.ended(id);
        client.end(id, envelope("{}"));
        await client.until(() => client.ended(id));
        if (early || !client.text(id).includes("PERMISSION_DENIED")) t.fail(client.text(id));
      });
      await Promise.all(ids);
    }
  }
  t.is(serving.refused.get("permission_denied"), calls);
});

test("refused streams end for curl, over either HTTP", async (t) => {
  t.timeout(3_600_000);
  await using serving = await openServing();
  chmodSync(path.dirname(serving.socket), 0o755);
  chmodSync(serving.socket, 0o666);
  const message = path.join(mkdtempSync(path.join(tmpdir(), "podnet-early-")), "message");
  writeFileSync(message, envelope("{}"));
  chmodSync(path.dirname(message), 0o755);
  const foreign = ["--reuid=4009", "--regid=4009", "--clear-groups"];
  const call = (i: number): Promise<{ stdout: string }> => {
    const version = i % 8 === 7 ? "--http1.1" : "--http2-prior-knowledge";
    const how = ["-sS", "-N", version, "--max-time", "30", "--unix-socket", serving.socket];
    const what = ["-H", `content-type: ${stream}`, "--data-binary", `@${message}`];
    return run("setpriv", [...foreign, "curl", ...how, ...what, `http://podnet${pods}/Watch`]);
  };
  const times = full ? 10_000 : 40;
  for (let i = 0; i < times; i += 2) {
    const answers = await Promise.all([call(i), call(i + 1)]);
    for (const { stdout } of answers)
      if (!stdout.includes("PERMISSION_DENIED")) t.fail(stdout || "nothing");
  }
  t.is(serving.refused.get("permission_denied"), times);
});
