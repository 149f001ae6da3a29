import test, { type ExecutionContext } from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { u32Bytes, joinBytes } from "../../../../guest-init/protocol/bytes.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeCtlFrame, encodeNext } from "../../../../guest-init/protocol/ctl-frame.ts";
import { encodeFailure, encodeVersion } from "../../../../guest-init/protocol/replies.ts";
import {
  encodeHelloReply,
  encodeObservedGuest,
  parseAwakening,
  parseGuestConfig,
} from "../../../../guest-init/protocol/extension-messages.ts";
import type { GuestConfig, ObservedGuest } from "../../../../guest-init/protocol/configure.ts";
import type { ChannelLimits } from "../../../../guest-init/channel/limits.ts";
import type { Wake } from "../../../../guest-init/channel/guest.ts";
import { type GuestSession, openGuest } from "../../../../guest-init/channel/session.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;

interface Pair extends AsyncDisposable {
  readonly peer: ScriptedGuest;
  readonly guest: GuestSession;
  readonly closed: Promise<Error>;
}

interface PairOptions {
  readonly limits?: Partial<ChannelLimits>;
  readonly reattach?: boolean;
  readonly wake?: Wake;
}

async function pair(options: PairOptions = {}): Promise<Pair> {
  const peer = await ScriptedGuest.start();
  return paired(peer, options);
}

function paired(peer: ScriptedGuest, options: PairOptions): Pair {
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false, ...options });
  const closed = new Promise<Error>((resolve, reject) => {
    guest.onClose(resolve);
    setTimeout(() => reject(new Error("The channel is still open")), 20_000).unref();
  });
  closed.catch(() => {});
  return {
    peer,
    guest,
    closed,
    async [Symbol.asyncDispose]() {
      await guest.close();
      await peer[Symbol.asyncDispose]();
    },
  };
}

/** A pair that has met. */
async function met(as: "ours" | "hyperstart", limits: Partial<ChannelLimits> = {}): Promise<Pair> {
  const both = await pair({ limits });
  await both.peer.say(command.ready);
  await both.peer.introduce(as);
  await both.guest.ready(never);
  return both;
}

const config: GuestConfig = {
  requestId: "r1",
  interfaces: [],
  routes: [],
  neighbours: [],
  waitMs: 0,
};
const observed: ObservedGuest = {
  requestId: "r1",
  hostname: "pod",
  dns: { servers: [], search: [], options: [] },
  interfaces: [],
  routes: [],
  clockMs: 0,
  agentRssKib: 1,
};

async function closes(
  t: ExecutionContext,
  { guest, closed }: Pair,
  code: string,
  why = /./,
): Promise<void> {
  t.like(await closed, { code });
  t.regex((await closed).message, why);
  await t.throwsAsync(guest.ping(never), { code });
}

test("nothing is sent before READY; then GETVERSION and HELLO", async (t) => {
  await using both = await pair();
  const { peer, guest } = both;
  const ready = guest.ready(never);
  const pinged = guest.ping(never);
  await peer.say(
    command.processAsyncEvent,
    Buffer.from('{"container":"hyperstart","process":"x","event":"finished","status":0}'),
  );
  // The event above has been read when READY has; had anything been sent, it would be here.
  t.deepEqual(peer.reads, []);
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.deepEqual(await ready, { api: 4244, extension: 1, agent: "scripted", epoch: "one" });
  await peer.command(command.ping);
  await peer.say(command.ack);
  await t.notThrowsAsync(pinged);
});

const wakeWith = (resume: () => Promise<void>): Wake => ({
  awakening: () => ({ entropy: "00ff", clockMs: 5 }),
  resume,
});

