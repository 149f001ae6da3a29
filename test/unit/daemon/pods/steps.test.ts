import test from "ava";
import { KnownGuest } from "../../../../daemon/pods/guest/template-guest.ts";
import type { Twin } from "../../../../guest-init/channel/guest.ts";
import { systemClock } from "../../../../core/clock.ts";
import { isPodnetError, PodnetError } from "../../../../core/errors.ts";
import { bringUp } from "../../../../daemon/pods/lifecycle/bring-up.ts";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import { everyPort } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import { type LivePod, livePod } from "../../../../daemon/pods/lifecycle/live-pod.ts";
import { type PodPlan, planVersion } from "../../../../daemon/pods/store/pod-plan.ts";
import { createSteps, type Flow, undoSteps } from "../../../../daemon/pods/plan/steps.ts";
import { undoPod } from "../../../../daemon/pods/lifecycle/undo.ts";
import { type PlayedHost, playHost } from "../fixtures/host.ts";

const interfaces = [0, 1].map((position) => ({
  position,
  network: "default",
  bridge: "hyper0",
  addresses: [`192.168.123.${position + 2}/24`],
  gateways: [],
  mtu: 1500,
  guestName: `eth${position}`,
  nic: {
    nicId: `nic${position}`,
    netdevId: "n",
    fdName: "f",
    tap: `tap${position}`,
    mac: `52:54:00:00:00:0${position}`,
    slot: position + 1,
  },
}));
const plan = {
  version: planVersion,
  podId: "abcdefghijkl",
  name: "one",
  vm: { runDir: "/nowhere", disks: [] },
  interfaces,
  routes: [],
} as unknown as PodPlan;
const pod = { plan, spec: { boot: {} } as PodSpec };

interface Scene extends PlayedHost {
  readonly live: LivePod;
}

const scene = (...fails: readonly string[]): Scene =>
  Object.assign(playHost(...fails), { live: livePod(pod) });

const quiet = { started: () => {}, finished: () => {} };
const up = (
  { live, host }: Scene,
  signal = new AbortController().signal,
  commit = async (): Promise<void> => {},
) =>
  bringUp(
    live,
    host,
    {
      progress: quiet,
      fresh: true,
      elapsed: () => systemClock.monotonic(),
      undoing: () => {},
      begin: async () => {},
      slot: async () => new DisposableStack(),
      commit,
    },
    signal,
  );

const undone = ["detach tap0", "detach tap1", "reap", "remove"];

test("host and machine come up side by side", async (t) => {
  const { live, host } = scene();
  const reported: string[] = [];
  const begun = {
    "vm.start": Promise.withResolvers<void>(),
    "port.attach": Promise.withResolvers<void>(),
  };
  // Each half waits for the other to begin: one after the other, they would wait for ever.
  const { apply } = host.network;
  Object.assign(host.network, {
    apply: async (...asked: Parameters<typeof apply>) => {
      await begun["vm.start"].promise;
      return await apply(...asked);
    },
  });
  const { start } = host.driver;
  Object.assign(host.driver, {
    start: async (...asked: Parameters<typeof start>) => {
      await begun["port.attach"].promise;
      return await start(...asked);
    },
  });
  const progress = {
    started: (step: string) => {
      reported.push(`${step} begins`);
      if (step === "vm.start" || step === "port.attach") begun[step].resolve();
    },
    finished: ({ step }: { step: string }) => reported.push(`${step} ends`),
  };
  const elapsed = () => systemClock.monotonic();
  await bringUp(
    live,
    host,
    {
      progress,
      fresh: true,
      elapsed,
      undoing: () => {},
      begin: async () => {},
      slot: async () => new DisposableStack(),
      commit: async () => {},
    },
    new AbortController().signal,
  );
  const at = (what: string): number => reported.indexOf(what);
  t.true(at("vm.start begins") < at("port.attach ends"), reported.join());
  t.true(at("port.attach begins") < at("guest.ready ends"), reported.join());
});

