import test from "ava";
import type { Twin } from "../../../../guest-init/channel/guest.ts";
import { aloneParkedNicOf } from "../../../../guest-init/channel/parked.ts";
import type { GuestSession } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import type { ObservedGuest } from "../../../../guest-init/protocol/configure.ts";
import { encodeObservedGuest } from "../../../../guest-init/protocol/extension-messages.ts";
import { encodeFailure } from "../../../../guest-init/protocol/replies.ts";
import { encodeStepResults, parseSteps } from "../../../../guest-init/protocol/steps.ts";
import type { ScriptedGuest } from "../../../peers/scripted-guest.ts";
import { park, podConfig, rehearsal, resultOf, shown, shownParked } from "./fixtures/parked.ts";
import { never, pair } from "./fixtures/session.ts";

interface Both extends AsyncDisposable {
  readonly peer: ScriptedGuest;
  readonly guest: GuestSession;
}

async function introduced(features: readonly string[]): Promise<Both> {
  const both = await pair();
  both.peer.features = features;
  await both.peer.say(command.ready);
  await both.peer.introduce("ours");
  await both.guest.ready(never);
  return both;
}

async function byMessage({ peer, guest }: Both, config: typeof park, answer: ObservedGuest) {
  const observed = guest.configure(config, never);
  await peer.command(command.configure);
  await peer.say(command.ack, encodeObservedGuest(answer));
  return await observed;
}

/** A guest that has rehearsed and is parked. */
async function parked(features: readonly string[] = ["parking", "steps"]): Promise<Both> {
  const both = await introduced(features);
  await byMessage(both, rehearsal, shown("52:54:00:00:00:02", true));
  await byMessage(both, park, shownParked);
  return both;
}

test("a guest that was parked is sent steps, randomness first, and its answers are read", async (t) => {
  await using both = await parked();
  const observed = both.guest.configure(podConfig, never);
  const steps = parseSteps((await both.peer.command(command.steps)).payload);
  t.deepEqual(steps[0], { kind: "entropy", bytes: Uint8Array.of(0, 255) });
  const done = steps.map((step) => resultOf(step, "pod"));
  await both.peer.say(command.ack, encodeStepResults({ done, errno: 0 }));
  t.deepEqual({ ...(await observed) }, {
    ...shown("52:54:00:00:00:03", true),
    hostname: "pod",
    interfaces: [{ ...shown("52:54:00:00:00:03", true).interfaces[0], addresses: ["10.1.0.2/24"] }],
    routes: podConfig.routes,
    dns: podConfig.dns,
    clockMs: 1_700_000_000_000,
    agentRssKib: 200,
  } as never);
  // The NIC is a pod's now.
  await byMessage(both, podConfig, shown("52:54:00:00:00:03", true));
});

test("what was not parked just before, or by an agent without steps, is sent a message", async (t) => {
  await using early = await parked(["parking"]);
  await byMessage(early, podConfig, shown("52:54:00:00:00:03", true));
  await using first = await introduced(["parking", "steps"]);
  await byMessage(first, park, shownParked);
  await byMessage(first, podConfig, shown("52:54:00:00:00:03", true));
  await using two = await parked();
  const another = { ...podConfig.interfaces[0], mac: "52:54:00:00:00:09", name: "eth1" };
  const interfaces = [...podConfig.interfaces, another] as typeof podConfig.interfaces;
  await byMessage(two, { ...podConfig, interfaces }, shown("52:54:00:00:00:03", true));
  await using up = await introduced(["parking", "steps"]);
  await byMessage(up, rehearsal, shown("52:54:00:00:00:02", true));
  await byMessage(up, park, shown("52:54:00:00:00:01", true));
  await byMessage(up, podConfig, shown("52:54:00:00:00:03", true));
  t.pass();
});

