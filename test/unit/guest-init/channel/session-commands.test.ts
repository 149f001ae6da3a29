import test from "ava";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeCtlFrame, encodeNext } from "../../../../guest-init/protocol/ctl-frame.ts";
import { encodeFailure } from "../../../../guest-init/protocol/replies.ts";
import {
  encodeObservedGuest,
  parseGuestConfig,
} from "../../../../guest-init/protocol/extension-messages.ts";
import type { GuestConfig, ObservedGuest } from "../../../../guest-init/protocol/configure.ts";
import { closes, met, never, tick } from "./fixtures/session.ts";

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