test("the guest is notified before its NICs are plugged", async (t) => {
  const stage = scene();
  const result = await up(stage);
  t.is(result.kind, "up");
  const at = (call: string): number => stage.calls.indexOf(call);
  t.true(at("start") < at("record") && at("record") < at("ready"));
  t.true(at("configure") < at("plug nic0"));
  t.true(at("plug nic0") < at("close tap0") && at("close tap0") < at("plug nic1"));
  t.deepEqual([...stage.live.plugged], [0, 1]);
  t.is(stage.live.taps.size, 0);
});

test("a clone is woken, and no other; each with randomness of its own", async (t) => {
  const drawn: (string | undefined)[] = [];
  for (const asleep of [true, true, false]) {
    const stage = scene();
    const { openGuest } = stage.host;
    Object.assign(stage.vm, { asleep });
    Object.assign(stage.host, {
      openGuest: (options: Parameters<typeof openGuest>[0]) => {
        drawn.push(options.wake?.awakening().entropy);
        return openGuest(options);
      },
    });
    t.is((await up(stage)).kind, "up");
  }
  const [one, other, none] = drawn;
  t.regex(one ?? "", /^[0-9a-f]{128}$/);
  t.regex(other ?? "", /^[0-9a-f]{128}$/);
  t.not(one, other);
  t.is(none, undefined);
});

test("a clone whose template's agent is known has names of its own, and is configured as it wakes", async (t) => {
  const known = { api: 4244, extension: 1, agent: "a", epoch: "template's" };
  const twins: (Twin | undefined)[] = [];
  for (const { features, fresh } of [
    { features: ["steps", "twins"], fresh: true },
    { features: ["steps", "twins"], fresh: false },
    { features: ["steps"], fresh: true },
  ]) {
    const stage = scene();
    if (fresh)
      stage.live.plan = {
        ...plan,
        interfaces: plan.interfaces.map((each) => ({ ...each, fresh: true })),
      };
    const { openGuest } = stage.host;
    const templateGuest = new KnownGuest({ ...known, features });
    Object.assign(stage.vm, { asleep: true, templateGuest });
    Object.assign(stage.host, {
      openGuest: (options: Parameters<typeof openGuest>[0]) => {
        const guest = openGuest(options);
        const { wake } = options;
        twins.push(wake?.twin);
        const ready = async (signal: AbortSignal) => {
          await wake?.resume();
          return wake?.twin?.identity ?? (await guest.ready(signal));
        };
        return { ...guest, ready };
      },
    });
    t.is((await up(stage)).kind, "up");
    const isEarly = stage.calls.indexOf("configure") < stage.calls.indexOf("resume");
    t.is(isEarly, fresh && features.includes("twins"), stage.calls.join());
    t.is(stage.reported.length, 1, "once");
  }
  const [one, other, asked] = twins;
  t.regex(one?.identity.epoch ?? "", /^[0-9a-f]{32}$/);
  t.regex(one?.machineId ?? "", /^[0-9a-f]{32}$/);
  t.is(new Set([one, other].flatMap((twin) => [twin?.identity.epoch, twin?.machineId])).size, 4);
  t.is(asked, undefined, "its agent knows AWAKE alone");
});

const failures: readonly (readonly [string, string])[] = [
  ["open tap1", "tap.open"],
  ["ensure", "port.attach"],
  ["start", "vm.start"],
  ["ready", "guest.ready"],
  ["configure", "guest.configure"],
  ["plug nic1", "nic.plug"],
];

for (const [call, step] of failures) {
  test(`when "${call}" fails everything is undone and the step is named`, async (t) => {
    const stage = scene(call);
    const result = await up(stage);
    t.is(result.kind, "undone");
    if (result.kind !== "undone") return;
    t.is(result.error.step, step);
    t.is(result.error.code, "SYSCALL_FAILED");
    for (const each of undone) t.true(stage.calls.includes(each), each);
    const opened = stage.calls.filter((each) => each.startsWith("open tap") && each !== call);
    for (const each of opened) t.true(stage.calls.includes(each.replace("open", "close")), each);
    if (stage.calls.includes("ready")) t.true(stage.calls.includes("guest-close"));
  });
}

