import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import test from "ava";
import { endHeaders, fields, frame, literal, preface, type } from "../../api/fixtures/frames.ts";
import { openServing, type Serving } from "../../api/fixtures/serving.ts";

const floods: readonly (readonly [what: string, frames: (round: number) => Buffer])[] = [
  ["pings", () => frame(type.ping, 0, 0, Buffer.alloc(8))],
  ["settings", () => frame(type.settings, 0, 0)],
  [
    "streams that are reset at once",
    (round) =>
      Buffer.concat([
        frame(type.headers, endHeaders, 2 * round + 1, fields),
        frame(type.reset, 0, 2 * round + 1, Buffer.from([0, 0, 0, 8])),
      ]),
  ],
  [
    "headers that do not end",
    (round) =>
      round === 0
        ? frame(type.headers, 0, 1, fields)
        : frame(type.continuation, 0, 1, literal(`x-${round}`, "y")),
  ],
  ["empty continuations", (round) => frame(round === 0 ? type.headers : type.continuation, 0, 1)],
  ["frames of closed streams", () => frame(type.window, 0, 9999, Buffer.from([0, 0, 0, 1]))],
  ["resets of streams never opened", (round) => frame(type.reset, 0, 2 * round + 1)],
];

/** Writes frames without end until the server has had enough; how many bytes that took. */
async function flood(serving: Serving, frames: (round: number) => Buffer): Promise<number> {
  const socket: Socket = connect(serving.socket);
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.write(preface);
  // Answers are never read, so that they pile up at the server.
  socket.pause();
  let sent = 0;
  for (let round = 0; !socket.destroyed && sent < 64 << 20; ) {
    const batch: Buffer[] = [];
    for (let i = 0; i < 256; i++) batch.push(frames(round++));
    const bytes = Buffer.concat(batch);
    sent += bytes.length;
    const more = socket.write(bytes);
    await new Promise((resolve) => {
      if (more) setImmediate(resolve);
      else {
        socket.once("drain", resolve);
        socket.once("close", resolve);
      }
    });
  }
  socket.resume();
  await closed;
  return sent;
}

async function list(via: ReturnType<typeof connectHttp2>): Promise<unknown> {
  const stream = via.request({
    ":method": "POST",
    ":path": "/podnet.v1.PodService/List",
    "content-type": "application/json",
  });
  stream.end("{}");
  stream.resume();
  const [headers] = (await once(stream, "response")) as [Record<string, unknown>];
  return headers[":status"];
}

for (const [what, frames] of floods) {
  test(`a flood of ${what} ends its own connection; others are served meanwhile`, async (t) => {
    await using serving = await openServing();
    const via = connectHttp2("http://podnet", {
      createConnection: () => connect(serving.socket),
    });
    const state = { over: false };
    const flooding = flood(serving, frames).finally(() => {
      state.over = true;
    });
    let served = 0;
    while (!state.over || served < 3) {
      t.is(await list(via), 200);
      served++;
    }
    const sent = await flooding;
    t.true(sent < 64 << 20, `${sent} bytes were taken`);
    t.log(`ended after ${sent} bytes, ${served} requests of another served meanwhile`);
    via.close();
  });
}
