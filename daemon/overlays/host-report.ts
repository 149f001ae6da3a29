import type { Clock } from "../../core/clock.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Overlays } from "../../network/overlay/overlays.ts";
import type { HostLease } from "../../overlay/host-lease.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { GrantId } from "../../overlay/store.ts";
import { recordedSubnets } from "./store.ts";
import type { LocalEndpoint } from "./local-endpoint.ts";
import { nodeViews, overlayView } from "./host-view.ts";
import type { SubnetManager } from "./managers/subnet-manager.ts";
import type { KernelFollower } from "./kernel/kernel-follower.ts";
import type { LastHeard } from "./probes/last-heard.ts";
import type { LeaseEnd, LeaseEnds } from "./lease/lease-ends.ts";
import type { LeasedNetwork } from "./lease/leased-network.ts";
import type { OtherHosts } from "./records/other-hosts.ts";
import type { OverlayMemory } from "./records/overlay-memory.ts";
import { ownsTable, type PeerMemory } from "./records/peer-memory.ts";
import { recalledText } from "./trouble-text.ts";
import type { RefusedPeers } from "./refused-peers.ts";
import type { SharedSubnet } from "./shared-subnet.ts";
import type { TunnelWatch } from "./probes/tunnel-watch.ts";
import type { Unread } from "./records/unread.ts";
import type { OverlayPeerView, OverlayView } from "./view.ts";

/** All who know something of this host's part of one overlay. */
export interface HostReportParts {
  readonly name: string;
  readonly network: NetworkName;
  readonly clock: Clock;
  readonly manager: Pick<SubnetManager, "name" | "hostOf">;
  readonly lease: Pick<HostLease, "view" | "registry">;
  readonly memory: Pick<OverlayMemory, "record">;
  readonly heard: Pick<LastHeard, "staleMs">;
  readonly known: Pick<PeerMemory, "former">;
  readonly endpoint: Pick<LocalEndpoint, "uplink" | "backend" | "troubles">;
  readonly others: Pick<OtherHosts, "peers" | "conflicts" | "grants">;
  readonly kernel: Pick<KernelFollower, "wanted" | "error">;
  readonly leased: Pick<LeasedNetwork, "troubles">;
  readonly watch: Pick<TunnelWatch, "of" | "troubles">;
  readonly unread: Pick<Unread, "troubles">;
  readonly refused: Pick<RefusedPeers, "troubles">;
  readonly shared: Pick<SharedSubnet, "troubles">;
  readonly ends: Pick<LeaseEnds, "of">;
  readonly tunnels: Pick<Overlays["tunnels"], "get">;
}

/** The reports about this host's part of one overlay, and about the other hosts in it. */
export class HostReport {
  readonly #parts: HostReportParts;

  constructor(parts: HostReportParts) {
    this.#parts = parts;
  }

  view(phase: LeasePhase, mtu: number): OverlayView {
    const { name, network, manager, clock, lease, memory, heard, known } = this.#parts;
    const { endpoint, others, kernel, leased, watch, unread, refused, shared, tunnels } =
      this.#parts;
    const { error } = kernel;
    const recalled = this.#recalled;
    return overlayView({
      name,
      manager: manager.name,
      network,
      phase,
      clock,
      mtu,
      peers: others.peers,
      recalled,
      staleMs: heard.staleMs,
      state: lease.view,
      stored: phase === "left" ? undefined : recordedSubnets(memory.record),
      uplink: endpoint.uplink,
      placed: endpoint.uplink !== undefined && endpoint.backend !== undefined,
      tunnel: tunnels.get(name),
      troubles: [
        ...unread.troubles,
        ...endpoint.troubles,
        ...watch.troubles,
        ...leased.troubles,
        ...shared.troubles,
        ...others.conflicts,
        ...refused.troubles,
        ...recalledText(manager.name, recalled, known.former, this.#forgotten),
        ...(error === undefined ? [] : [error.message]),
      ],
    });
  }

  get nodes(): readonly OverlayPeerView[] {
    return this.#nodes(new Map());
  }

  /** Nodes with the ends of other hosts' leases. While etcd is known to be away it is not asked. */
  async leasedNodes(): Promise<readonly OverlayPeerView[]> {
    const { heard, others, ends } = this.#parts;
    const grants = heard.staleMs === undefined ? others.grants : new Set<GrantId>();
    return this.#nodes(await ends.of(grants));
  }

  #nodes(ends: ReadonlyMap<GrantId, LeaseEnd>): readonly OverlayPeerView[] {
    const { manager, lease, clock, watch } = this.#parts;
    const { registry, view: state } = lease;
    return nodeViews(registry, {
      state,
      clock,
      ends,
      probe: (key) => watch.of(key),
      hostOf: (key) => manager.hostOf(key),
    });
  }

  /**
   * podnetd moves the packets itself, and knows no host to send to: etcd has listed none since it
   * started.
   */
  get #forgotten(): boolean {
    const { lease, memory } = this.#parts;
    const { desired } = memory.record;
    return !lease.view.listed && desired !== undefined && ownsTable(desired);
  }

  /** Other hosts that packets are sent to although etcd has not reported of them in this boot. */
  get #recalled(): number {
    const { lease, kernel } = this.#parts;
    const { wanted } = kernel;
    if (lease.view.listed || wanted === undefined) return 0;
    return Math.max(0, ...wanted.sides.map(({ peers }) => peers.length));
  }
}
