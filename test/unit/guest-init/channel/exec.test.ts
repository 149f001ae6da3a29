import { setTimeout as delay } from "node:timers/promises";
import { joinBytes } from "../../../../guest-init/protocol/bytes.ts";
import { encodeTtyFrame } from "../../../../guest-init/protocol/tty-frame.ts";
import test from "ava";
import { command } from "../../../../guest-init/protocol/codes.ts";
import {
  type ExecCmd,
  encodeProcessEvent,
  parseExecCmd,
  parseSignalProcess,
  parseWinSize,
} from "../../../../guest-init/protocol/process-messages.ts";
import type { ExecQueue } from "../../../../guest-init/channel/exec-queue.ts";
import type { ExecEvent, ExecSession } from "../../../../guest-init/channel/guest.ts";
import type { ChannelLimits } from "../../../../guest-init/channel/limits.ts";
import { type GuestSession, openGuest } from "../../../../guest-init/channel/session.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;
const request = { args: ["cat"], env: { A: "1" }, workdir: "/tmp", terminal: false };

interface Pair extends AsyncDisposable {
  readonly peer: ScriptedGuest;
  readonly guest: GuestSession;
}

async function met(as: "ours" | "hyperstart", limits: Partial<ChannelLimits> = {}): Promise<Pair> {
  const peer = await ScriptedGuest.start();
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false, limits });
  await peer.say(command.ready);
  await peer.introduce(as);
  await guest.ready(never);
  return {
    peer,
    guest,
    async [Symbol.asyncDispose]() {
      await guest.close();
      await peer[Symbol.asyncDispose]();
    },
  };
}

interface Running {
  readonly session: ExecSession;
  readonly sent: ExecCmd;
}

async function started(
  { peer, guest }: Pair,
  signal = never,
  asked: Parameters<GuestSession["exec"]>[0] = request,
): Promise<Running> {
  const starting = guest.exec(asked, signal);
  const sent = parseExecCmd((await peer.command(command.execCmd)).payload);
  await peer.say(command.ack);
  return { session: await starting, sent };
}

const finish = (peer: ScriptedGuest, { process }: ExecCmd, status = 0): Promise<void> =>
  peer.say(
    command.processAsyncEvent,
    encodeProcessEvent({ container: "hyperstart", process: process.id, event: "finished", status }),
  );

async function all(session: ExecSession): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of session.events) events.push(event);
  return events;
}

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

test("streams are numbered from 1, two per process, one for a terminal", async (t) => {
  await using both = await met("ours");
  const { sent } = await started(both);
  t.deepEqual(sent, {
    container: "hyperstart",
    process: {
      id: sent.process.id,
      additionalGroups: [],
      terminal: false,
      stdio: 1n,
      stderr: 2n,
      args: ["cat"],
      envs: [{ env: "A", value: "1" }],
      workdir: "/tmp",
    },
  });
  const starting = both.guest.exec({ ...request, terminal: true, rows: 24, columns: 80 }, never);
  const terminal = parseExecCmd((await both.peer.command(command.execCmd)).payload);
  t.like(terminal.process, { stdio: 3n, stderr: 0n, terminal: true });
  await both.peer.say(command.ack);
  const size = parseWinSize((await both.peer.command(command.winSize)).payload);
  t.like(size, { row: 24, column: 80 });
  await both.peer.say(command.ack);
  await starting;
  t.is((await started(both)).sent.process.stdio, 4n);
});

test("output comes in order and the exit last, whichever channel was first", async (t) => {
  await using both = await met("ours");
  const { peer } = both;
  const first = await started(both);
  // The event overtakes the output.
  await finish(peer, first.sent, 3);
  const pinged = both.guest.ping(never);
  await peer.command(command.ping);
  await peer.say(command.ack);
  await pinged;
  await peer.output(1n, bytes("out"));
  await peer.output(2n, bytes("err"));
  await peer.output(1n);
  t.deepEqual(await all(first.session), [
    { kind: "stdout", data: bytes("out") },
    { kind: "stderr", data: bytes("err") },
    { kind: "exit", code: 3 },
  ]);
  const second = await started(both);
  await peer.output(3n, bytes("x"));
  await peer.output(4n);
  await peer.output(3n);
  const events = all(second.session);
  await finish(peer, second.sent, 130);
  t.deepEqual(await events, [
    { kind: "stdout", data: bytes("x") },
    { kind: "exit", code: 130 },
  ]);
});

