import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Place } from "../../core/guard.ts";
import type { NetworkName } from "../../core/names.ts";
import type { ResolverCounts } from "../dns/resolver.ts";
import type { Resolvers } from "../dns/resolvers.ts";
import { serviceMetrics } from "../services/service-metrics.ts";
import type { Services } from "../services/services.ts";
import { overlayMetrics } from "../overlays/overlay-metrics.ts";
import { type PodUsage, podMetrics } from "./pod-metrics.ts";
import { classText } from "../config/pool.ts";
import type { SubnetStats } from "../ipam/addresses.ts";
import type { Span } from "../events/span.ts";
import type { Totals } from "../traffic/totals.ts";
import type { FlowCounts } from "../published/flows.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import type { AnyAttachment } from "../containers/store.ts";
import type { MachinePool } from "../pods/pool/pool.ts";
import type { PodState } from "../pods/store/pod-row.ts";
import type { QueueName } from "../reconcile/queues.ts";

export interface MetricsSources {
  pods(): readonly { readonly state: PodState }[];
  pools(): readonly (SubnetStats & { readonly network: NetworkName })[];
}

/** The daemon's metrics, in Prometheus' terms. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #steps: Histogram<"step">;
  readonly #creates: Counter<"code">;
  readonly #refused: Counter<"reason">;
  readonly #guestDropped: Counter<"what">;
  readonly #overwritten: Counter;
  readonly #drifts: Counter<"kind" | "outcome">;
  readonly #alarms: Counter<"kind">;
  readonly #attachments: Histogram<"command" | "code">;

  constructor(sources: MetricsSources) {
    const registers = [this.#registry];
    this.#steps = new Histogram({
      name: "podnet_step_duration_seconds",
      help: "Duration of each step of bringing a pod up",
      labelNames: ["step"],
      buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
      registers,
    });
    this.#creates = new Counter({
      name: "podnet_creates_total",
      help: "Creates and starts by their outcome: OK or an error code",
      labelNames: ["code"],
      registers,
    });
    this.#drifts = new Counter({
      name: "podnet_drifts_total",
      help: "Outside changes of podnet's part of the host, by kind (network, port, overlay, attachment, join) and outcome (healed, failed)",
      labelNames: ["kind", "outcome"],
      registers,
    });
    this.#alarms = new Counter({
      name: "podnet_drift_alarms_total",
      help: "Times that podnet began to repair less often, because its repairs were undone",
      labelNames: ["kind"],
      registers,
    });
    this.#attachments = new Histogram({
      name: "podnet_cni_duration_seconds",
      help: "Duration of requests from container runtimes, by command and result: 0, or the number of the CNI error",
      labelNames: ["command", "code"],
      buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
      registers,
    });
    this.#refused = new Counter({
      name: "podnet_api_refused_total",
      help: "Requests and connections that the API refused or ended, by reason",
      labelNames: ["reason"],
      registers,
    });
    this.#guestDropped = new Counter({
      name: "podnet_guest_dropped_total",
      help: "Guest events that were dropped (rate limit), and times that a guest was slowed down or disconnected",
      labelNames: ["what"],
      registers,
    });
    this.#overwritten = new Counter({
      name: "podnet_console_overwritten_bytes_total",
      help: "Bytes of console output that newer output overwrote",
      registers,
    });
    this.#registry.registerMetric(podsGauge(sources));
    this.#registry.registerMetric(addressesGauge(sources));
  }

  /** Counts this process's memory, descriptors and event loop as well; once a process. */
  includeProcess(): void {
    collectDefaultMetrics({ register: this.#registry });
  }

  step(span: Span): void {
    this.#steps.observe({ step: span.step }, span.durationMs / 1000);
  }

  /** Counts the end of a create or start, `OK` or its error code. */
  created(code: string): void {
    this.#creates.inc({ code });
  }

  /** Counts what others changed, and whether they keep doing so. */
  drift(
    kind: "network" | "port" | "overlay" | "attachment" | "join",
    outcome: "healed" | "failed",
    alarm: boolean,
  ): void {
    this.#drifts.inc({ kind, outcome });
    if (alarm) this.#alarms.inc({ kind });
  }

  /** Counts a request of a container runtime, which took so long. */
  attachmentAsked(command: string, code: number, ms: number): void {
    this.#attachments.observe({ command, code: String(code) }, ms / 1000);
  }

  /** Shows how many containers are attached to each network, counted when it is asked for. */
  followAttachments(list: () => readonly AnyAttachment[]): void {
    const gauge = new Gauge({
      name: "podnet_attachments",
      help: "Attached containers by network and state",
      labelNames: ["network", "state"],
      registers: [],
      collect() {
        this.reset();
        for (const { network, state } of list()) this.inc({ network, state });
      },
    });
    this.#registry.registerMetric(gauge);
  }

  followServices(services: Pick<Services, "list" | "healthChanges">): void {
    for (const metric of serviceMetrics(services)) this.#registry.registerMetric(metric);
  }

  /** Counts what the API refused or cut. */
  refused(reason: string): void {
    this.#refused.inc({ reason });
  }

  /** Shows how many defects of podnet itself guards have met, by what they served. */
  followDefects(counts: () => ReadonlyMap<Place, number>): void {
    const counter = new Counter({
      name: "podnet_defects_total",
      help: "Unexpected errors while podnetd handled input from outside, by the kind of input: please report them",
      labelNames: ["place"],
      registers: [],
      collect() {
        this.reset();
        for (const [place, count] of counts()) this.inc({ place }, count);
      },
    });
    this.#registry.registerMetric(counter);
  }

  /** Shows how many spans the collector of OpenTelemetry did not get. */
  followSpans(dropped: () => number): void {
    const counter = new Counter({
      name: "podnet_spans_dropped_total",
      help: "Spans that tracing.endpoint did not get: it was away for too long, or refused them",
      registers: [],
      collect() {
        this.reset();
        this.inc(dropped());
      },
    });
    this.#registry.registerMetric(counter);
  }

  /** Shows how many keys of each work queue failed last, and wait for another try. */
  followQueues(degraded: () => ReadonlyMap<QueueName, number>): void {
    const gauge = new Gauge({
      name: "podnet_retrying",
      help: "What failed last and is tried again after its backoff, by work queue",
      labelNames: ["queue"],
      registers: [],
      collect() {
        for (const [queue, count] of degraded()) this.set({ queue }, count);
      },
    });
    this.#registry.registerMetric(gauge);
  }

  /** Counts bytes of consoles that were overwritten. */
  consoleOverwritten(bytes: number): void {
    this.#overwritten.inc(bytes);
  }

  /** Shows how many connections the API has, counted when it is asked for. */
  followConnections(count: () => number): void {
    const gauge = new Gauge({
      name: "podnet_api_connections",
      help: "Open connections to the API",
      registers: [],
      collect() {
        this.set(count());
      },
    });
    this.#registry.registerMetric(gauge);
  }

  /** Shows what passed the interfaces of all pods, counted when it is asked for. */
  followTraffic(read: () => Promise<Totals>): void {
    const sums = (name: string, help: string, of: (now: Totals) => readonly [number, number]) =>
      new Counter({
        name,
        help,
        labelNames: ["direction"],
        registers: [],
        async collect() {
          const [rx, tx] = of(await latest());
          this.reset();
          this.inc({ direction: "rx" }, rx);
          this.inc({ direction: "tx" }, tx);
        },
      });
    // One look for both, which are asked for together.
    const latest = oneLook(read);
    this.#registry.registerMetric(
      sums(
        "podnet_traffic_bytes_total",
        "Bytes that pods received (rx) and sent (tx) while this podnetd ran",
        ({ rxBytes, txBytes }) => [rxBytes, txBytes],
      ),
    );
    this.#registry.registerMetric(
      sums(
        "podnet_traffic_packets_total",
        "Packets that pods received (rx) and sent (tx) while this podnetd ran",
        ({ rxPackets, txPackets }) => [rxPackets, txPackets],
      ),
    );
  }

  /** Shows the machines that wait for a pod by their size, and what creates got of them. */
  followPool(pool: Pick<MachinePool, "counts" | "unlike">): void {
    const machines = new Gauge({
      name: "podnet_pool_machines",
      help: "Machines that wait for a pod, by size: VCPUSxMIB, or IMAGE VCPUSxMIB",
      labelNames: ["size"],
      registers: [],
      collect() {
        for (const each of pool.counts()) this.set({ size: classText(each) }, each.ready);
      },
    });
    const claims = new Counter({
      name: "podnet_pool_claims_total",
      help: "Creates that took a machine of the pool of their size",
      labelNames: ["size"],
      registers: [],
      collect() {
        this.reset();
        for (const each of pool.counts()) this.inc({ size: classText(each) }, each.claimed);
      },
    });
    const misses = new Counter({
      name: "podnet_pool_misses_total",
      help: "Creates that got no machine of a pool: the pool of their size was empty (empty), or they asked for a machine like none of any pool (unlike)",
      labelNames: ["reason"],
      registers: [],
      collect() {
        this.reset();
        const empty = pool.counts().reduce((sum, { missed }) => sum + missed, 0);
        this.inc({ reason: "empty" }, empty);
        this.inc({ reason: "unlike" }, pool.unlike);
      },
    });
    this.#registry.registerMetric(machines);
    this.#registry.registerMetric(claims);
    this.#registry.registerMetric(misses);
  }

  /** Shows what each pod uses, counted when it is asked for. */
  followPods(read: () => Promise<readonly PodUsage[]>): void {
    for (const metric of podMetrics(oneLook(read))) this.#registry.registerMetric(metric);
  }

  /** Shows what passes published ports by loopback, and how many host ports are held. */
  followPorts(ports: Pick<HeldPorts, "counts" | "size">): void {
    const total = (name: string, help: string, of: (counts: FlowCounts) => number): Counter =>
      new Counter({
        name,
        help,
        registers: [],
        collect() {
          this.reset();
          this.inc(of(ports.counts()));
        },
      });
    const gauge = (name: string, help: string, of: () => number): Gauge =>
      new Gauge({
        name,
        help,
        registers: [],
        collect() {
          this.set(of());
        },
      });
    for (const metric of [
      gauge("podnet_host_ports", "Host ports that podnetd's sockets hold", () => ports.size),
      gauge(
        "podnet_forwarded_flows",
        "Open connections and UDP sessions to published ports on loopback",
        () => ports.counts().active,
      ),
      total(
        "podnet_forwarded_flows_total",
        "Connections and UDP sessions to published ports on loopback",
        ({ begun }) => begun,
      ),
      total(
        "podnet_forwarded_refused_total",
        "Connections on loopback that failed or that the pod refused, and datagrams that were dropped",
        ({ refused }) => refused,
      ),
      total(
        "podnet_forwarded_in_bytes_total",
        "Bytes forwarded to pods from loopback",
        ({ bytesIn }) => bytesIn,
      ),
      total(
        "podnet_forwarded_out_bytes_total",
        "Bytes forwarded from pods to loopback",
        ({ bytesOut }) => bytesOut,
      ),
    ])
      this.#registry.registerMetric(metric);
  }

  /** Shows what pods ask the resolvers, and what comes of it. */
  followNames({ counts }: Pick<Resolvers, "counts">): void {
    const total = (name: string, help: string, of: (counts: ResolverCounts) => number): void =>
      this.#registry.registerMetric(
        new Counter({
          name: `podnet_dns_${name}_total`,
          help,
          registers: [],
          collect() {
            this.reset();
            this.inc(of(counts));
          },
        }),
      );
    total("queries", "DNS queries from pods", ({ queries }) => queries);
    total("forwarded", "DNS queries forwarded to other servers", ({ forwarded }) => forwarded);
    total("timeouts", "DNS queries that no server answered", ({ timeouts }) => timeouts);
    total("stale", "DNS queries answered from stale answers (RFC 8767)", ({ stale }) => stale);
    total(
      "refused",
      "DNS queries and connections refused: unknown sender, over a limit, or malformed",
      ({ refused }) => refused,
    );
  }

  /** Shows how this host fares in its overlays. */
  followOverlays(overlays: Parameters<typeof overlayMetrics>[0]): void {
    for (const metric of overlayMetrics(overlays)) this.#registry.registerMetric(metric);
  }

  /** Counts what a guest did that no event reports. */
  guestDropped(what: string): void {
    this.#guestDropped.inc({ what });
  }

  /** Name, type, labels and help of each metric, for the page that lists them. */
  described(): readonly {
    readonly name: string;
    readonly type: string;
    readonly labels: readonly string[];
    readonly help: string;
  }[] {
    return this.#registry.getMetricsAsArray().map((metric) => {
      const { name, help, labelNames } = metric as unknown as {
        readonly name: string;
        readonly help: string;
        readonly labelNames: readonly string[];
      };
      const type = metric.constructor.name.toLowerCase();
      return { name, type, labels: labelNames, help };
    });
  }

  async render(): Promise<{ readonly type: string; readonly text: string }> {
    return { type: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}

/** Shares one look among all callers that come while it runs. */
export function oneLook<T>(look: () => Promise<T>): () => Promise<T> {
  let looking: Promise<T> | undefined;
  return () => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
    return looking;
  };
}

// Both are counted when they are read. `registers: []` keeps them out of prom-client's global
// registry.

function podsGauge(sources: MetricsSources): Gauge<"state"> {
  return new Gauge({
    name: "podnet_pods",
    help: "Pods by state",
    labelNames: ["state"],
    registers: [],
    collect() {
      this.reset();
      for (const { state } of sources.pods()) this.inc({ state });
    },
  });
}

function addressesGauge(sources: MetricsSources): Gauge<"network" | "subnet" | "state"> {
  return new Gauge({
    name: "podnet_addresses",
    help: "Addresses of the pool of a network's subnet by state",
    labelNames: ["network", "subnet", "state"],
    registers: [],
    collect() {
      // Networks come and go.
      this.reset();
      for (const { network, cidr, ...counts } of sources.pools()) {
        const { free, used, reserved, quarantined } = counts;
        for (const [state, count] of Object.entries({ free, used, reserved, quarantined })) {
          this.set({ network, subnet: cidr, state }, Number(count));
        }
      }
    },
  });
}
