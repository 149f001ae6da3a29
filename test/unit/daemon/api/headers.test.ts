import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import {
  ack,
  endHeaders,
  endStream,
  fields,
  frame,
  framesIn,
  literal,
  preface,
  type,
} from "../../api/fixtures/frames.ts";
import { openServing, type Serving } from "../../api/fixtures/serving.ts";

// Headers of HTTP/2 that do not come to their end: RFC 9113 6.10 lets a sender break them off
// anywhere.

const limits = { requestMs: 400, idleMs: 60_000 };

type Frame = ReturnType<typeof framesIn>["frames"][number];

/** A client of HTTP/2 that writes the given frames, and by default answers pings. */
function dial(serving: Serving, answersPings: boolean, reported: Frame[] = []): Socket {
  const socket = connect(serving.socket);
  let bytes: Buffer = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    const { frames, rest } = framesIn(Buffer.concat([bytes, chunk]));
    bytes = rest;
    reported.push(...frames);
    for (const { kind, flags, payload } of frames)
      if (answersPings && kind === type.ping && flags === 0)
        socket.write(frame(type.ping, ack, 0, payload));
  });
  socket.write(preface);
  return socket;
}

/** Whether a connection ends by itself within 15 s, which is long after it should have. */
const ends = (socket: Socket): Promise<boolean> =>
  Promise.race([
    new Promise<boolean>((resolve) => socket.once("close", () => resolve(true))),
    delay(15_000, false, { ref: false }),
  ]);

test("headers that break off end their session after the slow-request limit", async (t) => {
  await using serving = await openServing({ limits });
  const socket = dial(serving, false);
  socket.write(frame(type.headers, 0, 1, fields));
  t.true(await ends(socket));
  t.is(serving.refused.get("slow_request"), 1);
});

test("headers that are dripped, too, also behind requests that were answered", async (t) => {
  await using serving = await openServing({ limits });
  const socket = dial(serving, false);
  socket.write(
    Buffer.concat([
      frame(type.headers, endHeaders, 1, fields),
      frame(type.data, endStream, 1, Buffer.from("{}")),
      frame(type.headers, 0, 3, fields),
    ]),
  );
  const drip = setInterval(() => {
    if (!socket.destroyed) socket.write(frame(type.continuation, 0, 3, literal("x", "y")));
  }, 100);
  t.true(await ends(socket));
  clearInterval(drip);
  t.is(serving.refused.get("slow_request"), 1);
});

test("headers in pieces that come in time, and streams refused, end no session", async (t) => {
  await using serving = await openServing({ limits });
  const socket = dial(serving, true);
  socket.write(frame(type.headers, 0, 1, fields));
  await delay(50);
  socket.write(frame(type.continuation, endHeaders, 1, literal("x", "y")));
  socket.write(frame(type.data, endStream, 1, Buffer.from("{}")));
  // Without :path nghttp2 refuses the stream, and the server never hears of it.
  socket.write(frame(type.headers, endHeaders | endStream, 3, Buffer.from([0x83, 0x86])));
  await delay(4 * limits.requestMs);
  t.false(socket.closed);
  t.is(serving.refused.get("slow_request"), undefined);
  socket.destroy();
});

test("a whole request of a stream that is refused is answered to its end, and nothing is reset", async (t) => {
  await using serving = await openServing({ limits });
  const refused = Buffer.concat([
    Buffer.from([0x83, 0x86]),
    literal(":path", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    literal(":authority", "x"),
    literal("content-type", "application/connect+json"),
    literal("connect-timeout-ms", "x"),
  ]);
  for (const pauseMs of [0, 5]) {
    const reported: Frame[] = [];
    const socket = dial(serving, true, reported);
    const answer = (): readonly Frame[] => reported.filter(({ stream }) => stream === 1);
    socket.write(frame(type.headers, endHeaders, 1, refused));
    await delay(pauseMs);
    socket.write(frame(type.data, endStream, 1, Buffer.from("\0\0\0\0\x02{}", "latin1")));
    const last = ({ kind, flags }: Frame): boolean => kind === type.data && (flags & endStream) > 0;
    while (!answer().some(last)) await delay(5);
    await delay(100);
    t.false(answer().some(({ kind }) => kind === type.reset));
    socket.destroy();
  }
});