test("output before the ACK is not lost", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const starting = guest.exec(request, never);
  const sent = parseExecCmd((await peer.command(command.execCmd)).payload);
  await peer.output(1n, bytes("early"));
  await peer.output(1n);
  await finish(peer, sent);
  await peer.say(command.ack);
  t.deepEqual(await all(await starting), [
    { kind: "stdout", data: bytes("early") },
    { kind: "exit", code: 0 },
  ]);
});

test("a guest that never ends the stream does not keep the exit back", async (t) => {
  await using both = await met("ours", { execEofMs: 20 });
  const { session, sent } = await started(both);
  await finish(both.peer, sent);
  t.deepEqual(await all(session), [{ kind: "exit", code: 0 }]);
});

test("a refused command is AGENT_REFUSED and leaves nothing", async (t) => {
  await using both = await met("ours");
  const starting = both.guest.exec(request, never);
  await both.peer.command(command.execCmd);
  await both.peer.say(command.error, bytes("no such program\0"));
  await t.throwsAsync(starting, {
    code: "AGENT_REFUSED",
    message: 'The guest refused to run "cat": no such program',
  });
  t.is(both.peer.waiting, 0);
});

test("input to our agent: one frame, then the end", async (t) => {
  await using both = await met("ours");
  const { session } = await started(both);
  const data = new Uint8Array(20_000).fill(7);
  await session.write(data);
  await session.closeInput();
  t.deepEqual(await both.peer.input(), { stream: 1n, data });
  t.deepEqual(await both.peer.input(), { stream: 1n, data: new Uint8Array(0) });
});

test("input to a hyperstart: frames of 16 bytes, and a PING after each 256", async (t) => {
  await using both = await met("hyperstart");
  const { peer } = both;
  const { session } = await started(both);
  const written = session.write(new Uint8Array(600));
  const ended = session.closeInput();
  let sum = 0;
  for (let pings = 0; pings < 2; pings++) {
    await peer.command(command.ping);
    for (let i = 0; i < 16; i++) {
      const { data } = await peer.input();
      t.is(data.length, 16);
      sum += data.length;
    }
    await peer.say(command.ack);
  }
  await Promise.all([written, ended]);
  for (;;) {
    const { data } = await peer.input();
    if (data.length === 0) break;
    sum += data.length;
  }
  t.is(sum, 600);
});

test("signals and sizes name the process", async (t) => {
  await using both = await met("ours");
  const { peer } = both;
  const { session, sent } = await started(both);
  const signalled = session.signal(15);
  const resized = session.resize(50, 100);
  const target = { container: "hyperstart", process: sent.process.id };
  t.deepEqual(parseSignalProcess((await peer.command(command.signalProcess)).payload), {
    ...target,
    signal: 15,
  });
  t.deepEqual(parseWinSize((await peer.command(command.winSize)).payload), {
    target: { kind: "process", ...target },
    row: 50,
    column: 100,
  });
  await peer.say(command.ack);
  await peer.say(command.error);
  await signalled;
  await t.throwsAsync(resized, { code: "AGENT_REFUSED" });
});

test("the signal ends the session and kills the process", async (t) => {
  await using both = await met("ours");
  const stop = new AbortController();
  const { session, sent } = await started(both, stop.signal);
  await both.peer.output(1n, bytes("x"));
  const pinged = both.guest.ping(never);
  await both.peer.command(command.ping);
  await both.peer.say(command.ack);
  await pinged;
  stop.abort();
  const kill = parseSignalProcess((await both.peer.command(command.signalProcess)).payload);
  t.like(kill, { process: sent.process.id, signal: 9 });
  await t.throwsAsync(all(session), { code: "CANCELLED" });
});

test("a reader that leaves kills the process", async (t) => {
  await using both = await met("ours");
  const { session } = await started(both);
  await both.peer.output(1n, bytes("x"));
  for await (const event of session.events) {
    t.is(event.kind, "stdout");
    break;
  }
  const kill = parseSignalProcess((await both.peer.command(command.signalProcess)).payload);
  t.is(kill.signal, 9);
});

