import test from "ava";
import { Metrics } from "../../../../daemon/main/metrics.ts";
import type { PodUsage } from "../../../../daemon/main/pod-metrics.ts";

const counters = {
  rxPackets: 3n,
  txPackets: 5n,
  rxBytes: 300n,
  txBytes: 500n,
  rxErrors: 0n,
  txErrors: 0n,
  rxDropped: 1n,
  txDropped: 2n,
};
const web = {
  pod: "web",
  machine: {
    cpuMs: 1500,
    memoryBytes: 4096,
    memoryLimitBytes: 8192,
    disks: [
      { path: "/a", readBytes: 10, readRequests: 1, writeBytes: 20, writeRequests: 2 },
      { path: "/b", readBytes: 0, readRequests: 0, writeBytes: 0, writeRequests: 0 },
    ],
  },
  interfaces: [
    {
      name: "eth0",
      counters,
      refused: [{ kind: "host", packets: 4 }],
      dropped: [{ kind: "arp-ip", packets: 5 }],
    },
  ],
  denials: [{ direction: "egress", policy: "p", rule: "lan", unit: "packets", count: 6 }],
} as unknown as PodUsage;
const bare = {
  pod: "bare",
  machine: { cpuMs: 0, memoryBytes: 1 },
  interfaces: [],
  denials: [],
} as unknown as PodUsage;
const ending = {
  pod: "ending",
  machine: undefined,
  interfaces: [],
  denials: [],
} as unknown as PodUsage;

/** A node with these pods, and how often they were looked at. */
function node(...pods: PodUsage[]) {
  const metrics = new Metrics({ pods: () => [], pools: () => [] });
  const seen = { looks: 0, pods };
  metrics.followPods(async () => {
    seen.looks++;
    return seen.pods;
  });
  const lines = async (): Promise<string[]> =>
    (await metrics.render()).text.split("\n").filter((line) => line.startsWith("podnet_pod_"));
  return { seen, lines, metrics };
}

test("each pod's use, in base units, with its interfaces and disks", async (t) => {
  const { lines } = node(web, bare, ending);
  t.deepEqual(await lines(), [
    'podnet_pod_cpu_seconds_total{pod="web"} 1.5',
    'podnet_pod_cpu_seconds_total{pod="bare"} 0',
    'podnet_pod_memory_bytes{pod="web"} 4096',
    'podnet_pod_memory_bytes{pod="bare"} 1',
    'podnet_pod_memory_limit_bytes{pod="web"} 8192',
    'podnet_pod_network_bytes_total{pod="web",interface="eth0",direction="rx"} 500',
    'podnet_pod_network_bytes_total{pod="web",interface="eth0",direction="tx"} 300',
    'podnet_pod_network_packets_total{pod="web",interface="eth0",direction="rx"} 5',
    'podnet_pod_network_packets_total{pod="web",interface="eth0",direction="tx"} 3',
    'podnet_pod_network_dropped_packets_total{pod="web",interface="eth0",direction="rx"} 2',
    'podnet_pod_network_dropped_packets_total{pod="web",interface="eth0",direction="tx"} 1',
    'podnet_pod_refused_packets_total{pod="web",interface="eth0",kind="host"} 4',
    'podnet_pod_guard_dropped_packets_total{pod="web",interface="eth0",kind="arp-ip"} 5',
    'podnet_pod_policy_denied_total{pod="web",direction="egress",policy="p",rule="lan",unit="packets"} 6',
    'podnet_pod_disk_bytes_total{pod="web",disk="0",direction="read"} 10',
    'podnet_pod_disk_bytes_total{pod="web",disk="0",direction="write"} 20',
    'podnet_pod_disk_bytes_total{pod="web",disk="1",direction="read"} 0',
    'podnet_pod_disk_bytes_total{pod="web",disk="1",direction="write"} 0',
    'podnet_pod_disk_requests_total{pod="web",disk="0",direction="read"} 1',
    'podnet_pod_disk_requests_total{pod="web",disk="0",direction="write"} 2',
    'podnet_pod_disk_requests_total{pod="web",disk="1",direction="read"} 0',
    'podnet_pod_disk_requests_total{pod="web",disk="1",direction="write"} 0',
  ]);
});

test("pods are looked at once for a scrape, when it comes, and those that are no more are not shown", async (t) => {
  const { seen, lines, metrics } = node(web, bare);
  t.is(seen.looks, 0);
  await lines();
  t.is(seen.looks, 1);
  seen.pods = [bare];
  const [one, other] = await Promise.all([lines(), lines()]);
  t.is(seen.looks, 2, "two scrapes at a time have part in one look");
  t.deepEqual(one, other);
  t.deepEqual(one, [
    'podnet_pod_cpu_seconds_total{pod="bare"} 0',
    'podnet_pod_memory_bytes{pod="bare"} 1',
  ]);
  seen.pods = [web];
  t.false((await lines()).some((line) => line.includes("bare")));
  const { text } = await metrics.render();
  t.regex(text, /# TYPE podnet_pod_cpu_seconds_total counter/);
  t.regex(text, /# TYPE podnet_pod_memory_bytes gauge/);
});
