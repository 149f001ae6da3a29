import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeVersion } from "../../../../guest-init/protocol/replies.ts";
import { parseAwakening } from "../../../../guest-init/protocol/extension-messages.ts";
import { encodeStepResults, parseSteps } from "../../../../guest-init/protocol/steps.ts";
import { noBytes } from "../../../../guest-init/protocol/bytes.ts";
import type { Twin, Wake } from "../../../../guest-init/channel/guest.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";
import { closes, met, never, pair, paired } from "./fixtures/session.ts";

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

const named: Twin = {
  identity: { api: 4244, extension: 1, agent: "a", epoch: "own", features: ["steps", "twins"] },
  machineId: "0f".repeat(16),
  nic: undefined,
};
const namesDone = encodeStepResults({ done: [noBytes, Buffer.from("5"), noBytes], errno: 0 });

test("a clone that is known gets its names before it runs, and is asked nothing", async (t) => {
  const resumed = Promise.withResolvers<void>();
  await using both = await pair({ wake: { ...wakeWith(() => resumed.promise), twin: named } });
  const { peer, guest } = both;
  t.is(await guest.ready(never), named.identity, "although it does not run yet");
  const { payload } = await peer.command(command.steps);
  t.deepEqual(parseSteps(payload), [
    { kind: "entropy", bytes: Uint8Array.of(0, 255) },
    { kind: "clock", ms: 5 },
    { kind: "twin", epoch: "own", machineId: named.machineId },
  ]);
  const pinged = guest.ping(never);
  await peer.command(command.ping);
  resumed.resolve();
  await peer.say(command.ack, namesDone);
  await peer.say(command.ack);
  await t.notThrowsAsync(pinged);
  // A restarted agent has another epoch, and has to be asked.
  const again = new Promise((resolve) => guest.onReady(resolve));
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.like(await again, { epoch: "one" });
});

test("a clone that does not take its names, or cannot be resumed, is not gone on with", async (t) => {
  const answers = [
    [command.error, undefined, "AGENT_REFUSED"],
    [command.ack, encodeStepResults({ done: [noBytes], errno: 30 }), "AGENT_REFUSED"],
    [command.ack, noBytes, "AGENT_PROTOCOL"],
  ] as const;
  for (const [code, payload, failure] of answers) {
    await using both = await pair({
      wake: { ...wakeWith(() => Promise.resolve()), twin: named },
    });
    await both.peer.command(command.steps);
    await both.peer.say(code, payload);
    await closes(t, both, failure);
  }
  const refused = new PodnetError("QMP_FAILED", "QEMU refused it");
  await using stuck = await pair({
    wake: { ...wakeWith(() => Promise.reject(refused)), twin: named },
  });
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

test("a caller's signal ends the wait for READY", async (t) => {
  await using both = await pair();
  await t.throwsAsync(both.guest.ready(AbortSignal.abort()), { code: "CANCELLED" });
  await t.throwsAsync(both.guest.ping(AbortSignal.timeout(5)), { code: "DEADLINE_EXCEEDED" });
  await t.throwsAsync(both.guest.ready(AbortSignal.timeout(5)), { code: "AGENT_TIMEOUT" });
});
