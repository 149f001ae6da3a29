import test from "ava";
import type { Ipv4 } from "../../../core/address.ts";
import { leaseKey } from "../../../overlay/flannel/key.ts";
import { conflictText } from "../../../daemon/overlays/trouble-text.ts";
import { conflictsIn, Peers } from "../../../overlay/peers.ts";
import { Registry } from "../../../overlay/registry.ts";
import type { StoredKey } from "../../../overlay/store.ts";
import { four, mac, prefix, registryOf, store, stored } from "./fixtures/leases.ts";

test("of a peer that has changed the changes are reported; one that left is reported with all it had", (t) => {
  const registry = new Registry();
  const peers = new Peers("vxlan");
  const value = (PublicIP: string, VtepMAC: string) => ({
    PublicIP,
    PublicIPv6: null,
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC },
  });
  const changed = (at: StoredKey) =>
    peers.apply(
      registry.apply({ kind: "changes", revision: at.modRevision, events: [{ kind: "put", at }] }),
    );
  registry.apply({ kind: "snapshot", cluster: 1n, revision: store.revision, keys: [] });
  t.is(changed(stored("10.77.1.0-24", value("192.168.77.9", mac)))[0]?.kind, "added");
  t.deepEqual(changed(stored("10.77.1.0-24", value("192.168.77.9", mac))), []);
  const moved = changed(stored("10.77.1.0-24", value("192.168.77.10", "9e:02:54:f5:a5:7a")));
  t.deepEqual(
    moved.map((change) => change.kind === "changed" && change.attributes),
    [["publicIp", "v4"]],
  );
  // After a compaction there is a snapshot; what changed meanwhile is found by comparing, attribute
  // by attribute.
  const snapshot = [
    stored("10.77.1.0-24", value("192.168.77.10", "9e:02:54:f5:a5:7b")),
    stored("10.77.2.0-24", value("192.168.77.11", mac)),
    stored("10.77.3.0-24", { PublicIP: "192.168.77.12", BackendType: "host-gw" }),
    stored("10.77.4.0-24", { PublicIP: "192.168.77.13", BackendType: "gue" }),
    stored("10.77.5.0-24", { PublicIP: "0.0.0.0", BackendType: "vxlan" }),
    stored("junk", "x"),
    stored("10.77.6.0-24", "x"),
  ];
  const reported = peers.apply(
    registry.apply({ kind: "snapshot", cluster: 1n, revision: store.revision, keys: snapshot }),
  );
  t.deepEqual(
    reported.map((change) => [change.kind, change.peer.subnets.v4]),
    [
      ["changed", "10.77.1.0/24"],
      ["added", "10.77.2.0/24"],
    ] as never,
  );
  t.deepEqual(peers.passedOver, {
    unreadable: 2,
    "unknown-backend": 1,
    "other-backend": 1,
    "no-address": 1,
  });
  const own = peers.own("/net/subnets/10.77.2.0-24", (key) => registry.get(key));
  t.deepEqual(
    own.map(({ kind }) => kind),
    ["removed"],
  );
  const gone = peers.apply(
    registry.apply({ kind: "snapshot", cluster: 1n, revision: store.revision, keys: [] }),
  );
  t.deepEqual(
    gone.map((change) => [change.kind, change.peer.publicIp]),
    [["removed", "192.168.77.10"]] as never,
  );
  t.is(peers.size, 0);
});

test("two hosts with one address or one subnet are reported", (t) => {
  const at = (PublicIP: string) => ({ PublicIP });
  const registry = registryOf(
    stored("10.77.1.0-24", at("192.168.77.1")),
    stored("10.77.2.0-24", at("192.168.77.1")),
    stored("10.77.3.0-24", at("192.168.77.3")),
    stored("10.77.3.0-24&fd00:77:0:1::-64", at("192.168.77.4")),
    stored("10.77.4.0-24", at("192.168.77.5")),
    stored("0.0.0.0-0&fd00:77:0:9::-64", at("0.0.0.0")),
    stored("0.0.0.0-0&fd00:77:0:a::-64", at("0.0.0.0")),
  );
  t.deepEqual(conflictsIn(registry), [
    {
      kind: "address",
      ip: "192.168.77.1" as Ipv4,
      keys: ["/net/subnets/10.77.1.0-24", "/net/subnets/10.77.2.0-24"],
    },
    {
      kind: "subnet",
      subnets: ["10.77.3.0-24", "10.77.3.0-24&fd00:77:0:1::-64"],
      keys: ["/net/subnets/10.77.3.0-24", "/net/subnets/10.77.3.0-24&fd00:77:0:1::-64"],
    },
  ]);
  t.deepEqual(conflictsIn(registry).map(conflictText), [
    "the leases /net/subnets/10.77.1.0-24 and /net/subnets/10.77.2.0-24 name the same address, 192.168.77.1",
    "the leases /net/subnets/10.77.3.0-24 and /net/subnets/10.77.3.0-24&fd00:77:0:1::-64 have addresses in common",
  ]);
});

test("a store made anew is believed, however low its revisions are", (t) => {
  const key = leaseKey(prefix, four("10.77.1.0/24"));
  const registry = registryOf(stored("10.77.1.0-24", { PublicIP: "192.168.77.1" }));
  const at = {
    key,
    value: '{"PublicIP":"192.168.77.2"}',
    grant: 5n,
    createRevision: 1n,
    modRevision: 1n,
  };
  registry.apply({ kind: "snapshot", cluster: 2n, revision: 1n, keys: [at] });
  t.is(registry.at("192.168.77.2").length, 1);
  t.is(registry.at("192.168.77.1").length, 0);
});
