import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { DriftWatch } from "../../../../daemon/drift/drift.ts";
import type { RunningPort } from "../../../../daemon/drift/parts.ts";
import { RepairBackoff } from "../../../../daemon/reconcile/repair-backoff.ts";
import { openLog } from "../../../../linux/log.ts";
import type { watchRtnetlink } from "../../../../linux/netlink/rtnetlink-events.ts";
import type { NetworkFragment } from "../../../../network/model/desired.ts";
import { noContainers } from "../../../lab/no-containers.ts";
import { noPods } from "../../../lab/no-pods.ts";
import { noServices } from "../../../lab/no-services.ts";

const mtu = [{ subject: "link hyper0 mtu", found: "1400", wanted: "1500" }];
const rules = [{ subject: "iptables-nft nat", found: "absent", wanted: "-A" }];

test("what is changed now and then is repaired at once, for ever", (t) => {
  const timeout = new RepairBackoff();
  for (let now = 0; now < 3_600_000; now += 15_000) {
    t.true(timeout.allows(mtu, now));
    t.is(timeout.repaired(mtu, now), 0);
  }
});

test("what keeps being undone is repaired less and less often, but it is", (t) => {
  const timeout = new RepairBackoff();
  let repairs = 0;
  const pauses: number[] = [];
  for (let now = 0; now < 3_600_000; now += 100) {
    if (!timeout.allows(mtu, now)) continue;
    repairs++;
    const pause = timeout.repaired(mtu, now);
    if (pause > 0) pauses.push(pause / 1000);
  }
  t.deepEqual(pauses.slice(0, 7), [10, 20, 40, 80, 160, 300, 300]);
  t.true(repairs < 5 + 5 + 3600 / 300 + 1, `${repairs} repairs in an hour`);
});

test("something else is repaired meanwhile, and so is all when it has been calm", (t) => {
  const timeout = new RepairBackoff();
  for (let now = 0; now < 600; now += 100) timeout.repaired(mtu, now);
  t.false(timeout.allows(mtu, 1000));
  t.true(timeout.allows([...mtu, ...rules], 1000));
  t.is(timeout.repaired(rules, 1000), 0);
  t.true(timeout.allows(mtu, 11_000));
  t.is(timeout.repaired(mtu, 200_000), 0);
});

test("what a look that breaks off has not come to is looked at next time", async (t) => {
  const seen: string[] = [];
  let broken = false;
  let hear: Parameters<typeof watchRtnetlink>[1] = () => {};
  const fragment = { key: "default", bridge: "hyper0" } as unknown as NetworkFragment;
  const port = { podId: "a", podName: "a", tap: "tap0" } as unknown as RunningPort;
  await using _watch = DriftWatch.open({
    services: noServices,
    attachments: { ready: noContainers },
    networks: {
      fragments: () => [fragment],
      stableFragment: () => fragment,
      answerNames: async () => {},
    },
    pods: { ...noPods, runningPorts: () => [port], portNow: () => ({ key: "a" }) as never },
    everyMs: 20,
    clock: { now: () => 0, monotonic: () => 0 },
    log: openLog({ component: "test", level: "silent" }),
    metrics: {} as never,
    journal: {} as never,
    records: {} as never,
    watch: (_options, onEvent) => {
      hear = onEvent;
      return { [Symbol.dispose]: () => {} } as ReturnType<typeof watchRtnetlink>;
    },
    network: {
      observe: {
        fingerprint: async () => {
          seen.push(broken ? "broken off" : "begun");
          if (broken) throw new PodnetError("DEADLINE_EXCEEDED", "The host is too slow");
          return "as it was";
        },
      } as never,
      inspectRules: async () => new Map(),
      inspect: async (now) => {
        seen.push(String(now()?.key));
        return { found: [], healed: true, error: undefined };
      },
    },
  });
  const until = async (wanted: string): Promise<void> => {
    for (let i = 0; i < 1000 && !seen.includes(wanted); i++) await delay(5);
    t.true(seen.includes(wanted), wanted);
  };
  await until("a");
  broken = true;
  await until("broken off");
  seen.length = 0;
  hear({ kind: "link", link: { name: "tap0" } } as Parameters<typeof hear>[0]);
  await until("broken off");
  broken = false;
  seen.length = 0;
  await until("a");
  t.true(seen.includes("default"));
});
