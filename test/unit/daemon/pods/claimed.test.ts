import test from "ava";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { bringUp } from "../../../../daemon/pods/lifecycle/bring-up.ts";
import { livePod } from "../../../../daemon/pods/lifecycle/live-pod.ts";
import type { ParkedMachine } from "../../../../daemon/pods/pool/parked-machine.ts";
import { type PodPlan, planVersion } from "../../../../daemon/pods/store/pod-plan.ts";
import { GuestTime } from "../../../../guest-init/channel/guest-time.ts";
import { playHost } from "../fixtures/host.ts";

const nic = {
  nicId: "nic0",
  netdevId: "net0",
  fdName: "fd0",
  tap: "tap0",
  mac: "52:54:00:00:00:01",
  slot: 1,
};
const own = {
  position: 0,
  network: "default",
  bridge: "hyper0",
  addresses: ["192.168.123.2/24"],
  gateways: [],
  mtu: 1500,
  guestName: "eth0",
  nic,
};

interface Differences {
  readonly fresh?: boolean;
  readonly files?: boolean;
  readonly more?: object;
}

/** A pod on a machine that has waited in the pool. */
function claim({ fresh = true, files = false, more = {} }: Differences, ...fails: string[]) {
  const played = playHost(...fails);
  const interfaces = [{ ...own, ...(fresh ? { fresh: true } : {}) }];
  const plan = {
    version: planVersion,
    podId: "abcdefghijkl",
    name: "one",
    vm: { runDir: "/nowhere/abcdefghijkl", podId: "abcdefghijkl", disks: [] },
    interfaces,
    routes: [],
    ...more,
  } as unknown as PodPlan;
  const spec = { boot: {}, ...(files ? { files: [] } : {}) } as unknown as PodSpec;
  Object.assign(played.vm, { firstNic: nic.nicId });
  const machine = {
    plan: plan.vm,
    vm: played.vm,
    guest: played.host.openGuest({ channelPath: "", ttyPath: undefined, reattach: false }),
    identity: { api: 4244, extension: 1, agent: "test", features: ["parking", "files"] },
    time: new GuestTime(),
  } as unknown as ParkedMachine;
  const up = (begin: () => Promise<void> = async () => {}) =>
    bringUp(
      livePod({ plan, spec }, undefined, machine),
      played.host,
      {
        progress: { started: () => {}, finished: () => {} },
        fresh: true,
        elapsed: () => systemClock.monotonic(),
        undoing: () => {},
        begin,
        slot: async () => new DisposableStack(),
        commit: async () => {
          played.calls.push("commit");
        },
      },
      new AbortController().signal,
    );
  return Object.assign(played, { up });
}

test("a machine that runs again finds its configuration, where no neighbour has to hear of it", async (t) => {
  const { calls, reported, up } = claim({});
  t.is((await up()).kind, "up");
  t.true(calls.indexOf("configure") < calls.indexOf("resume"), calls.join());
  t.is(reported.length, 1, "once");
});

test("an address that was another's is announced when the port is ready", async (t) => {
  for (const differences of [{ fresh: false }, { files: true }]) {
    const { calls, reported, up } = claim(differences);
    t.is((await up()).kind, "up");
    t.true(calls.indexOf("resume") < calls.indexOf("configure"), calls.join());
    t.true(calls.indexOf("ensure") < calls.indexOf("configure"), calls.join());
    t.is(reported.length, 1, "once");
  }
});

test("a configuration that fails early is the failure of its step, and all is undone", async (t) => {
  const { calls, up } = claim({}, "configure");
  const result = await up();
  t.is(result.kind, "undone");
  if (result.kind === "undone") t.is(result.error.step, "guest.configure");
  t.false(calls.includes("commit"));
  t.true(calls.includes("detach tap0"));
});

test("a claim and its machine wait for the disk together, and the answer for both", async (t) => {
  const scene = claim({});
  const { calls, up } = scene;
  const flush = Promise.withResolvers<void>();
  // The flush ends once the guest has its configuration: were it awaited first, neither would.
  scene.onCall = (call) => {
    if (call === "configure") flush.resolve();
  };
  const result = await up(async () => {
    await flush.promise;
    calls.push("flushed");
  });
  t.is(result.kind, "up");
  t.true(calls.indexOf("flushed") < calls.indexOf("commit"), calls.join());
});

test("a claim that cannot be made durable is undone, and says why", async (t) => {
  const { calls, up } = claim({});
  const result = await up(() => Promise.reject(new PodnetError("STATE_UNWRITABLE", "disk full")));
  t.is(result.kind, "undone");
  if (result.kind === "undone") t.is(result.error.code, "STATE_UNWRITABLE");
  t.false(calls.includes("commit"));
  t.true(calls.includes("detach tap0"));
});

test("what outlasts a loss of power waits for its row", async (t) => {
  const lasting = [
    { vm: { runDir: "/nowhere/abcdefghijkl", disks: [{ path: "/disk" }] } },
    { process: { args: ["true"] } },
  ];
  for (const more of lasting) {
    const { calls, up } = claim({ more });
    const result = await up(() => Promise.reject(new PodnetError("STATE_UNWRITABLE", "disk full")));
    t.not(result.kind, "up");
    for (const call of ["ensure", "resume", "configure"]) t.false(calls.includes(call), call);
  }
});
