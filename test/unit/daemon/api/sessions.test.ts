import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import { connect, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { queryObjects } from "node:v8";
import test from "ava";
import { connectPodnet } from "../../../../api/client.ts";
import { frame, preface } from "../../api/fixtures/frames.ts";
import { openServing, type Serving, type ServingOptions } from "../../api/fixtures/serving.ts";

/** A connection that may break at any moment, and whose client does not close its end by itself. */
const dial = (serving: Serving): Socket =>
  connect({ path: serving.socket, allowHalfOpen: true }).on("error", () => {});

const withLimits = (limits: NonNullable<ServingOptions["limits"]>) => openServing({ limits });

async function until(met: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !met(); i++) await delay(10);
  if (!met()) throw new Error("It did not come to be within 10 s");
}

/** How many sessions of servers the heap holds. */
async function sessionsHeld(): Promise<() => number> {
  const model = createServer();
  const made = once(model, "session") as Promise<[ServerHttp2Session]>;
  model.emit("connection", new Socket());
  const [session] = await made;
  session.destroy();
  const Session = session.constructor as new () => ServerHttp2Session;
  return () => queryObjects(Session, { format: "count" });
}

/** With as many connections as were seen to fill the heap in complete runs. */
const [count, atOnce] = process.env["PODNET_TEST_FULL"] === "1" ? [50_000, 100] : [100, 10];

test.serial("HTTP/2 connections that have closed leave nothing in the heap", async (t) => {
  await using serving = await withLimits({ connectionsPerS: 1_000_000 });
  const held = await sessionsHeld();
  const bytes = process.memoryUsage().heapUsed;
  const one = async (): Promise<void> => {
    const socket = dial(serving);
    socket.write(preface);
    await once(socket, "data");
    socket.destroy();
  };
  for (let i = 0; i < count; i += atOnce) await Promise.all(Array.from({ length: atOnce }, one));
  await until(() => serving.server.connections === 0);
  // The model, and perhaps the last one.
  t.true(held() <= 2);
  const kept = process.memoryUsage().heapUsed - bytes;
  t.log(`${count} connections: ${kept >> 10} KiB of heap more`);
});

test.serial("a session that has ended leaves no connection, whoever ended it", async (t) => {
  await using serving = await withLimits({ idleMs: 300 });
  // Asks for nothing; says goodbye and stays; is refused for what it sends, and does not read why.
  const goodbye = frame(7, 0, 0, Buffer.alloc(8));
  const settings = Buffer.concat(Array.from({ length: 50_000 }, () => frame(4, 0, 0)));
  const sockets = [Buffer.alloc(0), goodbye, settings].map((rest) => {
    const socket = dial(serving);
    socket.write(Buffer.concat([preface, rest]));
    return socket;
  });
  t.teardown(() => sockets.forEach((socket) => socket.destroy()));
  await until(() => serving.refused.get("idle") === 1 && serving.refused.get("http2") === 1);
  t.true(serving.server.connections > 0);
  await until(() => serving.server.connections === 0);
  t.is(serving.refused.get("idle"), 1);
});

/** What a connection answers that asks for the health page by HTTP/1.1. */
async function healthOf(socket: Socket): Promise<string> {
  socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  let text = "";
  for await (const chunk of socket) text += String(chunk);
  return text;
}

test.serial(
  "connections a second: so many of one caller; the next gets the reason, in its protocol",
  async (t) => {
    await using serving = await withLimits({ connectionsPerS: 1 });
    const call = async (): Promise<string> => {
      using podnet = connectPodnet({ socket: serving.socket });
      return await podnet.pods.list({}).then(
        () => "served",
        (error: { code?: string }) => error.code ?? "",
      );
    };
    const begun = performance.now();
    const answers = await Promise.all(Array.from({ length: 20 }, call));
    // Two at once, then one a second, however long a busy machine takes.
    const most = 2 + Math.ceil((performance.now() - begun) / 1000);
    // Ten at once: on a busy machine a second may have passed, and one of them may be served.
    const plain = await Promise.all(Array.from({ length: 10 }, () => healthOf(dial(serving))));
    const reported = plain.filter((text) =>
      /^HTTP\/1\.1 429 .*"code":"LIMIT_REACHED".*"retry_after_ms":"\d+"/s.test(text),
    );
    t.true(reported.length > 0, plain[0]);
    const served = answers.filter((answer) => answer === "served").length;
    t.true(served >= 2 && served <= most, `${served} served of ${most}`);
    t.is(answers.filter((answer) => answer === "LIMIT_REACHED").length, 20 - served);
    t.is(plain.filter((text) => text.startsWith("HTTP/1.1 200")).length, 10 - reported.length);
    t.is(serving.refused.get("connections_per_s"), 20 - served + reported.length);
    // Whoever waits is served again.
    let again = "";
    for (let i = 0; i < 20 && again !== "served"; i++) {
      await delay(100);
      again = await call();
    }
    t.is(again, "served");
  },
);