test("a clone hears that it is one before it runs, then who it is is asked", async (t) => {
  const resumed = Promise.withResolvers<void>();
  await using both = await pair({ wake: wakeWith(() => resumed.promise) });
  const { peer, guest } = both;
  const ready = guest.ready(never);
  // Sent although the machine does not run yet: QEMU has the frame by the time it does.
  const { payload } = await peer.command(command.awake);
  t.deepEqual(parseAwakening(payload), { entropy: "00ff", clockMs: 5 });
  resumed.resolve();
  await peer.say(command.ack);
  await peer.introduce("ours");
  t.like(await ready, { extension: 1, epoch: "one" });
  // It has said READY before it was cloned: the first one from here on is a restart.
  const again = new Promise((resolve) => guest.onReady(resolve));
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.like(await again, { extension: 1 });
});

test("a clone that refuses to be one, or cannot be resumed, is not gone on with", async (t) => {
  await using refusing = await pair({ wake: wakeWith(() => Promise.resolve()) });
  await refusing.peer.command(command.awake);
  await refusing.peer.say(command.error);
  await closes(t, refusing, "AGENT_REFUSED");

  const failure = new PodnetError("QMP_FAILED", "QEMU refused it");
  await using stuck = await pair({ wake: wakeWith(() => Promise.reject(failure)) });
  await closes(t, stuck, "QMP_FAILED");
});

test("what an agent can do is passed on", async (t) => {
  await using both = await pair();
  both.peer.features = ["awake"];
  await both.peer.say(command.ready);
  await both.peer.introduce("ours");
  t.deepEqual((await both.guest.ready(never)).features, ["awake"]);
});

test("ERROR to HELLO means a plain hyperstart", async (t) => {
  await using both = await met("hyperstart");
  t.deepEqual(await both.guest.ready(never), { api: 4244, extension: undefined, agent: undefined });
});

test("sockets that are not there yet are waited for", async (t) => {
  const peer = ScriptedGuest.unbound();
  await using both = paired(peer, {});
  const ready = both.guest.ready(never);
  await peer.listen();
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.is((await ready).extension, 1);
});

test("sockets that never come end in AGENT_TIMEOUT", async (t) => {
  await using both = paired(ScriptedGuest.unbound(), { limits: { connectMs: 20 } });
  await closes(t, both, "AGENT_TIMEOUT");
});

test("a guest that never says READY ends in AGENT_TIMEOUT", async (t) => {
  await using both = await pair({ limits: { readyMs: 20 } });
  await closes(t, both, "AGENT_TIMEOUT");
});

test("a guest that says READY and no more ends in AGENT_TIMEOUT", async (t) => {
  await using both = await pair({ limits: { identifyMs: 20 } });
  await both.peer.say(command.ready);
  await closes(t, both, "AGENT_TIMEOUT");
});

test("an API that is not spoken is UNSUPPORTED", async (t) => {
  await using both = await pair();
  await both.peer.say(command.ready);
  await both.peer.command(command.getVersion);
  await both.peer.say(command.ack, encodeVersion(4242));
  await closes(t, both, "UNSUPPORTED");
});

test("a version that is no version is AGENT_PROTOCOL", async (t) => {
  await using both = await pair();
  await both.peer.say(command.ready);
  await both.peer.say(command.ack, new Uint8Array(3));
  await closes(t, both, "AGENT_PROTOCOL");
});

test("configure is one frame, sent at once, and returns what the guest observes", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const answer = guest.configure({ ...config, waitMs: 500 }, never);
  const sent = await peer.command(command.configure);
  t.deepEqual(parseGuestConfig(sent.payload), { ...config, waitMs: 500 });
  await peer.say(command.ack, encodeObservedGuest(observed));
  t.deepEqual(await answer, observed);
  t.is(peer.waiting, 0);
});

