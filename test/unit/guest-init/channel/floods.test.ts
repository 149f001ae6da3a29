import test, { type ExecutionContext } from "ava";
import type { ChannelLimits } from "../../../../guest-init/channel/limits.ts";
import { type GuestSession, openGuest } from "../../../../guest-init/channel/session.ts";
import { joinBytes } from "../../../../guest-init/protocol/bytes.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeCtlFrame, encodeNext } from "../../../../guest-init/protocol/ctl-frame.ts";
import { encodeProcessEvent } from "../../../../guest-init/protocol/process-messages.ts";
import { encodeTtyFrame } from "../../../../guest-init/protocol/tty-frame.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

// Small frames that are valid each, and too many.

const never = new AbortController().signal;
const many = (count: number, frame: Uint8Array): Uint8Array =>
  joinBytes(Array.from({ length: count }, () => frame));
const processEnd = encodeCtlFrame(
  command.processAsyncEvent,
  encodeProcessEvent({ container: "x", process: "unknown", event: "finished", status: 0 }),
);

interface Pair extends AsyncDisposable {
  readonly peer: ScriptedGuest;
  readonly guest: GuestSession;
  readonly closed: Promise<Error>;
}

async function met(limits: Partial<ChannelLimits> = {}, reattach = false): Promise<Pair> {
  const peer = await ScriptedGuest.start();
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach, limits });
  const closed = new Promise<Error>((resolve, reject) => {
    guest.onClose(resolve);
    setTimeout(() => reject(new Error("The channel is still open")), 10_000).unref();
  });
  closed.catch(() => {});
  if (!reattach) await peer.say(command.ready);
  await peer.introduce("ours");
  await guest.ready(never);
  return {
    peer,
    guest,
    closed,
    [Symbol.asyncDispose]: async () => {
      await guest.close();
      await peer[Symbol.asyncDispose]();
    },
  };
}

async function answers(t: ExecutionContext, { peer, guest }: Pair): Promise<void> {
  const pinged = guest.ping(never);
  await peer.command(command.ping);
  await peer.say(command.ack);
  await t.notThrowsAsync(pinged);
}

test("NEXT of 0 bytes means nothing: some are counted, more cost the channel", async (t) => {
  await using both = await met();
  await both.peer.raw(many(64, encodeNext(0)));
  await answers(t, both);
  t.is(both.guest.counters().senselessFrames, 64);
  await both.peer.raw(encodeNext(0));
  t.like(await both.closed, { code: "AGENT_PROTOCOL" });
  t.regex((await both.closed).message, /frames that mean nothing, the last a NEXT of 0 bytes/);
});

test("ends of processes that are not known: earlier daemons leave some, more cost the channel", async (t) => {
  await using both = await met();
  await both.peer.raw(many(500, processEnd));
  await answers(t, both);
  t.is(both.guest.counters().strayEvents, 500);
  await both.peer.raw(many(200, processEnd));
  t.like(await both.closed, { code: "AGENT_PROTOCOL" });
});

for (const [what, stream] of [
  ["a stream not given out yet", 7n],
  ["stream 0", 0n],
] as const) {
  test(`output of streams that never were costs the channel: ${what}`, async (t) => {
    await using both = await met();
    await both.peer.rawTty(many(1000, encodeTtyFrame(stream)));
    t.like(await both.closed, { code: "AGENT_PROTOCOL" });
    t.regex((await both.closed).message, /streams that never were/);
    t.is(both.guest.counters().strayTtyFrames, 0, "it is closed");
  });
}

test("output of an earlier daemon's streams is passed over, and slowed down", async (t) => {
  const ttyRate = { perSecond: 500, burst: 100 };
  await using both = await met({ ttyRate }, true);
  await both.peer.rawTty(many(700, encodeTtyFrame(7n)));
  while (both.guest.counters().strayTtyFrames === 0)
    await new Promise((resolve) => setImmediate(resolve));
  t.true(both.guest.counters().strayTtyFrames <= 100 + 256);
  // The other channel does not wait.
  await answers(t, both);
  t.true(both.guest.counters().strayTtyFrames < 700);
});

test("valid frames on the control channel that come too fast for long cost the channel", async (t) => {
  await using both = await met({ controlRate: { perSecond: 100, burst: 600 }, tooFastMs: 300 });
  both.peer.sayNext = false;
  const pings = 200;
  const all = Promise.allSettled(Array.from({ length: pings }, () => both.guest.ping(never)));
  for (let at = 0; at < pings; at++) await both.peer.command(command.ping);
  // Each accounts for one byte that was sent, as a hyperstart may.
  await both.peer.raw(many(8 * pings, encodeNext(1)));
  t.like(await both.closed, { code: "AGENT_PROTOCOL" });
  t.regex((await both.closed).message, /keeps sending more frames/);
  await all;
});

test("a burst of frames takes no more than its share of one turn of the event loop", async (t) => {
  await using both = await met({ senselessFrames: 1_000_000 });
  await both.peer.raw(many(20_000, encodeNext(0)));
  let before = 0;
  let most = 0;
  let turns = 0;
  while (before < 20_000) {
    await new Promise((resolve) => setImmediate(resolve));
    const now = both.guest.counters().senselessFrames;
    most = Math.max(most, now - before);
    turns += now > before ? 1 : 0;
    before = now;
  }
  // Two looks see a piece that begins at once, one that has waited, and one of the next turn.
  t.true(most <= 3 * 256, `${most} frames between two looks`);
  t.true(turns >= 40, `${turns} turns`);
});
