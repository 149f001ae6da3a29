/**
 * What thousands of hosts cost each of them and etcd, on paper and in code: what a lease costs in
 * memory and to take in, and hosts that come all at once, or come back to an etcd that has lost all
 * leases, as state machines (`overlay/lease.ts`, as podnetd runs it) on a store in virtual time.
 *   scripts/bench overlay-scale [HOSTS...]
 */
import type { Ipv4, Mac } from "../../core/address.ts";
import { Peers } from "../../overlay/peers.ts";
import { Registry } from "../../overlay/registry.ts";
import type { StoredKey } from "../../overlay/store.ts";
import { lastLine, row } from "../measure.ts";
import { joinAtOnce } from "./overlay/join-at-once.ts";
import { returnAtOnce } from "./overlay/return-at-once.ts";

export const description = "Thousands of hosts in an overlay: memory, updates, all joining at once";

const timed = (body: () => void): number => {
  const start = performance.now();
  body();
  return performance.now() - start;
};

const heapMib = (): number => {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed / (1 << 20);
};

const leaseOf = (n: number, revision: bigint): StoredKey => ({
  key: `/net/subnets/10.${n >> 8}.${n & 255}.0-24`,
  value: JSON.stringify({
    PublicIP: `172.16.${n >> 8}.${n & 255}` as Ipv4,
    PublicIPv6: null,
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC: "02:00:00:00:00:01" as Mac },
  }),
  grant: BigInt(n + 1),
  createRevision: revision,
  modRevision: revision,
});

/** What knowing so many leases takes, and a renewal of one of them. */
function know(count: number): {
  readonly mib: number;
  readonly listMs: number;
  readonly deltaUs: number;
} {
  const before = heapMib();
  const registry = new Registry();
  const peers = new Peers("vxlan");
  const listMs = timed(() => {
    const keys = Array.from({ length: count }, (_, n) => leaseOf(n, 2n));
    peers.apply(registry.apply({ kind: "snapshot", cluster: 1n, revision: 2n, keys }));
  });
  const mib = heapMib() - before;
  const renewals = 5000;
  const deltaMs = timed(() => {
    for (let i = 0; i < renewals; i++) {
      const revision = BigInt(i + 3);
      const at = leaseOf(i % count, revision);
      const changes = registry.apply({ kind: "changes", revision, events: [{ kind: "put", at }] });
      peers.apply(changes);
    }
  });
  return { mib, listMs, deltaUs: (deltaMs / renewals) * 1000 };
}

/** Prints the tables and returns the last line. */
export function run(counts: readonly number[]): string {
  const figures: Record<string, number> = {};
  row("", "MiB", "list ms", "renewal µs");
  for (const count of [5000, 50_000]) {
    const { mib, listMs, deltaUs } = know(count);
    row(`${count} leases known`, mib, listMs, deltaUs);
    figures[`mib${count}`] = mib;
    figures[`list${count}_ms`] = listMs;
    figures[`renewal${count}_us`] = deltaUs;
  }
  row("", "calls", "lost races", "seconds");
  for (const count of counts) {
    const { calls, refused, seconds } = joinAtOnce(count);
    row(`${count} new hosts at once`, calls, refused, seconds);
    figures[`calls${count}`] = calls;
    figures[`refused${count}`] = refused;
    figures[`joined${count}_s`] = seconds;
  }
  for (const count of [5000, 50_000]) {
    const { calls, refused, seconds } = returnAtOnce(count);
    row(`${count} hosts back after their leases' end`, calls, refused, seconds);
    figures[`back${count}_s`] = seconds;
  }
  return lastLine("overlay-scale", figures);
}

if (import.meta.main) {
  const counts = process.argv.slice(2).map(Number);
  console.log(run(counts.length === 0 ? [300, 1000, 2000] : counts));
}
