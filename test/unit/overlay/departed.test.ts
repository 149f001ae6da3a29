import { mock } from "node:test";
import test from "ava";
import type { Ipv4 } from "../../../core/address.ts";
import { DepartedHosts } from "../../../daemon/overlays/departed-hosts.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import { grantOf, type OwnerId } from "../../../overlay/owner.ts";
import { hostIdOf, hostKey, recordsPrefix } from "../../../overlay/pods/keys.ts";
import { HostPresence } from "../../../overlay/pods/presence.ts";
import { Registry } from "../../../overlay/registry.ts";

const [mine, theirs] = ["192.0.2.1" as Ipv4, "192.0.2.2" as Ipv4];
const [first, second] = [8 as OwnerId, 9 as OwnerId];

function registryOf(): Registry {
  const registry = new Registry();
  const keys = [
    [mine, first],
    [theirs, second],
  ].map(([ip, owner], i) => ({
    key: `/net/subnets/10.77.${i + 1}.0-24`,
    value: JSON.stringify({ PublicIP: ip }),
    grant: grantOf(owner as OwnerId, 0.1),
    createRevision: 1n,
    modRevision: 1n,
  }));
  registry.apply({ kind: "snapshot", cluster: 1n, revision: 1n, keys });
  return registry;
}

test.serial(
  "a host without a record at two looks is gone, if its lease names this host's address",
  (t) => {
    mock.timers.enable({ apis: ["setInterval"] });
    t.teardown(() => mock.timers.reset());
    const reported: OwnerId[][] = [];
    using departed = new DepartedHosts({
      leases: registryOf(),
      addresses: () => [mine],
      onDeparted: (owners) => reported.push([...owners]),
      everyMs: 5000,
    });
    const look = (): void => mock.timers.tick(5000);
    look();
    look();
    look();
    t.deepEqual(reported, [], "it is not known who has a record");
    departed.present(new Set([first]));
    look();
    look();
    t.deepEqual(reported, [], "it has one");
    departed.present(new Set());
    look();
    t.deepEqual(reported, [], "it may be about to write one");
    look();
    t.deepEqual(reported, [[first]]);
    // It is back, and etcd may go away.
    departed.present(new Set([first]));
    t.deepEqual(reported, [[first], []]);
    departed.present(new Set());
    look();
    look();
    departed.present(undefined);
    t.deepEqual(reported, [[first], [], [first], []]);
  },
);

test("a host is there as long as its record is, readable or not", (t) => {
  const prefix = recordsPrefix(parsePrefix("/coreos.com/network"));
  const key = (owner: OwnerId, name: string): string => hostKey(prefix, hostIdOf(owner, name));
  const presence = new HostPresence(prefix);
  presence.replace([key(first, "a"), `${prefix}/pods/x`, "/elsewhere"]);
  t.deepEqual([...presence.owners], [first]);
  t.false(presence.put(key(first, "a")));
  t.true(presence.put(key(second, "b.c")));
  t.deepEqual([...presence.owners], [first, second]);
  t.true(presence.delete(key(first, "a")));
  t.false(presence.delete(key(first, "a")));
  t.deepEqual([...presence.owners], [second]);
});
