import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { systemClock } from "../../../core/clock.ts";
import { connectEtcd } from "../../../etcd/client.ts";
import { LeaseDriver } from "../../../overlay/drive-lease.ts";
import { EtcdStore } from "../../../overlay/etcd-store.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import { BrokenEtcd, breakages } from "../../peers/broken-etcd.ts";
import type { OwnerId } from "../../../overlay/owner.ts";

const config = JSON.stringify({ Network: "10.77.0.0/16", Backend: { Type: "host-gw" } });

for (const breakage of breakages)
  test(`an etcd that answers at once and ${breakage} is asked less and less`, async (t) => {
    await using etcd = await BrokenEtcd.open(breakage, config);
    using client = connectEtcd({ endpoints: [etcd.endpoint] });
    await using driver = new LeaseDriver({
      store: new EtcdStore(client),
      settings: {
        prefix: parsePrefix("/coreos.com/network"),
        ttlSeconds: 60,
        marginSeconds: 10,
        misfit: "drain",
      },
      host: {
        owner: 7 as OwnerId,
        publicIp: "192.0.2.1",
        publicIp6: undefined,
        attributes: { type: "alloc" },
      } as never,
      previous: undefined,
      clock: systemClock,
      random: Math.random,
      onState: () => {},
      onLeases: () => {},
      onUnread: () => {},
      drain: async () => {},
    });
    driver.start();
    await delay(2000);
    const first = etcd.asked;
    await delay(2000);
    const later = etcd.asked - first;
    t.log(`${first} calls in two seconds, then ${later}`);
    t.true(first > 3, "it is asked");
    t.true(later < 30, `${later} calls in two seconds`);
  });
