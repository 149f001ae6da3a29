import type { Cidr } from "../../../core/address.ts";
import { beginning, type LeaseEvent, type LeaseState } from "../../../overlay/lease-state.ts";
import { step } from "../../../overlay/lease.ts";
import { type AtOnce, config, hostOf, settings } from "./join-at-once.ts";
import { subnetOf, VirtualStore } from "./virtual-store.ts";

/**
 * So many hosts have their subnets; then etcd is away until all leases have run out, and each hears
 * it again within a second.
 */
export function returnAtOnce(count: number): AtOnce {
  const store = new VirtualStore();
  const hosts = Array.from({ length: count }, (_, n) => hostWith(store, n));
  for (const report of hosts) {
    report({ kind: "config", text: config, revision: 1n });
    report({ kind: "leases" });
  }
  store.run(() => store.known.size === count && store.idle);
  const back = store.now + settings.ttlSeconds * 1000;
  const { revision = 0n } = store.known;
  store.after(back - store.now, () => {
    store.known.apply({ kind: "snapshot", cluster: 1n, revision, keys: [] });
  });
  const before = store.calls;
  for (const report of hosts) {
    report({ kind: "stale" });
    store.after(back + store.random.below(1000) - store.now, () => report({ kind: "leases" }));
  }
  store.run(() => store.now > back && store.known.size === count && store.idle);
  const { calls, refused } = store;
  return { calls: calls - before, refused, seconds: (store.now - back) / 1000 };
}

/** A host that had its subnet before, and the source of its events. */
function hostWith(store: VirtualStore, n: number): (event: LeaseEvent) => void {
  const previous = { v4: subnetOf(n + 1).replace("-", "/") as Cidr, v6: undefined };
  let state: LeaseState = beginning(settings, hostOf(n), previous);
  return function report(event) {
    const moment = { at: store.now, draw: store.random.next() };
    const next = step(state, event, store.leasesByKey, moment);
    state = next.state;
    for (const command of next.commands) store.call(command, report);
  };
}