test("what cannot be made durable did not happen", async (t) => {
  const stage = scene();
  const result = await up(stage, undefined, () => {
    throw new PodnetError("STATE_UNWRITABLE", "disk full");
  });
  t.is(result.kind, "undone");
  for (const each of undone) t.true(stage.calls.includes(each), each);
});

test("a caller that gives up is the reason, at whatever step", async (t) => {
  const caller = new AbortController();
  const stage = scene();
  const running = up(stage, caller.signal);
  caller.abort(new PodnetError("CANCELLED", "gone"));
  const result = await running;
  t.true(result.kind === "undone" && isPodnetError(result.error, "CANCELLED"));
  for (const each of undone) t.true(stage.calls.includes(each), each);
});

for (const failing of [
  "detach tap0",
  "power-off",
  "guest-close",
  "stop",
  "reap",
  "close tap0",
  "remove",
]) {
  test(`taking down goes on past a failing "${failing}" and reports it`, async (t) => {
    const stage = scene();
    await up(stage);
    stage.failing.add(failing);
    stage.live.taps.set(0, stage.host.openTap("tap0" as never));
    stage.calls.length = 0;
    const reported = await undoPod(stage.live, stage.host, { graceful: true });
    const all = [
      "detach tap0",
      "detach tap1",
      "power-off",
      "guest-close",
      "stop",
      "reap",
      "close tap0",
      "remove",
    ];
    for (const each of all) t.true(stage.calls.includes(each), each);
    // A guest that does not power off is ended all the same: that is no failure.
    t.is(reported.length, failing === "power-off" ? 0 : 1);
    for (const error of reported) t.true(isPodnetError(error) && error.step !== undefined);
  });
}

test("when undoing fails too, the first error keeps its word and the others stand behind it", async (t) => {
  const result = await up(scene("ready", "reap", "remove"));
  t.is(result.kind, "stuck");
  if (result.kind !== "stuck") return;
  t.is(result.error.step, "guest.ready");
  t.true(result.error.cause instanceof AggregateError && result.error.cause.errors.length === 3);
});

test("taking down twice is taking down once", async (t) => {
  const stage = scene();
  await up(stage);
  t.deepEqual(await undoPod(stage.live, stage.host, { graceful: true }), []);
  stage.calls.length = 0;
  t.deepEqual(await undoPod(stage.live, stage.host, { graceful: true }), []);
  t.deepEqual(stage.calls, undone);
});

test("a plan's steps and their undo are data", (t) => {
  const kinds = (flow: Flow): string[] =>
    "flows" in flow ? flow.flows.flatMap(kinds) : [flow.kind];
  t.deepEqual(kinds(createSteps(pod, { fresh: true })), [
    "tap.open",
    "port.attach",
    "vm.start",
    "guest.ready",
    "guest.configure",
    "nic.plug",
    "nic.plug",
    "guest.verify",
  ]);
  t.deepEqual(
    undoSteps(plan).map(({ kind }) => kind),
    ["port.detach", "guest.power-off", "vm.stop", "tap.close", "port.forget"],
  );
  t.deepEqual(undoSteps(plan), structuredClone(undoSteps(plan)));
});

test("an interface whose removal was cut short is looked for at the host all the same", async (t) => {
  const [first, second] = plan.interfaces.map((each) => ({ ...each, leaving: true as const }));
  const removing = { ...plan, interfaces: [plan.interfaces[0], second] } as PodPlan;
  t.deepEqual(
    everyPort(removing).ports.map(({ tap, guestAddresses }) => [tap, guestAddresses]),
    [
      ["tap0", ["192.168.123.2/24"]],
      ["tap1", ["192.168.123.3/24"]],
    ],
  );
  const none = { ...plan, interfaces: [first, second] } as PodPlan;
  t.deepEqual(
    undoSteps(none).map(({ kind }) => kind),
    undoSteps(plan).map(({ kind }) => kind),
  );
  const { host, calls } = playHost();
  t.deepEqual(await undoPod(livePod({ ...pod, plan: none }), host, { graceful: true }), []);
  t.deepEqual(calls, undone);
});
