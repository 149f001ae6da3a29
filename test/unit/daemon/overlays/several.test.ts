import test from "ava";
import { conflictWith } from "../../../../daemon/overlays/lease/conflicts.ts";
import { followOverlayNames, overlayOf } from "../../../../daemon/overlays/discover.ts";
import { parseConfig } from "../../../../overlay/flannel/config.ts";
import { parsePrefix } from "../../../../overlay/flannel/prefix.ts";
import type { StoredKey, StoreUpdate } from "../../../../overlay/store.ts";

const prefix = parsePrefix("/coreos.com/network");

test("an overlay is found by its configuration's key, and by no other", (t) => {
  t.is(overlayOf("/coreos.com/network/red/config", prefix), "red" as never);
  for (const key of [
    "/coreos.com/network/config",
    "/coreos.com/network/red/config/config",
    "/coreos.com/network/red/subnets/10.0.0.0-24",
    "/coreos.com/network/subnets/config",
    "/coreos.com/networks/red/config",
    "/coreos.com/network/Red One/config",
    "/coreos.com/network//config",
  ])
    t.is(overlayOf(key, prefix), undefined, key);
});

const stored = (key: string): StoredKey => ({
  key,
  value: "",
  grant: 0n,
  createRevision: 1n,
  modRevision: 1n,
});

test("names come and go with what is written; leases alongside them change nothing", async (t) => {
  const config = (name: string): string => `${prefix}/${name}/config`;
  const updates: StoreUpdate[] = [
    { kind: "snapshot", cluster: 1n, revision: 1n, keys: [stored(config("red"))] },
    {
      kind: "changes",
      revision: 2n,
      events: [{ kind: "put", at: stored(`${prefix}/red/subnets/10.0.1.0-24`) }],
    },
    { kind: "changes", revision: 3n, events: [{ kind: "put", at: stored(config("blue")) }] },
    { kind: "stale", error: "away" },
    { kind: "current" },
    {
      kind: "changes",
      revision: 4n,
      events: [{ kind: "delete", key: config("red"), modRevision: 4n }],
    },
    // (Another etcd, or one that was compacted: all there is.)
    { kind: "snapshot", cluster: 2n, revision: 1n, keys: [] },
  ];
  const reported: string[] = [];
  await followOverlayNames(
    {
      async *follow() {
        yield* updates;
      },
    },
    prefix,
    new AbortController().signal,
    (names) => reported.push([...names].toSorted().join()),
    (reasons) => reasons.length > 0 && reported.push(`not heard: ${reasons.join()}`),
  );
  t.deepEqual(reported, ["red", "blue,red", "not heard: away", "blue", ""]);
});

const config = (network: string, vni: number) =>
  parseConfig(JSON.stringify({ Network: network, Backend: { Type: "vxlan", VNI: vni } }));

test("of two overlays with addresses or a VNI in common the later is refused, until the other is no more", (t) => {
  const claims = new Map();
  t.is(conflictWith(config("10.1.0.0/16", 1), claims, "red"), undefined);
  t.is(conflictWith(config("10.2.0.0/16", 2), claims, "blue"), undefined);
  const addresses = conflictWith(config("10.1.128.0/17", 3), claims, "green");
  t.is(addresses?.code, "OVERLAY_CONFLICT");
  t.regex(addresses?.message ?? "", /"red".*10\.1\.0\.0\/16/);
  t.regex(
    conflictWith(config("10.3.0.0/16", 2), claims, "green")?.message ?? "",
    /"blue".*VXLAN 2/,
  );
  // It may change itself, and take what has become free.
  t.is(conflictWith(config("10.1.0.0/17", 1), claims, "red"), undefined);
  t.is(conflictWith(config("10.1.128.0/17", 3), claims, "green"), undefined);
  claims.delete("blue");
  t.is(conflictWith(config("10.2.0.0/16", 2), claims, "red"), undefined);
});