test("configure: refusal, nonsense, and another's answer", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const ask = (): Promise<ObservedGuest> => guest.configure(config, never);
  const answers = [ask(), ask(), ask()] as const;
  for (const answer of answers) answer.catch(() => {});
  await peer.say(
    command.error,
    encodeFailure({ message: "No such\ndevice", field: "interfaces[0].mac", errno: "ENODEV" }),
  );
  await peer.say(command.ack, Buffer.from('{"requestId":1}'));
  await peer.say(command.ack, encodeObservedGuest({ ...observed, requestId: "r2" }));
  const error = await t.throwsAsync(answers[0], { code: "AGENT_REFUSED" });
  t.is(error?.message, "The guest refused its configuration: No such\\u000adevice");
  t.like(error, { field: "interfaces[0].mac", details: { errno: "ENODEV" } });
  await t.throwsAsync(answers[1], { code: "AGENT_PROTOCOL" });
  await t.throwsAsync(answers[2], { code: "AGENT_PROTOCOL" });
});

test("answers go to commands in order, also past those given up", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const stop = new AbortController();
  const first = guest.ping(stop.signal);
  const second = guest.configure(config, never);
  await peer.command(command.ping);
  await peer.command(command.configure);
  stop.abort();
  await t.throwsAsync(first, { code: "CANCELLED" });
  await peer.say(command.ack);
  await peer.say(command.ack, encodeObservedGuest(observed));
  t.deepEqual(await second, observed);
});

test("a silent guest costs each command its deadline, counted from the one before", async (t) => {
  await using both = await met("ours", { commandMs: 30 });
  const errors = await Promise.all(
    [1, 2].map(() => t.throwsAsync(both.guest.ping(never), { code: "AGENT_TIMEOUT" })),
  );
  const granted = Number(/in (\d+) ms/.exec(errors[1]?.message ?? "")?.[1]);
  t.true(granted > 30 && granted <= 60);
  // Late answers are taken, and the channel lives on.
  await both.peer.say(command.ack);
  await both.peer.say(command.ack);
  const third = both.guest.ping(never);
  await both.peer.say(command.ack);
  await t.notThrowsAsync(third);
});

test("too many unanswered commands are refused at once", async (t) => {
  await using both = await met("ours", { outstanding: 3 });
  const some = [1, 2, 3].map(() => both.guest.ping(never));
  for (const ping of some) ping.catch(() => {});
  await t.throwsAsync(both.guest.ping(never), { code: "AGENT_TIMEOUT", message: /3 commands/ });
});

test("an answer to nothing costs the guest its channel", async (t) => {
  await using both = await met("ours");
  await both.peer.say(command.ack);
  await closes(t, both, "AGENT_PROTOCOL");
});

test("unknown frames are counted, and too many cut off", async (t) => {
  await using both = await met("ours", { senselessFrames: 2 });
  const { peer, guest } = both;
  await peer.say(99);
  await peer.say(command.startPod);
  const pinged = guest.ping(never);
  await peer.say(command.ack);
  await pinged;
  t.is(guest.counters().senselessFrames, 2);
  await peer.say(99);
  await closes(t, both, "AGENT_PROTOCOL");
});

