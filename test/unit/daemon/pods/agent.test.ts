import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import type { PodId } from "../../../../core/names.ts";
import { Journal } from "../../../../daemon/events/journal.ts";
import { podBackoff } from "../../../../daemon/pods/lifecycle/keep-trying.ts";
import { KeyedLock } from "../../../../daemon/reconcile/keyed-lock.ts";
import { WorkQueue } from "../../../../daemon/reconcile/work-queue.ts";
import { nextPause } from "../../../../daemon/pods/guest/follow-agent.ts";
import type { Host } from "../../../../daemon/pods/lifecycle/host.ts";
import { livePod, unsubscribe } from "../../../../daemon/pods/lifecycle/live-pod.ts";
import { type PodPlan, planVersion } from "../../../../daemon/pods/store/pod-plan.ts";
import { KeptPlans } from "../../../../daemon/pods/store/kept-plans.ts";
import { PodRecords } from "../../../../daemon/pods/store/records.ts";
import { supervise } from "../../../../daemon/pods/lifecycle/supervise.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { insertPod } from "../../../../daemon/pods/store/pods.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import {
  encodeObservedGuest,
  parseGuestConfig,
} from "../../../../guest-init/protocol/extension-messages.ts";
import { encodeVersion } from "../../../../guest-init/protocol/replies.ts";
import { openLog } from "../../../../linux/log.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;

/** Running pods with real channels and rows; only their machines are not there. */
function scene({ readyMs = 5000 } = {}) {
  const opened = new AsyncDisposableStack();
  const meet = async (): Promise<ScriptedGuest> => opened.use(await ScriptedGuest.start());
  const directory = mkdtempSync(join(tmpdir(), "podnet-agent-"));
  const db = Database.openIn(directory);
  const journal = new Journal(db, systemClock);
  const records = new PodRecords({
    db,
    journal,
    addresses: undefined as never,
    clock: systemClock,
    published: { release: () => {} },
    kept: new KeptPlans({ runDir: directory, stateDir: directory }),
  });
  const host = {
    clock: systemClock,
    openGuest,
    randomBytes: (count: number) => new Uint8Array(count),
    timeouts: { readyMs, stopMs: 100, powerButtonMs: 100 },
  } as unknown as Host;
  const watch = {
    host,
    records,
    locks: new KeyedLock<PodId>(),
    retries: new WorkQueue({ name: "pods", backoff: podBackoff }),
    log: openLog({ component: "test", level: "error" }),
    over: never,
    gone: () => {},
    writeDown: (_plan: unknown, write: () => void): unknown => write(),
    restartLater: () => {},
  };
  return {
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
    records,
    /** Resolves with the next text about the pod that matches. */
    async heard(podId: string, text: RegExp): Promise<string> {
      for await (const event of journal.watch(0, AbortSignal.timeout(20_000))) {
        if (event.podId === podId && text.test(event.data.text)) return event.data.text;
      }
      throw new Error("No more reports are given");
    },
    async running(podId: string, as: "ours" | "hyperstart" = "ours") {
      const plan = {
        version: planVersion,
        podId,
        name: podId,
        vm: {
          podId,
          vcpu: 1,
          memoryMib: 64,
          cmdline: "",
          disks: [],
          runDir: `/nowhere/${podId}`,
        },
        interfaces: [],
        routes: [],
      } as unknown as PodPlan;
      const spec = { labels: {}, interfaces: [], routes: [] };
      const machine = { resources: { vcpu: 1, memoryMib: 64 }, boot: { cmdline: "", disks: [] } };
      insertPod(db, plan, { ...spec, ...machine }, 0);
      const live = livePod({ plan, spec: { ...spec, ...machine } });
      let peer = await meet();
      opened.defer(async () => {
        unsubscribe(live);
        await live.guest?.close();
      });
      live.vm = {
        socketPath: (name: string) => (name === "tty" ? peer.ttyPath : peer.channelPath),
        onEvent: () => () => {},
        endedShares: () => [],
      } as never;
      const { channelPath, ttyPath } = peer;
      live.guest = openGuest({ channelPath, ttyPath, reattach: false });
      await peer.say(command.ready);
      await peer.introduce(as);
      live.identity = await live.guest.ready(never);
      records.running(live, []);
      supervise(live, watch);
      return {
        live,
        peer,
        /** From now on this is what is found at the machine's sockets. */
        async another(): Promise<ScriptedGuest> {
          peer = await meet();
          return peer;
        },
      };
    },
  };
}

