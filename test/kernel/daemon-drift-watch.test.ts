import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { systemClock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { DriftWatch } from "../../daemon/drift/drift.ts";
import type { RunningPort } from "../../daemon/drift/parts.ts";
import type { PodRecords } from "../../daemon/pods/store/records.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";
import { openLog } from "../../linux/log.ts";
import { noContainers } from "../lab/no-containers.ts";
import { noPods } from "../lab/no-pods.ts";
import { noServices } from "../lab/no-services.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip, networkFragment } from "../lab/network.ts";

const oftenMs = 150;
const neverMs = 3_600_000;
const well: Inspection = { found: [], healed: true, error: undefined };
const mtu = { subject: "link hyper0 mtu", found: "1400", wanted: "1500" };

test.before(ownNetns);

interface Watched extends AsyncDisposable {
  readonly watch: DriftWatch;
  readonly seen: {
    looks: number;
    linkLooks: number;
    wholeLooks: number;
    ruleLooks: number;
    reported: string[];
  };
  /** What the next looks find. */
  finds: Inspection;
  rules: string;
  ports: RunningPort[];
}

/** A watch over a host that is played; the kernel's events are real. */
function watched(everyMs = oftenMs): Watched {
  const seen = { looks: 0, linkLooks: 0, wholeLooks: 0, ruleLooks: 0, reported: [] as string[] };
  const played = { finds: well, rules: "as they were", ports: [] as RunningPort[] };
  const watch = DriftWatch.open({
    services: noServices,
    attachments: { ready: noContainers },
    networks: {
      fragments: () => [networkFragment()],
      stableFragment: () => networkFragment(),
      answerNames: async () => {},
    },
    everyMs,
    clock: systemClock,
    log: openLog({ component: "test", level: "silent" }),
    metrics: { drift: () => {} },
    journal: {
      emit: ({ data }: { data: { text: string } }) => seen.reported.push(data.text),
    } as never,
    records: {} as PodRecords,
    pods: { ...noPods, runningPorts: () => played.ports },
    network: {
      observe: {
        async fingerprint() {
          seen.looks++;
          return played.rules;
        },
      } as never,
      async inspectRules(now) {
        now();
        seen.ruleLooks++;
        return new Map();
      },
      async inspect(_now, { linksOnly }) {
        if (linksOnly) seen.linkLooks++;
        else seen.wholeLooks++;
        return played.finds;
      },
    },
  });
  const dispose = () => watch[Symbol.asyncDispose]();
  return Object.assign(played, { watch, seen, [Symbol.asyncDispose]: dispose });
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await delay(10);
}

test.serial("an idle host is looked at by its fingerprint alone", async (t) => {
  await using host = watched();
  await until(() => host.seen.looks >= 5);
  t.true(host.seen.looks >= 5);
  t.is(host.seen.wholeLooks, 1, "the first time");
  t.is(host.seen.linkLooks, 0);
  host.rules = "others";
  await until(() => host.seen.wholeLooks === 2);
  const looks = host.seen.looks;
  await until(() => host.seen.looks >= looks + 3);
  t.is(host.seen.wholeLooks, 2, "once for each change");
});

test.serial("what was healed and is undone again in the same way is seen again", async (t) => {
  await using host = watched();
  await until(() => host.seen.wholeLooks === 1 && host.seen.looks >= 3);
  host.finds = { found: [mtu], healed: true, error: undefined };
  host.rules = "changed";
  // The fingerprint stays that of the change: it was undone between two looks.
  await until(() => host.seen.wholeLooks >= 4);
  t.true(host.seen.wholeLooks >= 4);
  host.finds = well;
});

test.serial("events of our links bring one look at links, those of others none", async (t) => {
  await using host = watched();
  await ip("link add other0 type veth peer name other1");
  await until(() => host.seen.looks >= 3);
  t.is(host.seen.linkLooks, 0);
  await ip("link add hyper0 type bridge");
  await until(() => host.seen.linkLooks > 0);
  t.true(host.seen.linkLooks > 0);
  await ip("link del hyper0");
  await ip("link del other0");
});

test.serial(
  "rules are looked at with a bridge that another program took, not a look later",
  async (t) => {
    await using host = watched(neverMs);
    const published = { podId: "a", podName: "a", tap: "tap0", hasRules: true };
    host.ports = [published as unknown as RunningPort];
    await ip("link add hyper0 type bridge");
    await until(() => host.seen.linkLooks >= 2);
    t.like(host.seen, { linkLooks: 2, wholeLooks: 0 }, "network and port, which are as planned");
    host.finds = { found: [mtu], healed: true, error: undefined };
    await ip("link del hyper0");
    await until(() => host.seen.ruleLooks >= 1);
    t.like(
      host.seen,
      { linkLooks: 4, wholeLooks: 1, ruleLooks: 1 },
      "the network and its port as ever, and both with their rules",
    );
    host.finds = well;
  },
);

test.serial("the port of a pod that begins to run is looked at once, unasked", async (t) => {
  await using host = watched();
  await until(() => host.seen.looks >= 1);
  t.is(host.seen.linkLooks, 0);
  host.ports = [{ podId: "a", podName: "a", tap: "tap0" } as unknown as RunningPort];
  const { looks } = host.seen;
  await until(() => host.seen.looks >= looks + 4);
  t.is(host.seen.linkLooks, 1);
});

test.serial("what cannot be healed is tried at every look, and reported once", async (t) => {
  await using host = watched();
  const error = new PodnetError("BRIDGE_CONFLICT", "Link exists and cannot be used");
  host.finds = { found: [mtu], healed: false, error };
  await until(() => host.seen.wholeLooks >= 4);
  t.true(host.seen.wholeLooks >= 4);
  t.is(host.seen.reported.length, 1);
  t.regex(host.seen.reported[0] ?? "", /not healed: Link exists/);
  host.finds = well;
});

test.serial("nothing is looked at while it rests, and all afterwards", async (t) => {
  await using host = watched();
  await until(() => host.seen.looks >= 2);
  const goOn = await host.watch.rest();
  const { looks, wholeLooks } = host.seen;
  await delay(4 * oftenMs);
  t.is(host.seen.looks, looks);
  goOn();
  goOn();
  await until(() => host.seen.wholeLooks > wholeLooks);
  t.is(host.seen.wholeLooks, wholeLooks + 1);
});
