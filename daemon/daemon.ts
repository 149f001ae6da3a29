import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { systemClock } from "../core/clock.ts";
import { PodnetError } from "../core/errors.ts";
import { openGuest } from "../guest-init/channel/session.ts";
import type { Driver } from "../hypervisor/driver.ts";
import { openQemuDriver } from "../hypervisor/qemu/driver.ts";
import { bootId } from "../linux/proc.ts";
import { openTap } from "../linux/tun.ts";
import type { NetworkFragment } from "../network/desired.ts";
import { type HostNetwork, openHostNetwork } from "../network/ensure.ts";
import type { Remembered } from "../network/memory.ts";
import type { Config } from "./config/config.ts";
import { Journal } from "./journal.ts";
import { lockNetns, lockState } from "./lock.ts";
import type { Log } from "../linux/log.ts";
import { Metrics } from "./metrics.ts";
import { Addresses } from "./pod/addresses.ts";
import type { Host } from "./pod/host.ts";
import { Pods } from "./pod/pods.ts";
import { PodRecords } from "./pod/records.ts";
import { networkFragment, networkGap } from "./network-fragment.ts";
import { checkHost, qemuPath, qemuVersion } from "./preflight.ts";
import { serveApi } from "./server/api-server.ts";
import type { ServiceParts } from "./server/context.ts";
import { addRoutes } from "./server/routes.ts";
import { Database } from "./store/database.ts";
import { listLeases } from "./store/leases.ts";
import { getMeta, setMeta } from "./store/meta.ts";
import { deleteNetwork, listNetworks, putNetwork } from "./store/networks.ts";

export interface Daemon {
  /** Takes nothing new, lets what is under way end within `graceMs`, and lets go of pods, which run on. */
  close(graceMs: number): Promise<void>;
}

/** Starts everything, in order: checks, lock, rows, host, pods, API. Undoes it all when one fails. */
export async function openDaemon(
  config: Config,
  logOf: (component: string) => Log,
  end: () => void,
): Promise<Daemon> {
  const startedMs = systemClock.now();
  checkHost(config);
  await using opened = new AsyncDisposableStack();
  opened.use(lockState(config.stateDir));
  opened.use(await lockNetns(config.network.bridge));
  makeRunDirs(config);
  const db = opened.use(Database.openIn(config.stateDir));
  const network = opened.use(openNetwork(db, config));
  const driver = await openDriver(config, logOf("hypervisor"));
  const { bringsOwnNetwork } = driver.capabilities();
  const fragments = bringsOwnNetwork ? [] : [await ensureNetwork(db, config, network)];
  for (const fragment of fragments) {
    const gap = networkGap(fragment);
    if (gap !== undefined) logOf("network").warn({ network: fragment.key }, gap);
  }

  const clock = systemClock;
  const journal = new Journal(db, clock);
  const addresses = new Addresses(db, [config.network], config.quarantineMs, clock);
  const records = new PodRecords({ db, journal, addresses, clock });
  const host = openHost(config, driver, network, records);
  const metrics = new Metrics({
    pods: () => records.list(),
    networks: [config.network.name],
    poolStats: (name) => addresses.stats(name),
  });
  const pods = new Pods({
    db,
    config,
    host,
    records,
    addresses,
    journal,
    log: logOf("pod"),
    metrics,
  });
  // Pods that were taken over keep this process alive; a start that fails further on must let go of them.
  opened.defer(() => pods.close(0));
  await pods.recover(bootId());
  await sweep(network, records, config);
  setMeta(db, "boot_id", bootId());

  const parts: ServiceParts = {
    config,
    db,
    pods,
    records,
    addresses,
    journal,
    host,
    network,
    fragments,
    log: logOf("api"),
    startedMs,
    end,
  };
  const version = await qemuVersion(qemuPath(config));
  const api = await serveApi({
    unix: { path: config.socket, group: config.socketGroup },
    tcp: config.tcp,
    routes: (router) => addRoutes(router, parts, version),
    metrics: () => metrics.render(),
  });
  const held = opened.move();
  return {
    async close(graceMs) {
      await using _held = held;
      // What is under way still answers its caller; then the connections end.
      await pods.close(graceMs);
      await api.close(1000);
    },
  };
}

function makeRunDirs(config: Config): void {
  try {
    mkdirSync(config.runDir, { recursive: true, mode: 0o755 });
    mkdirSync(config.podsDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new PodnetError("PREFLIGHT_FAILED", `Run directory "${config.runDir}" cannot be made`, {
      field: "run_dir",
      hint: "Run podnetd as root, or choose another --run-dir",
      cause,
    });
  }
}

/**
 * Makes the configured network the recorded one. What an earlier configuration made goes first, host before row, so that
 * a crash in between is made up for; a network whose addresses pods hold is not taken from under them.
 */
async function ensureNetwork(
  db: Database,
  config: Config,
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
  putNetwork(db, { name, bridge, gateway, mtu, createdMs: systemClock.now() });
  const fragment = networkFragment(config);
  await host.ensure(fragment, AbortSignal.timeout(60_000));
  return fragment;
}

function openNetwork(db: Database, config: Config): HostNetwork {
  const remembered = getMeta(db, "network_memory");
  return openHostNetwork({
    iptables: config.disableIptables ? "off" : config.iptablesVariant,
    chain: config.iptablesChain,
    ...(remembered === undefined ? {} : { remembered: JSON.parse(remembered) as Remembered }),
    remember: (value) => setMeta(db, "network_memory", JSON.stringify(value)),
  });
}

function openDriver(config: Config, log: Log): Promise<Driver> {
  return openQemuDriver({
    qemuPath: qemuPath(config),
    kvm: config.qemu.kvm,
    // The planner knows whether a machine is to boot the default image, and refuses what that cannot do with.
    leastMemoryMib: 1,
    log: (level, message, fields) => log[level](fields, message),
  });
}

function openHost(config: Config, driver: Driver, network: HostNetwork, records: PodRecords): Host {
  return {
    driver,
    network,
    clock: systemClock,
    openTap: (name) => openTap(name),
    openGuest: (options) => openGuest(options),
    randomBytes: (count) => randomBytes(count),
    recordRun: (plan, record) => records.started(plan.podId, record),
    timeouts: config.timeouts,
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