test("a guest that breaks the protocol is reached again, says so meanwhile, and harms no other pod", async (t) => {
  await using stage = scene();
  const { running, records, heard } = stage;
  const one = await running("aaaaaaaaaaaa");
  const two = await running("bbbbbbbbbbbb");
  const next = await one.another();
  await one.peer.say(command.ack);
  t.regex(await heard("aaaaaaaaaaaa", /lost/), /the agent is lost: The guest answered a command/);
  const row = () => records.get("aaaaaaaaaaaa" as PodId);
  t.is(row()?.state, "running");
  t.regex(row()?.reason ?? "", /the agent is lost/);
  const pinged = two.live.guest?.ping(never);
  await two.peer.command(command.ping);
  await two.peer.say(command.ack);
  await t.notThrowsAsync(pinged ?? Promise.reject(new Error("The other pod lost its agent")));

  await next.command(command.getVersion);
  // Asked for while the agent is being reached: it waits.
  const again =
    one.live.guest?.ping(never) ?? Promise.reject(new Error("No agent is being reached"));
  await next.say(command.ack, encodeVersion());
  await next.introduce("ours");
  await heard("aaaaaaaaaaaa", /the agent is back/);
  t.is(row()?.reason, undefined);
  // That start of the agent: it has forgotten nothing.
  await next.command(command.ping);
  await next.say(command.ack);
  await again;
});

test("an agent found with another epoch is configured again, whatever its version", async (t) => {
  await using stage = scene();
  const { running, records, heard } = stage;
  const one = await running("aaaaaaaaaaaa");
  const next = await one.another();
  one.peer.hangUp();
  await heard("aaaaaaaaaaaa", /lost/);
  next.epoch = "two";
  await next.introduce("ours");
  const { requestId } = parseGuestConfig((await next.command(command.configure)).payload);
  await next.say(
    command.ack,
    encodeObservedGuest({
      requestId,
      hostname: "pod",
      dns: { servers: [], search: [], options: [] },
      interfaces: [],
      routes: [],
      clockMs: 0,
      agentRssKib: 1,
    }),
  );
  await heard("aaaaaaaaaaaa", /^configured again/);
  t.is(records.get("aaaaaaaaaaaa" as PodId)?.guest?.epoch, "two");
});

test("a pod that is let go of is not reached again", async (t) => {
  await using stage = scene();
  const { running } = stage;
  const { live, peer, another } = await running("aaaaaaaaaaaa");
  const next = await another();
  unsubscribe(live);
  // Whoever lets go may still ask the agent to power off.
  t.not(live.guest, undefined);
  peer.hangUp();
  await new Promise((resolve) => live.guest?.onClose(resolve));
  // The time after which a pod that is followed would be reached again.
  await new Promise((resolve) => setTimeout(resolve, 2 * nextPause(0, 0)));
  t.is(next.waiting, 0);
});

test("a plain hyperstart that did not answer once is not asked again, but heard when it says READY", async (t) => {
  // (Long enough for a busy machine to answer in, too.)
  await using stage = scene({ readyMs: 1500 });
  const { live, peer, another } = await stage.running("aaaaaaaaaaaa", "hyperstart");
  const silent = await another();
  peer.hangUp();
  await silent.command(command.getVersion);
  await stage.heard("aaaaaaaaaaaa", /not ready in time/);
  const next = await another();
  await next.say(command.ready);
  await next.introduce("hyperstart");
  await stage.heard("aaaaaaaaaaaa", /the agent is back/);
  t.is(silent.waiting, 0);
  t.is(live.identity?.extension, undefined);
});

test("attempts come ever more seldom, and soon again after a channel that held", (t) => {
  const pauses = [0];
  for (let i = 0; i < 10; i++) pauses.push(nextPause(pauses.at(-1) ?? 0, 10));
  t.deepEqual(pauses.slice(1, 4), [250, 500, 1000]);
  t.is(pauses.at(-1), 30_000);
  t.is(nextPause(30_000, 60_000), 250);
});
