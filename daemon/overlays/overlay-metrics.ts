import { Counter, Gauge } from "prom-client";
import { type Counters, dropsOf } from "../../network/overlay/udp/counters.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { OverlayHosts } from "./overlay-hosts.ts";

const phases: readonly LeasePhase[] = ["waiting", "acquiring", "held", "lost", "draining", "left"];

/** How this host fares in its overlays, looked at when it is asked for. */
export function overlayMetrics(
  overlays: Pick<OverlayHosts, "list" | "nodes" | "failures">,
): readonly (Gauge | Counter)[] {
  const gauge = <Label extends string>(
    name: string,
    help: string,
    labels: readonly Label[],
    look: (
      set: (labels: Readonly<Record<Label | "overlay", string>>, value: number) => void,
    ) => void,
  ): Gauge =>
    new Gauge({
      name: `podnet_overlay_${name}`,
      help,
      labelNames: ["overlay", ...labels],
      registers: [],
      collect() {
        // Overlays and peers come and go.
        this.reset();
        look((of, value) => this.set(of, value));
      },
    });
  const each = (
    name: string,
    help: string,
    of: (view: ReturnType<OverlayHosts["list"]>[number]) => number,
  ) =>
    gauge(name, help, [], (set) => {
      for (const view of overlays.list()) set({ overlay: view.name }, of(view));
    });
  return [
    gauge("lease_phase", "1 for the phase this host's lease is in", ["phase"], (set) => {
      for (const { name, phase } of overlays.list())
        for (const one of phases) set({ overlay: name, phase: one }, one === phase ? 1 : 0);
    }),
    each(
      "stale_seconds",
      "Seconds since the subnet manager was last heard; 0 while it answers",
      ({ staleMs = 0 }) => staleMs / 1000,
    ),
    each("peers", "Other hosts that this host sends packets to", ({ peers }) => peers),
    each(
      "skipped_keys",
      "Lease keys that are unreadable, or of another backend",
      ({ skippedKeys }) => skippedKeys,
    ),
    each(
      "troubles",
      "Problems that `podnet overlay list` shows",
      ({ troubles }) => troubles.length,
    ),
    gauge(
      "peer_reachable",
      "1 for a peer that answered the last probe, 0 for one that did not",
      ["peer"],
      (set) => {
        for (const { name } of overlays.list())
          for (const { subnets, self, reachable } of overlays.nodes(name))
            if (!self && reachable !== undefined)
              set({ overlay: name, peer: subnets.join() }, reachable ? 1 : 0);
      },
    ),
    gauge(
      "peer_rtt_seconds",
      "Round-trip time of the last probe that a peer answered",
      ["peer"],
      (set) => {
        for (const { name } of overlays.list())
          for (const { subnets, self, rttMs } of overlays.nodes(name))
            if (!self && rttMs !== undefined)
              set({ overlay: name, peer: subnets.join() }, rttMs / 1000);
      },
    ),
    tunnelCounter(
      overlays,
      "packets",
      "Packets through the tunnel of the backend `udp`, since it was opened",
      "direction",
      ({ sentPackets, receivedPackets }) => ({ sent: sentPackets, received: receivedPackets }),
    ),
    tunnelCounter(
      overlays,
      "bytes",
      "Bytes through the tunnel of the backend `udp`, since it was opened",
      "direction",
      ({ sentBytes, receivedBytes }) => ({ sent: sentBytes, received: receivedBytes }),
    ),
    tunnelCounter(
      overlays,
      "dropped",
      "Packets that the tunnel of the backend `udp` dropped, by reason",
      "reason",
      dropsOf,
    ),
    new Counter({
      name: "podnet_overlay_failures_total",
      help: "Attempts to apply an overlay to the kernel that failed, at least in part",
      labelNames: ["overlay"],
      registers: [],
      collect() {
        this.reset();
        for (const { name, count } of overlays.failures()) this.inc({ overlay: name }, count);
      },
    }),
  ];
}

/**
 * The counters of tunnels since they were opened: they restart at 0 when a tunnel is opened again.
 */
function tunnelCounter(
  overlays: Pick<OverlayHosts, "list">,
  what: string,
  help: string,
  label: "direction" | "reason",
  read: (counted: Counters) => Readonly<Record<string, number>>,
): Counter {
  return new Counter({
    name: `podnet_overlay_tunnel_${what}_total`,
    help,
    labelNames: ["overlay", label],
    registers: [],
    collect() {
      this.reset();
      for (const { name, tunnel } of overlays.list())
        if (tunnel !== undefined)
          for (const [value, count] of Object.entries(read(tunnel.counters)))
            this.inc({ overlay: name, [label]: value }, count);
    },
  });
}