test("a frame longer than the limit is refused at its header", async (t) => {
  await using both = await met("ours", { controlFrame: 4096 });
  await both.peer.raw(joinBytes([u32Bytes(command.ack), u32Bytes(4097)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a control frame of 4097 bytes/);
});

test("a frame shorter than its header is refused", async (t) => {
  await using both = await met("ours");
  await both.peer.raw(joinBytes([u32Bytes(command.ack), u32Bytes(4)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a control frame of 4 bytes/);
});

test("a tty frame longer than the limit costs the channel", async (t) => {
  await using both = await met("ours");
  await both.peer.rawTty(joinBytes([u32Bytes(0), u32Bytes(1), u32Bytes(0x7fffffff)]));
  await closes(t, both, "AGENT_PROTOCOL", /announced a tty frame of 2147483647 bytes/);
});

for (const where of ["raw", "rawTty"] as const)
  test(`a frame begun and not finished costs the channel (${where})`, async (t) => {
    await using both = await met("ours", { frameMs: 50 });
    const drip = async (): Promise<void> => {
      // One byte each 10 ms is progress, and still too slow.
      for (let i = 0; i < 100; i++) {
        await both.peer[where](new Uint8Array(1));
        if ((await Promise.race([both.closed, tick(10)])) instanceof Error) return;
      }
    };
    await both.peer[where](
      where === "raw"
        ? joinBytes([u32Bytes(command.ack), u32Bytes(1000)])
        : joinBytes([u32Bytes(0), u32Bytes(1), u32Bytes(1000)]),
    );
    await drip();
    await closes(t, both, "AGENT_PROTOCOL");
  });

const tick = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test("a guest that hangs up in the middle of a frame", async (t) => {
  await using both = await met("ours");
  const pinged = both.guest.ping(never);
  await both.peer.command(command.ping);
  await both.peer.raw(u32Bytes(command.ack));
  both.peer.hangUp();
  await t.throwsAsync(pinged, { code: "AGENT_DISCONNECTED" });
  await closes(t, both, "AGENT_DISCONNECTED");
});

test("onClose runs once, and at once when it is too late", async (t) => {
  await using both = await met("ours");
  let times = 0;
  both.guest.onClose(() => times++);
  both.peer.hangUp();
  await both.closed;
  await both.guest.close();
  t.is(times, 1);
  both.guest.onClose(() => times++);
  t.is(times, 2);
});

test("powerOff: the answer, or the guest's end", async (t) => {
  await using answered = await met("ours");
  const off = answered.guest.powerOff(never);
  await answered.peer.command(command.destroyPod);
  await answered.peer.say(command.ack);
  await t.notThrowsAsync(off);

  await using gone = await met("hyperstart");
  const ended = gone.guest.powerOff(never);
  await gone.peer.command(command.destroyPod);
  gone.peer.hangUp();
  await t.notThrowsAsync(ended);
});

test("READY again: what waits fails, the agent is asked anew, listeners hear of it", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const again = new Promise((resolve) => guest.onReady(resolve));
  const pinged = guest.ping(never);
  await peer.command(command.ping);
  await peer.say(command.ready);
  await t.throwsAsync(pinged, { code: "AGENT_DISCONNECTED" });
  // A command sent now waits for the new agent, and an answer of the old one's does not confuse it.
  const next = guest.ping(never);
  await peer.say(command.ack);
  await peer.introduce("hyperstart");
  t.deepEqual(await again, { api: 4244, extension: undefined, agent: undefined });
  await peer.command(command.ping);
  await peer.say(command.ack);
  await t.notThrowsAsync(next);
  t.is(guest.counters().staleReplies, 1);
});

test("READY twice at the start is one agent that restarted", async (t) => {
  await using both = await pair();
  const { peer, guest } = both;
  let heard = 0;
  guest.onReady(() => heard++);
  await peer.say(command.ready);
  await peer.command(command.getVersion);
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.is((await guest.ready(never)).extension, 1);
  t.is(heard, 1);
});

for (const [what, codes] of [
  ["an identity half asked for", [command.ack, command.error, command.ack]],
  ["a version and a refusal", [command.ack, command.error]],
  ["a version alone", [command.ack]],
  ["pongs and versions", [command.ping, command.ack, command.ping, command.ack, command.ack]],
] as const)
  for (const as of ["ours", "hyperstart"] as const)
    test(`reattaching: ${what}, left over, does not confuse who is ${as}`, async (t) => {
      await using both = await pair({ reattach: true });
      const { peer, guest } = both;
      await peer.command(command.getVersion);
      await peer.raw(encodeNext(77));
      // ACKs here are versions, but for those of PINGs.
      for (const code of codes)
        if (code === command.ack) await peer.say(command.ack, encodeVersion());
        else await peer.say(code === command.ping ? command.ack : code);
      await peer.say(command.ack, encodeVersion());
      await peer.introduce(as);
      t.is((await guest.ready(never)).extension, as === "ours" ? 1 : undefined);
      // Whatever comes from now on is an answer to what was asked.
      const pinged = guest.ping(never);
      await peer.command(command.ping);
      await peer.say(command.ack);
      await t.notThrowsAsync(pinged);
    });

test("an identity given to another host is not believed", async (t) => {
  await using both = await pair();
  await both.peer.say(command.ready);
  await both.peer.version();
  await both.peer.command(command.hello);
  const stale = { version: 1, agent: "old", epoch: "e", nonce: "n" };
  await both.peer.say(command.ack, encodeHelloReply(stale));
  await closes(t, both, "AGENT_PROTOCOL");
});

test("reattaching to a silent guest ends in AGENT_TIMEOUT, and asks it no more than once", async (t) => {
  await using both = await pair({ reattach: true, limits: { identifyMs: 200 } });
  await both.peer.command(command.getVersion);
  await closes(t, both, "AGENT_TIMEOUT");
  t.is(both.peer.waiting, 0);
});

test("reattaching copes with a READY that was queued, and reports it", async (t) => {
  await using both = await pair({ reattach: true });
  const { peer, guest } = both;
  const again = new Promise((resolve) => guest.onReady(resolve));
  await peer.command(command.getVersion);
  await peer.say(command.ready);
  await peer.say(command.ack, encodeVersion());
  await peer.introduce("ours");
  t.is((await guest.ready(never)).extension, 1);
  await t.notThrowsAsync(again);
});

test("to a hyperstart at most 512 bytes go out before NEXT has accounted for them", async (t) => {
  await using both = await met("hyperstart");
  const { peer, guest } = both;
  peer.reads.length = 0;
  peer.sayNext = false;
  // 40 pings of 8 bytes and an exec of more than a chunk, pipelined.
  const pings = Array.from({ length: 40 }, () => guest.ping(never));
  const started = guest.exec(
    { args: ["echo", "x".repeat(2000)], env: {}, workdir: "/", terminal: false },
    never,
  );
  started.catch(() => {});
  let received = 0;
  for (let i = 0; i < 40; i++) {
    while (peer.reads.length > 0) {
      const size = peer.reads.shift() ?? 0;
      t.true(size <= 512);
      received += size;
      // In two parts: only the sum counts.
      await peer.raw(encodeNext(size - 3));
      t.is(peer.reads.length, 0);
      await peer.raw(encodeNext(3));
    }
    await peer.command(command.ping);
    await peer.say(command.ack);
  }
  await Promise.all(pings);
  while (received < 40 * 8 + 2000) {
    if (peer.reads.length === 0) await tick(1);
    for (const size of peer.reads.splice(0)) {
      t.true(size <= 512);
      received += size;
      await peer.raw(encodeNext(size));
    }
  }
  await peer.command(command.execCmd);
  await peer.say(command.error);
  await t.throwsAsync(started, { code: "AGENT_REFUSED" });
});

test("NEXT for bytes never sent costs the channel", async (t) => {
  await using both = await met("hyperstart");
  await both.peer.raw(encodeNext(1));
  await closes(t, both, "AGENT_PROTOCOL");
});

test("to our agent a long frame goes out whole, without waiting for NEXT", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  peer.sayNext = false;
  const answer = guest.configure({ ...config, entropy: "00".repeat(500) }, never);
  const sent = await peer.command(command.configure);
  t.true(encodeCtlFrame(command.configure, sent.payload).length > 1000);
  await peer.say(command.ack, encodeObservedGuest(observed));
  await answer;
});

test("a caller's signal ends the wait for READY", async (t) => {
  await using both = await pair();
  await t.throwsAsync(both.guest.ready(AbortSignal.abort()), { code: "CANCELLED" });
  await t.throwsAsync(both.guest.ping(AbortSignal.timeout(5)), { code: "DEADLINE_EXCEEDED" });
  await t.throwsAsync(both.guest.ready(AbortSignal.timeout(5)), { code: "AGENT_TIMEOUT" });
});

test("READY without end costs the channel", async (t) => {
  await using both = await pair({ limits: { restarts: 3 } });
  for (let i = 0; i < 5; i++) await both.peer.say(command.ready);
  await closes(t, both, "AGENT_PROTOCOL");
});
