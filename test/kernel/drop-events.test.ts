/** Counters of the kernel become events: real frames, and a clock of the test. */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { Journal } from "../../daemon/events/journal.ts";
import { eventsOfKind } from "../../daemon/events/store.ts";
import { Database } from "../../daemon/store/database.ts";
import { type PortOwner, watchDrops } from "../../daemon/traffic/drop-watch.ts";
import { openLog } from "../../linux/log.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  podAddress,
  podMac,
} from "../lab/firewall-site.ts";
import { arp, four, udp } from "../lab/forged-frames.ts";
import { type RawFrame, sendFrames } from "../lab/frames.ts";
import { until } from "../lab/until.ts";

const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];
const [own, other] = [podMac(2), podMac(3)];
const to = { dst: other, src: own } as const;
const datagram = { saddr: podAddress(2, 4), daddr: podAddress(3, 4), protocol: 17 } as const;
const honest = four(to, datagram, udp(9, 9), "its own");
const address = four(to, { ...datagram, saddr: "192.168.123.77" }, udp(9, 9), "an address");
const claim = arp(
  { dst: "ff:ff:ff:ff:ff:ff", src: own },
  { operation: 1, senderMac: own, sender: podAddress(3, 4), target: podAddress(3, 4) },
  "another's address",
);
const owners = new Map<string, PortOwner>([
  ["tap2", { interface: "eth0", pod: { id: "p2" as never, name: "two" as never } }],
  ["tap3", { interface: "eth0", container: "container 3" }],
]);

/** A watch whose minutes the test lets pass. */
async function openStage() {
  const site = await FirewallSite.open(options);
  // (Else the host takes off the padding, in which the texts are.)
  bridgeNf("0");
  await site.ensure(dualNetwork());
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  const db = Database.openIn(mkdtempSync(join(tmpdir(), "podnet-drops-")));
  const state = { ms: 1_000_000, looks: 0 };
  const clock = { now: () => state.ms, monotonic: () => state.ms };
  const { observe } = site.host;
  const open = (): AsyncDisposable =>
    watchDrops({
      db,
      journal: new Journal(db, clock),
      observe: {
        drops: (signal) => {
          state.looks++;
          return observe.drops(signal);
        },
        refusals: (signal) => observe.refusals(signal),
      },
      ownersOf: () => owners,
      clock,
      log: openLog({ component: "test", level: "silent" }),
      everyMs: 10,
    });
  return {
    site,
    open,
    pass: (ms: number) => void (state.ms += ms),
    /** What the events say once a whole look has passed. */
    async said(): Promise<string[]> {
      const before = state.looks;
      await until("two more looks", () => state.looks >= before + 2);
      return eventsOfKind(db, "guard").map(({ podName = "-", data: { guard = [] } }) => {
        const kinds = guard.map((each) => `${each.interface} ${each.kind} ${each.packets}`);
        return `${podName}: ${kinds.join(", ")}`;
      });
    },
    texts: () => eventsOfKind(db, "guard").map(({ data }) => data.text),
    send: (machine: string, ...frames: RawFrame[]) => sendFrames(site, machine, "eth0", frames),
    [Symbol.asyncDispose]: async () => {
      db.close();
      await site[Symbol.asyncDispose]();
    },
  };
}

test.serial(
  "a first frame of a kind that is dropped is an event, at most one a minute; a restart repeats none",
  async (t) => {
    await using stage = await openStage();
    let first = "";
    {
      await using _watch = stage.open();
      await stage.send("pod2", honest, honest);
      t.deepEqual(await stage.said(), [], "what passes is none");
      await stage.send("pod2", address, address);
      await until("an event", async () => (await stage.said()).length > 0);
      first = (await stage.said())[0] ?? "";
      t.regex(first, /^two: eth0 ipv4 [12]$/);
      t.regex(
        stage.texts()[0] ?? "",
        /^eth0: [12] frames dropped, a source IPv4 .* To do: add the/,
      );
      await stage.send("pod2", address, claim);
      stage.pass(59_000);
      t.deepEqual(await stage.said(), [first], "more of its kind is none, another kind waits");
    }
    await using _again = stage.open();
    t.deepEqual(await stage.said(), [first], "an event that was sent is not repeated");
    stage.pass(1000);
    await until("another kind", async () => (await stage.said()).length > 1);
    t.deepEqual(await stage.said(), [first, "two: eth0 arp-claim 1"]);
    // Another owner has a minute of its own, and a container is no pod.
    const foreign = four({ dst: own, src: other }, datagram, udp(9, 9), "pod 2's address");
    await stage.send("pod3", foreign);
    await until("its neighbour's", async () => (await stage.said()).length > 2);
    t.is((await stage.said()).at(-1), "-: eth0 ipv4 1");
    t.regex(stage.texts().at(-1) ?? "", /^container 3: 1 frames? dropped/);
  },
);

test.serial("a port that is made anew begins anew", async (t) => {
  await using stage = await openStage();
  await using _watch = stage.open();
  await stage.send("pod2", address);
  await until("an event", async () => (await stage.said()).length > 0);
  const { site } = stage;
  await site.host.remove(dualPod(2), AbortSignal.timeout(60_000));
  await stage.said();
  const link = `link add name tap2 type veth peer name eth0 address ${own} netns`.split(" ");
  await site.inside("host", "ip", ...link, site.namespaceOf("pod2"));
  await site.ensure(dualPod(2));
  await site.inside("pod2", "ip", "link", "set", "eth0", "up");
  stage.pass(60_000);
  t.is((await stage.said()).length, 1);
  await stage.send("pod2", address);
  await until("another event", async () => (await stage.said()).length > 1);
  t.is((await stage.said()).at(-1), "two: eth0 ipv4 1");
});
