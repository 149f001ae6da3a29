import type { Host } from "../../overlay/claim.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { OverlayShape } from "../../network/model/overlay.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import type { HostLease, HostLeaseState } from "../../overlay/host-lease.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { EntryChange } from "../../overlay/registry.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import { type OverlayRecord, recordedSubnets } from "./store.ts";
import { LocalEndpoint } from "./local-endpoint.ts";
import { HostReport } from "./host-report.ts";
import { KernelFollower } from "./kernel/kernel-follower.ts";
import { LastHeard } from "./probes/last-heard.ts";
import { LeaseEnds } from "./lease/lease-ends.ts";
import { LeasedNetwork } from "./lease/leased-network.ts";
import { OtherHosts } from "./records/other-hosts.ts";
import { OverlayMemory } from "./records/overlay-memory.ts";
import { PeerMemory } from "./records/peer-memory.ts";
import { DepartedHosts } from "./departed-hosts.ts";
import { TunnelWatch } from "./probes/tunnel-watch.ts";
import { RefusedPeers } from "./refused-peers.ts";
import { SharedSubnet } from "./shared-subnet.ts";
import { SubnetFile } from "./kernel/subnet-file.ts";
import { Unread } from "./records/unread.ts";
import type { OverlayHostOptions } from "./overlay-host-options.ts";

/** The wait before removing the leftovers of a leave is retried. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

/**
 * A host is not reported before its local endpoint is known: without it nothing can be written
 * either.
 */
const unknownHost = {
  publicIp: undefined,
  publicIp6: undefined,
  attributes: { type: "alloc" },
} as const;

/** The things of which this host's part of one overlay is made. */
export interface OverlayParts {
  /** What the next start is to know. */
  readonly memory: OverlayMemory;
  /** The other hosts that were known last, for a start without etcd. */
  readonly known: PeerMemory;
  /** When etcd was heard last. */
  readonly heard: LastHeard;
  readonly lease: HostLease;
  readonly endpoint: LocalEndpoint;
  readonly others: OtherHosts;
  readonly kernel: KernelFollower;
  readonly leased: LeasedNetwork;
  readonly subnetEnv: SubnetFile;
  readonly watch: TunnelWatch;
  readonly unread: Unread;
  readonly refused: RefusedPeers;
  readonly departed: DepartedHosts;
  readonly shared: SharedSubnet;
  readonly report: HostReport;
  /** A single key: removing what is left after a leave. */
  readonly leaving: WorkQueue<"left">;
}

/** What the parts report. */
export interface OverlayEvents {
  /** Programs on the host know the subnet. */
  notified(): void;
  /** The kernel is as wanted. */
  made(shape: OverlayShape): void;
  /** What other hosts are to know of this one is known, or has changed. */
  hostKnown(host: Host): void;
  state(state: HostLeaseState): void;
  leases(changes: readonly EntryChange[]): void;
  /** Resolves when no address of the lease is used any more. */
  drain(): Promise<void>;
  /** Why the configuration's networks overlap what the host reaches already. */
  refuse(config: OverlayConfig): Promise<PodnetError | undefined>;
  /** Another host can be reached, or not any more. */
  reach(): void;
  /** The network card damages checksums. */
  damage(): void;
}

/** Makes the parts. None does anything before the driver starts. */
export function openParts(options: OverlayHostOptions, on: OverlayEvents): OverlayParts {
  const { name, db, log, clock, bootId, settings, networks, network, owner, onHealed } = options;
  const memory = new OverlayMemory(db, name, log);
  const unread = new Unread(log, `overlay ${name}`);
  const refused = new RefusedPeers(name, log);
  const shared = new SharedSubnet({
    log,
    overlay: name,
    foreignAddresses: (subnets) =>
      options.overlays.foreignAddresses(subnets, networks.find(network).bridge),
  });
  const heard = new LastHeard(memory, clock);
  const known = new PeerMemory({ db, overlay: name, bootId, clock, log });
  const subnetEnv = new SubnetFile({ path: options.subnetFile, log, ready: on.notified });
  const kernel = new KernelFollower({
    overlays: options.overlays,
    peers: () => others.peers,
    clock,
    log,
    onMade: (shape, outcome) => {
      refused.follow(outcome.refused);
      on.made(shape);
    },
    onHealed: (found, pauseMs) => onHealed(name, found, pauseMs),
  });
  const leased = new LeasedNetwork(
    {
      network,
      overlay: name,
      networks,
      db,
      clock,
      log,
      remember: (shape) => memory.remember({ network: shape }),
      takeBack: (shape) => memory.note({ network: shape }),
    },
    firstPhase(memory.record),
  );
  const endpoint = new LocalEndpoint({
    settings,
    owner,
    memory,
    log,
    randomBytes: options.randomBytes,
    conflict: options.conflict,
    foreignMac: (device) => options.overlays.foreignMac(device),
    onHost: on.hostKnown,
  });
  const { prefix, manager } = options;
  const lease = manager.open(prefix, {
    host: { owner, ...unknownHost },
    previous: recordedSubnets(memory.record) ?? subnetEnv.former()?.subnets,
    clock,
    random: Math.random,
    onState: on.state,
    onUnread: (reasons) => unread.set(reasons),
    onLeases: on.leases,
    drain: on.drain,
    wasKnown: (network, macs) => known.had(network, macs),
    ...(settings.allowOverlap ? {} : { refuse: on.refuse }),
  });
  const others = new OtherHosts(lease.registry);
  const departed = new DepartedHosts({
    leases: lease.registry,
    addresses: () =>
      [endpoint.uplink?.publicIp, endpoint.uplink?.publicIp6].filter((ip) => ip !== undefined),
    onDeparted: (owners) => {
      log.info(
        { overlay: name, hosts: owners.size },
        "Leases of hosts that are gone may be taken over",
      );
      lease.departed(owners);
    },
  });
  const watch = new TunnelWatch({ settings, log, onDamage: on.damage, onReach: on.reach });
  const { tunnels } = options.overlays;
  const ends = new LeaseEnds({ store: manager, clock });
  const seen = { lease, memory, heard, known, endpoint, others, kernel, leased, watch };
  const troubles = { unread, refused, shared };
  const report = new HostReport({
    name,
    network,
    manager,
    clock,
    ...seen,
    ...troubles,
    ends,
    tunnels,
  });
  const leaving = new WorkQueue<"left">({
    name: "overlay-remains",
    backoff,
    onDegraded: (_, { error }) =>
      log.error({ err: error }, "Failed to remove overlay after leave; retrying"),
  });
  return { ...seen, ...troubles, subnetEnv, departed, report, leaving };
}

/** Ends every task of the parts. Lease, device, routes and rules stay. */
export async function closeParts(parts: OverlayParts): Promise<void> {
  parts.departed[Symbol.dispose]();
  // A drain of the lease waits for the network.
  await Promise.all([
    parts.leased[Symbol.asyncDispose](),
    parts.lease[Symbol.asyncDispose](),
    parts.leaving.close(),
  ]);
  await parts.endpoint[Symbol.asyncDispose]();
  await parts.others[Symbol.asyncDispose]();
  await parts.kernel[Symbol.asyncDispose]();
  parts.known[Symbol.dispose]();
  parts.heard[Symbol.dispose]();
  parts.memory[Symbol.dispose]();
  parts.watch[Symbol.dispose]();
  parts.subnetEnv[Symbol.dispose]();
}

/** How the lease is before anything is known of it. */
const firstPhase = ({ left = false, subnets }: OverlayRecord): LeasePhase =>
  !left ? "waiting" : subnets === undefined ? "left" : "draining";
