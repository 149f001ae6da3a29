import { Counter, Gauge, type Metric } from "prom-client";
import type { Clock } from "../../core/clock.ts";
import type { IfName, PodName } from "../../core/names.ts";
import type { DiskUsage, VmUsage } from "../../hypervisor/driver.ts";
import type { CountedLink, LinkCounters } from "../../linux/rtnetlink/counters.ts";
import type { Drop } from "../../network/firewall/nftables/drops.ts";
import type { Refusal } from "../../network/firewall/nftables/refusals.ts";
import type { Denial } from "../policies/denials.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import { sampleMachines } from "../api/machine-stats.ts";

/** A pod's usage since its machine began. */
export interface PodUsage {
  readonly pod: PodName;
  /** Undefined when its machine has just ended. */
  readonly machine: VmUsage | undefined;
  /** As the host counts: what it sends, the pod receives. */
  readonly interfaces: readonly {
    readonly name: IfName;
    readonly counters: LinkCounters;
    /** What the host refused of it, by kind. */
    readonly refused: readonly Pick<Refusal, "kind" | "packets">[];
    /** What the guard dropped of what it sent, by kind. */
    readonly dropped: readonly Pick<Drop, "kind" | "packets">[];
  }[];
  /** What policies denied, by rule. */
  readonly denials: readonly Denial[];
}

/** What was stopped on the way of all pods. */
export interface Stopped {
  readonly refusals: readonly Refusal[];
  readonly drops: readonly Drop[];
  readonly denials: readonly Denial[];
}

/** The usage of all pods that have machines, with the counters of their links. */
export async function usageOfPods(
  pods: readonly LivePod[],
  links: ReadonlyMap<string, CountedLink>,
  clock: Clock,
  { refusals, drops, denials }: Stopped,
): Promise<readonly PodUsage[]> {
  const machines = await sampleMachines(pods, clock);
  const refusedOf = Map.groupBy(refusals, ({ link }) => link);
  const droppedOf = Map.groupBy(drops, ({ link }) => link);
  const deniedOf = Map.groupBy(denials, ({ holder }) => holder);
  return pods.map(({ plan }) => ({
    pod: plan.name,
    machine: machines.get(plan.podId)?.usage,
    interfaces: withNic(staying(plan.interfaces)).flatMap(({ guestName, nic }) => {
      const link = links.get(nic.tap);
      if (link === undefined) return [];
      const refused = refusedOf.get(nic.tap) ?? [];
      const dropped = droppedOf.get(nic.tap) ?? [];
      return [{ name: guestName, counters: link.counters, refused, dropped }];
    }),
    denials: deniedOf.get(plan.podId) ?? [],
  }));
}

/** One line of a metric: its labels alongside the pod's name, and its value. */
type Line = readonly [labels: Readonly<Record<string, string>>, value: number];

/**
 * The usage of each pod, in Prometheus' terms, with a line for each interface and disk; lines of
 * deleted pods disappear. `read` is called for each metric, and may give all metrics of one scrape
 * the same answer.
 */
export function podMetrics(read: () => Promise<readonly PodUsage[]>): readonly Metric[] {
  const metric = (
    kind: typeof Counter | typeof Gauge,
    name: string,
    help: string,
    labels: readonly string[],
    linesOf: (pod: PodUsage) => readonly Line[],
  ): Metric =>
    new kind({
      name: `podnet_pod_${name}`,
      help,
      labelNames: ["pod", ...labels],
      registers: [],
      async collect() {
        const pods = await read();
        this.reset();
        for (const each of pods)
          for (const [more, value] of linesOf(each)) this.inc({ pod: each.pod, ...more }, value);
      },
    });
  const machine =
    (of: (usage: VmUsage) => number | undefined) =>
    ({ machine: usage }: PodUsage): Line[] => {
      const value = usage === undefined ? undefined : of(usage);
      return value === undefined ? [] : [[{}, value]];
    };
  const network =
    (received: keyof LinkCounters, sent: keyof LinkCounters) =>
    ({ interfaces }: PodUsage): Line[] =>
      interfaces.flatMap(({ name, counters }): Line[] => [
        [{ interface: name, direction: "rx" }, Number(counters[received])],
        [{ interface: name, direction: "tx" }, Number(counters[sent])],
      ]);
  const disks =
    (read: (disk: DiskUsage) => number, written: (disk: DiskUsage) => number) =>
    ({ machine: usage }: PodUsage): Line[] =>
      (usage?.disks ?? []).flatMap((disk, i): Line[] => [
        [{ disk: String(i), direction: "read" }, read(disk)],
        [{ disk: String(i), direction: "write" }, written(disk)],
      ]);
  const byInterface = ["interface", "direction"] as const;
  const byDisk = ["disk", "direction"] as const;
  return [
    metric(
      Counter,
      "cpu_seconds_total",
      "Processor time of a pod's machine since it began",
      [],
      machine(({ cpuMs }) => cpuMs / 1000),
    ),
    metric(
      Gauge,
      "memory_bytes",
      "Memory that a pod's machine takes of the host",
      [],
      machine(({ memoryBytes }) => memoryBytes),
    ),
    metric(
      Gauge,
      "memory_limit_bytes",
      "Memory that it may take, where it is confined",
      [],
      machine(({ memoryLimitBytes }) => memoryLimitBytes),
    ),
    metric(
      Counter,
      "network_bytes_total",
      "Bytes that a pod received (rx) and sent (tx) by an interface since it was plugged",
      byInterface,
      network("txBytes", "rxBytes"),
    ),
    metric(
      Counter,
      "network_packets_total",
      "Packets that it received (rx) and sent (tx)",
      byInterface,
      network("txPackets", "rxPackets"),
    ),
    metric(
      Counter,
      "network_dropped_packets_total",
      "Packets that were dropped on the way to it (rx) and from it (tx)",
      byInterface,
      network("txDropped", "rxDropped"),
    ),
    metric(
      Counter,
      "refused_packets_total",
      "Packets that the host refused of it: to the host (host), and beyond its share of connections (connections)",
      ["interface", "kind"],
      ({ interfaces }) =>
        interfaces.flatMap(({ name, refused }) =>
          refused.map(({ kind, packets }): Line => [{ interface: name, kind }, packets]),
        ),
    ),
    metric(
      Counter,
      "guard_dropped_packets_total",
      "Frames that the guard dropped: not sent with the interface's own MAC and addresses, or of another kind",
      ["interface", "kind"],
      ({ interfaces }) =>
        interfaces.flatMap(({ name, dropped }) =>
          dropped.map(({ kind, packets }): Line => [{ interface: name, kind }, packets]),
        ),
    ),
    metric(
      Counter,
      "policy_denied_total",
      "What a rule of a policy denied: packets, connections whose name was read (connections), and questions for names (questions)",
      ["direction", "policy", "rule", "unit"],
      ({ denials }) =>
        denials.map(
          ({ direction, policy, rule, unit, count }): Line => [
            { direction, policy, rule, unit },
            count,
          ],
        ),
    ),
    metric(
      Counter,
      "disk_bytes_total",
      "Bytes that a pod's guest read from and wrote to a disk, by its place among the pod's disks",
      byDisk,
      disks(
        ({ readBytes }) => readBytes,
        ({ writeBytes }) => writeBytes,
      ),
    ),
    metric(
      Counter,
      "disk_requests_total",
      "Requests of its guest to read from and write to a disk",
      byDisk,
      disks(
        ({ readRequests }) => readRequests,
        ({ writeRequests }) => writeRequests,
      ),
    ),
  ];
}
