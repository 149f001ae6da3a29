import type { Clock } from "../core/clock.ts";
import { PodnetError } from "../core/errors.ts";
import type { Driver } from "../hypervisor/driver.ts";
import type { Log } from "../linux/log.ts";
import type { NetworkFragment } from "../network/desired.ts";
import { type HostNetwork, openHostNetwork } from "../network/ensure.ts";
import type { HostKernel } from "../network/kernel.ts";
import type { Config } from "./config/config.ts";
import { Journal } from "./journal.ts";
import { Metrics } from "./metrics.ts";
import { networkFragment, networkGap } from "./network-fragment.ts";
import { Addresses } from "./pod/addresses.ts";
import type { Host } from "./pod/host.ts";
import { Pods } from "./pod/pods.ts";
import { PodRecords } from "./pod/records.ts";
import type { Database } from "./store/database.ts";
import { listLeases } from "./store/leases.ts";
import { getMeta, setMeta } from "./store/meta.ts";
import { parseRemembered } from "./store/network-memory.ts";
import { deleteNetwork, listNetworks, putNetwork } from "./store/networks.ts";

/** What a node stands on: all of it passed in, so that the simulation (test/sim) runs this very code. */
export interface NodeParts
  extends Pick<Host, "openTap" | "openGuest" | "randomBytes" | "confinement"> {
  readonly config: Config;
  readonly db: Database;
  readonly driver: Driver;
  readonly clock: Clock;
  /** This boot of the host. */
  readonly bootId: string;
  /** The real one unless given. */
  readonly kernel?: HostKernel;
  logOf(component: string): Log;
}

/** The daemon below its API. Disposing of it lets go of pods, which run on. */
export interface Node extends AsyncDisposable {
  readonly pods: Pods;
  readonly records: PodRecords;
  readonly addresses: Addresses;
  readonly journal: Journal;
  readonly host: Host;
  readonly network: HostNetwork;
  readonly fragments: readonly NetworkFragment[];
  readonly metrics: Metrics;
}

/** Makes host and rows agree, takes over the pods that run, and is ready for more. Undoes nothing of that when it fails. */
export async function openNode(parts: NodeParts): Promise<Node> {
  const { config, db, driver, clock, logOf, bootId } = parts;
  await using opened = new AsyncDisposableStack();
  const network = opened.use(openNetwork(parts));
  const { bringsOwnNetwork } = driver.capabilities();
  const fragments = bringsOwnNetwork ? [] : [await ensureNetwork(parts, network)];
  for (const fragment of fragments) {
    const gap = networkGap(fragment);
    if (gap !== undefined) logOf("network").warn({ network: fragment.key }, gap);
  }
  const journal = new Journal(db, clock);
  const addresses = new Addresses(db, [config.network], config.quarantineMs, clock);
  const records = new PodRecords({ db, journal, addresses, clock });
  const host = openHost(parts, network, records);
  const metrics = new Metrics({
    pods: () => records.list(),
    networks: [config.network.name],
    poolStats: (name) => addresses.stats(name),
  });
  const log = logOf("pod");
  const pods = new Pods({ db, config, host, records, addresses, journal, log, metrics });
  // Pods that were taken over keep this process alive; a start that fails further on must let go of them.
  opened.defer(() => pods.close(0));
  await pods.recover(bootId);
  await sweep(network, records, config);
  setMeta(db, "boot_id", bootId);
  const held = opened.move();
  return {
    pods,
    records,
    addresses,
    journal,
    host,
    network,
    fragments,
    metrics,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

function openNetwork({ db, config, kernel }: NodeParts): HostNetwork {
  const remembered = getMeta(db, "network_memory");
  return openHostNetwork({
    iptables: config.disableIptables ? "off" : config.iptablesVariant,
    chain: config.iptablesChain,
    ...(remembered === undefined ? {} : { remembered: parseRemembered(remembered) }),
    remember: (value) => setMeta(db, "network_memory", JSON.stringify(value)),
    ...(kernel === undefined ? {} : { kernel }),
  });
}

/**
 * Makes the configured network the recorded one. What an earlier configuration made goes first, host before row, so that
 * a crash in between is made up for; a network whose addresses pods hold is not taken from under them.
 */
async function ensureNetwork(
  { db, config, clock }: NodeParts,
  host: HostNetwork,
): Promise<NetworkFragment> {
  const { network } = config;
  const { name, bridge, gateway, mtu } = network;
  for (const old of listNetworks(db)) {
    if (old.name === name && old.bridge === bridge && old.gateway === gateway) continue;
    if (listLeases(db, old.name).some(({ freedMs }) => freedMs === undefined)) {
      throw new PodnetError(
        "CONFIG_INVALID",
        `Pods hold addresses of network "${old.name}" on ${old.bridge} (${old.gateway})`,
        {
          field: "network",
          hint: `Delete them first, or put back bridge "${old.bridge}" and cidr "${old.gateway}"`,
        },
      );
    }
    await host.remove({ kind: "network", key: old.name }, AbortSignal.timeout(60_000));
    deleteNetwork(db, old.name);
  }
  putNetwork(db, { name, bridge, gateway, mtu, createdMs: clock.now() });
  const fragment = networkFragment(config);
  await host.ensure(fragment, AbortSignal.timeout(60_000));
  return fragment;
}

function openHost(parts: NodeParts, network: HostNetwork, records: PodRecords): Host {
  return {
    driver: parts.driver,
    confinement: parts.confinement,
    network,
    clock: parts.clock,
    openTap: (name) => parts.openTap(name),
    openGuest: (options) => parts.openGuest(options),
    randomBytes: (count) => parts.randomBytes(count),
    recordRun: (plan, record) => records.started(plan.podId, record),
    timeouts: parts.config.timeouts,
  };
}

/** Takes away what bears our mark and belongs to no row. */
async function sweep(network: HostNetwork, records: PodRecords, config: Config): Promise<void> {
  const known = {
    pods: new Set<string>(records.list().map(({ id }) => id)),
    networks: new Set<string>([config.network.name]),
  };
  await network.sweep(known, AbortSignal.timeout(60_000));
}