test("sessions end when the agent starts anew, and when the guest is lost", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const first = await started(both);
  await peer.say(command.ready);
  await t.throwsAsync(all(first.session), { code: "AGENT_DISCONNECTED" });
  await peer.introduce("ours");
  await guest.ready(never);
  const second = await started(both);
  const events = all(second.session);
  peer.hangUp();
  await t.throwsAsync(events, { code: "AGENT_DISCONNECTED" });
  await t.throwsAsync(second.session.write(bytes("x")), { code: "AGENT_DISCONNECTED" });
});

test("unread output is bounded: the channel is paused, and goes on when it is read", async (t) => {
  await using both = await met("ours", { execQueue: 64 * 1024, execStallMs: 20 });
  const { peer } = both;
  const { session, sent } = await started(both);
  // Far more than queue and socket buffers hold; alone on the channel, the reader may take its
  // time.
  const total = 8 * 1024 * 1024;
  const chunk = new Uint8Array(16 * 1024).fill(1);
  for (let at = 0; at < total; at += chunk.length) await peer.output(1n, chunk);
  await peer.output(1n);
  await finish(peer, sent);
  const queue = session.events as ExecQueue;
  for (let i = 0; i < 1000 && queue.cost < 64 * 1024; i++) await delay(10);
  await delay(100);
  const { cost } = queue;
  t.true(cost >= 64 * 1024 && cost < 256 * 1024, `${cost} bytes are held`);
  let length = 0;
  for await (const event of session.events)
    if (event.kind === "stdout") length += event.data.length;
  t.is(length, total);
});

test("a reader that keeps others waiting loses its session, they go on", async (t) => {
  await using both = await met("ours", { execQueue: 64 * 1024, execStallMs: 30 });
  const { peer } = both;
  const slow = await started(both);
  const other = await started(both);
  const chunk = new Uint8Array(16 * 1024);
  for (let i = 0; i < 64; i++) await peer.output(1n, chunk);
  await peer.output(3n, bytes("at last"));
  await peer.output(3n);
  await finish(peer, other.sent);
  t.deepEqual(await all(other.session), [
    { kind: "stdout", data: bytes("at last") },
    { kind: "exit", code: 0 },
  ]);
  await t.throwsAsync(all(slow.session), { code: "DEADLINE_EXCEEDED" });
  const kill = parseSignalProcess((await peer.command(command.signalProcess)).payload);
  t.like(kill, { process: slow.sent.process.id, signal: 9 });
});

test("tiny frames of one stream become one event; of two in turns, they count for what they cost", async (t) => {
  await using both = await met("ours", { execQueue: 64 * 1024, execStallMs: 30 });
  const slow = await started(both);
  const { session, sent } = await started(both);
  const tiny = encodeTtyFrame(3n, bytes("x"));
  await both.peer.rawTty(joinBytes(Array.from({ length: 3000 }, () => tiny)));
  await both.peer.output(3n);
  await finish(both.peer, sent);
  const events = await all(session);
  const sizes = events.map((event) => (event.kind === "exit" ? 0 : event.data.length));
  t.is(
    sizes.reduce((sum, size) => sum + size),
    3000,
  );
  t.true(events.length < 300, `${events.length} events`);
  await started(both);
  for (let i = 0; i < 2000; i++) await both.peer.output(i % 2 === 0 ? 1n : 2n, new Uint8Array(1));
  const kill = parseSignalProcess((await both.peer.command(command.signalProcess)).payload);
  t.is(kill.process, slow.sent.process.id);
});

test("frames for unknown streams are counted and dropped", async (t) => {
  await using both = await met("ours");
  const { session, sent } = await started(both);
  await both.peer.output(77n, bytes("x"));
  await both.peer.output(1n);
  await finish(both.peer, sent);
  await all(session);
  t.is(both.guest.counters().strayTtyFrames, 1);
  // Its own have no reader any more, either.
  await both.peer.output(1n, bytes("late"));
  await both.peer.output(1n, bytes("later"));
  for (let i = 0; i < 1000 && both.guest.counters().strayTtyFrames < 3; i++) await delay(5);
  t.is(both.guest.counters().strayTtyFrames, 3);
});

test("too many sessions at a time are refused", async (t) => {
  await using both = await met("ours", { execSessions: 1 });
  await started(both);
  await t.throwsAsync(both.guest.exec(request, never), { code: "WRONG_STATE" });
});