test("a clone whose template was parked is sent steps at once, behind its names", async (t) => {
  const { interfaces } = shownParked;
  const nic = aloneParkedNicOf(shownParked);
  t.is(nic?.mac, interfaces[0]?.mac);
  const twin: Twin = {
    identity: { api: 4244, extension: 1, agent: "a", epoch: "own", features: ["steps", "twins"] },
    machineId: "0f".repeat(16),
    nic,
  };
  const wake = { awakening: () => ({ entropy: "01", clockMs: 5 }), resume: async () => {}, twin };
  await using both = await pair({ wake });
  const observed = both.guest.configure(podConfig, never);
  const names = parseSteps((await both.peer.command(command.steps)).payload);
  t.is(names.at(-1)?.kind, "twin");
  const steps = parseSteps((await both.peer.command(command.steps)).payload);
  t.is(steps[0]?.kind, "entropy");
  const answer = (asked: typeof steps): Uint8Array =>
    encodeStepResults({ done: asked.map((step) => resultOf(step, "pod")), errno: 0 });
  await both.peer.say(command.ack, answer(names));
  await both.peer.say(command.ack, answer(steps));
  t.is((await observed).hostname, "pod");
});

test("a guest that shows more than one NIC that is down has not parked it", (t) => {
  const [there] = shownParked.interfaces;
  const { routes } = shown("52:54:00:00:00:03", true);
  for (const more of [
    { interfaces: [] },
    { interfaces: [there, there] },
    { interfaces: [{ ...there, up: true }] },
    { interfaces: [{ ...there, addresses: ["10.1.0.2/24"] }] },
    { routes: routes.length > 0 ? routes : podConfig.routes },
  ])
    t.is(aloneParkedNicOf({ ...shownParked, ...more } as ObservedGuest), undefined);
});

test("a guest that does not do all steps is sent the message, which says why", async (t) => {
  for (const answer of ["errno", "refused by the kernel", "refused"] as const) {
    await using both = await parked();
    const { peer, guest } = both;
    const observed = guest.configure(podConfig, never);
    const steps = parseSteps((await peer.command(command.steps)).payload);
    const done = steps.map((step) => resultOf(step, "pod", answer === "errno" ? 0 : 13));
    if (answer === "refused") await peer.say(command.error, encodeFailure({ message: "no" }));
    else
      await peer.say(command.ack, encodeStepResults({ done, errno: answer === "errno" ? 30 : 0 }));
    await peer.command(command.configure);
    await peer.say(command.error, encodeFailure({ message: "No such device" }));
    await t.throwsAsync(observed, { code: "AGENT_REFUSED", message: /No such device/ }, answer);
  }
});

test("answers of a hostile guest are judged as strictly as those of a message", async (t) => {
  const lies: Record<string, (done: Uint8Array[]) => Uint8Array> = {
    "a result too few": (done) => encodeStepResults({ done: done.slice(1), errno: 0 }),
    "no results": () => new Uint8Array(0),
    "a result cut off": (done) => encodeStepResults({ done, errno: 0 }).slice(0, -1),
    "no numbers": (done) =>
      encodeStepResults({ done: [...done.slice(0, -1), Buffer.from("x y z")], errno: 0 }),
    "netlink cut off": (done) =>
      encodeStepResults({ done: done.map((one) => one.slice(0, 30)), errno: 0 }),
  };
  for (const [lie, answer] of Object.entries(lies)) {
    await using both = await parked();
    const observed = both.guest.configure(podConfig, never);
    const steps = parseSteps((await both.peer.command(command.steps)).payload);
    await both.peer.say(command.ack, answer(steps.map((step) => resultOf(step, "pod"))));
    await t.throwsAsync(observed, { code: "AGENT_PROTOCOL" }, lie);
  }
  await using long = await parked();
  const observed = long.guest.configure(podConfig, never);
  const steps = parseSteps((await long.peer.command(command.steps)).payload);
  const done = steps.map((step) => resultOf(step, "x".repeat(256)));
  await long.peer.say(command.ack, encodeStepResults({ done, errno: 0 }));
  await t.throwsAsync(observed, { code: "AGENT_PROTOCOL", message: /hostname/ });
});
