/**
 * What an overlay costs on hosts that are namespaces on one link, with a real etcd and podnetd as
 * it runs: from the request to join to the first ping of another host's container, from a lease's
 * put to its route, thousands of peers, the return of an etcd, how long what others take stays
 * away, and TCP through its links alongside the same links made by hand. What happens in the kernel
 * is reported by `ip monitor`.
 *   scripts/bench overlay [ROUNDS]
 */
import { readFileSync } from "node:fs";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { hostGwOverlay } from "../../test/lab/hosts.ts";
import type { OverlayLabHost } from "../../test/lab/overlay-host.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { type EtcdReturn, etcdReturn } from "./overlay/etcd-return.ts";
import { healingRows } from "./overlay/healing.ts";
import { ratioToHand } from "./overlay/links.ts";
import { run as runUdp } from "./overlay-udp.ts";
import { RouteWatch } from "./overlay/routes.ts";
import { type StartTimes, startTimes } from "./overlay/start-times.ts";
import { openSite, roomyOverlay, type Site, foreignOf, foreignSubnet } from "./overlay/site.ts";

/** Options of scripts/setup: Debian's etcd. */
export const setup = "--etcd";
export const description = "Joining an overlay, its peers, its etcd's return; TCP through it";

const overlay = { overlay: "flannel" };
/** Keys written in one transaction of etcd's. */
const atOnce = 128;

const median = (samples: readonly number[]): number => summarise(samples).median;

const rssMib = ({ podnetd }: OverlayLabHost): number => {
  const status = readFileSync(`/proc/${podnetd.process.pid}/status`, "utf8");
  return Number(/VmRSS:\s*([0-9]+) kB/.exec(status)?.[1]) / 1024;
};

/**
 * Milliseconds from the daemon's request to join until a ping to another host's container is
 * answered.
 */
async function joinTimes({ first, second }: Site, podnet: Podnet, rounds: number) {
  const far = await second.container();
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    await podnet.overlays.leave(overlay);
    if (await first.machine.reaches(far.address)) throw new Error("It is reached all the same");
    const begin = performance.now();
    await podnet.overlays.join(overlay);
    const ping = ["ping", "-n", "-c", "1", "-W", "0.05", far.address] as const;
    while (!(await first.machine.run(...ping).then(Boolean, () => false)))
      if (performance.now() - begin > 30_000) throw new Error(`Not joined: ${first.log()}`);
    times.push(performance.now() - begin);
  }
  return times;
}

/** Milliseconds from the put of another host's lease until its route is there. */
async function leaseTimes({ lab, store }: Site, watch: RouteWatch, from: number, rounds: number) {
  const times: number[] = [];
  for (let n = from; n < from + rounds; n++) {
    const seen = watch.all([foreignSubnet(n)]);
    const begin = performance.now();
    await store.put(...foreignOf(lab.prefix, n));
    times.push((await seen) - begin);
  }
  return times;
}

/**
 * Milliseconds from the request to join an overlay of so many until the last route is there.
 */
async function peersTimes(
  { lab, store }: Site,
  podnet: Podnet,
  watch: RouteWatch,
  count: number,
  rounds: number,
): Promise<number[]> {
  const numbers = Array.from({ length: count }, (_, n) => n);
  for (let start = 0; start < count; start += atOnce) {
    const puts = numbers.slice(start, start + atOnce).map((n) => {
      const [key, value] = foreignOf(lab.prefix, n);
      return { kind: "put", key, value } as const;
    });
    await store.txn({ do: puts, when: [], otherwise: [] });
  }
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    await podnet.overlays.leave(overlay);
    const seen = watch.all(numbers.map(foreignSubnet));
    const begin = performance.now();
    await podnet.overlays.join(overlay);
    times.push((await seen) - begin);
  }
  return times;
}

/**
 * Milliseconds from etcd's port being open again to the route of a lease put right then; prints how
 * much of that etcd itself took.
 */
async function returnTimes(site: Site, watch: RouteWatch, from: number, rounds: number) {
  const returns: EtcdReturn[] = [];
  for (let n = from; n < from + rounds; n++) returns.push(await etcdReturn(site, watch, n));
  row("etcd's port open → it has taken a put, ms", median(returns.map(({ takenMs }) => takenMs)));
  return returns.map(({ routeMs }) => routeMs);
}

const figureOf = (line: string, key: string): number =>
  Number(new RegExp(` ${key}=([0-9.]+)`).exec(line)?.[1]);

/** Measures, prints the table and returns the last line. */
export async function run(rounds: number): Promise<string> {
  const figures: Record<string, number> = {};
  const note = (title: string, key: string, value: number): void => {
    row(title, value);
    figures[key] = value;
  };
  {
    await using site = await openSite(roomyOverlay);
    const { first, second } = site;
    const begin = performance.now();
    await first.start();
    await first.joined();
    const startMs = performance.now() - begin;
    await second.start();
    await second.joined();
    using podnet = connectPodnet({ socket: first.podnetd.socket });
    using watch = new RouteWatch(first.machine);
    note(
      "request to join → first remote ping, ms",
      "join_ms",
      median(await joinTimes(site, podnet, rounds)),
    );
    note("podnetd started → subnet.env, ms", "start_ms", startMs);
    const noteStarts = async (count: number): Promise<void> => {
      const starts: StartTimes[] = [];
      for (let round = 0; round < rounds; round++)
        starts.push(await startTimes(site, watch, count));
      const of = (key: keyof StartTimes): number => median(starts.map((one) => one[key]));
      note(`podnetd's process → ${count} routes, ms`, `start${count}_ms`, of("routesMs"));
      row("  subnet.env, ms", of("subnetEnvMs"));
      row("  time of processors, ms", of("cpuMs"));
    };
    const leases = await leaseTimes(site, watch, 5000, 50);
    note("lease put → its route, p50 of 50, ms", "lease_ms", median(leases));
    row("  worst", Math.max(...leases));
    row("podnetd before thousands come, RSS MiB", rssMib(first));
    for (const count of [1000, 4000]) {
      using caller = connectPodnet({ socket: first.podnetd.socket });
      const times = await peersTimes(site, caller, watch, count, rounds);
      note(`request to join → ${count} peers, ms`, `peers${count}_ms`, median(times));
      await noteStarts(count);
    }
    note("podnetd with them, RSS MiB", "rss_mib", rssMib(first));
    note(
      "etcd's port open → route of a lease put right then, ms",
      "etcd_back_ms",
      median(await returnTimes(site, watch, 6000, rounds)),
    );
  }
  await healingRows();
  note(
    "host-gw, share of routes by hand",
    "hostgw_ratio",
    await ratioToHand("host-gw", hostGwOverlay, rounds),
  );
  note(
    "vxlan, share of a device by hand",
    "vxlan_ratio",
    await ratioToHand("vxlan", roomyOverlay, rounds),
  );
  const udp = await runUdp(rounds, 2);
  note("udp, Gbit/s", "udp_gbps", figureOf(udp, "gbps"));
  note("udp, of flannel's method in C", "udp_vs_c", figureOf(udp, "vs_c"));
  return lastLine("overlay", figures);
}

if (import.meta.main) console.log(await run(Number(process.argv[2] ?? 3)));
