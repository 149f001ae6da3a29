import { join } from "node:path";
import { endText } from "../pods/process/process-end.ts";
import type { Clock } from "../../core/clock.ts";
import type { PodId } from "../../core/names.ts";
import type { Driver } from "../../hypervisor/driver.ts";
import { bootMoment, type BootMoment } from "../../linux/processes/boot-moment.ts";
import type { Log } from "../../linux/log.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { PolicyOf } from "../../network/firewall/policed.ts";
import { Attachments as KernelAttachments } from "../../network/containers/attachments.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import type { AttachmentKernel } from "../../network/containers/kernel.ts";
import type { HostKernel } from "../../network/kernel/kernel.ts";
import { sentMtus } from "../containers/sent-mtus.ts";
import { attachmentFragment } from "../containers/attachment-fragment.ts";
import { Attachments, type AttachmentsParts } from "../containers/attachments.ts";
import { ContainerNames } from "../containers/container-names.ts";
import { AttachmentRecords } from "../containers/records.ts";
import type { Config } from "../config/config.ts";
import { knownNames } from "../dns/known-names.ts";
import type { Listen } from "../dns/listen.ts";
import { Resolvers } from "../dns/resolvers.ts";
import { PortAnswers } from "../dhcp/port-answers.ts";
import { Journal } from "../events/journal.ts";
import { Images } from "../images/images.ts";
import { Metrics } from "./metrics.ts";
import { Networks } from "../networks/networks.ts";
import { recoverNetworks } from "../networks/recover.ts";
import { Addresses } from "../ipam/addresses.ts";
import type { Host } from "../pods/lifecycle/host.ts";
import { PolicyDecisions } from "../policies/decisions.ts";
import { denialOwner } from "../policies/denial-owner.ts";
import { Denials } from "../policies/denials.ts";
import { Learning } from "../policies/learning.ts";
import { Policies } from "../policies/policies.ts";
import type { RelayProcess } from "../policies/relayed-pods.ts";
import { Services } from "../services/services.ts";
import { getService, listServices } from "../services/store.ts";
import { Verdicts } from "../policies/verdicts.ts";
import { Pods } from "../pods/pods.ts";
import { PluginCalls } from "../pods/interfaces/plugin-calls.ts";
import { openSandboxes } from "../pods/interfaces/sandboxes.ts";
import { HeldPorts, type Hold } from "../published/held-ports.ts";
import { portsOf } from "../pods/interfaces/pod-ports.ts";
import { namesOfHolders } from "../pods/store/stored-plans.ts";
import { KeptPlans } from "../pods/store/kept-plans.ts";
import { refuseOrphans } from "../pods/lifecycle/orphans.ts";
import { PodRecords } from "../pods/store/records.ts";
import type { Database } from "../store/database.ts";
import { skipLostCursors } from "../events/store.ts";
import { getMeta, setMeta } from "../store/meta.ts";
import { parseRemembered } from "../networks/network-memory.ts";
import { attachmentIds, listAttachments } from "../containers/store.ts";
import { listNetworks } from "../networks/store.ts";
import { stateOf } from "../pods/store/pod-rows.ts";
import { listPodsWithMachine } from "../pods/store/pods.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { Tally } from "../events/tally.ts";

/**
 * The parts that a node uses: all of them passed in, so that the simulation (test/sim) runs this
 * very code.
 */
export interface NodeParts
  extends Pick<
    Host,
    "openTap" | "openRehearsalRoom" | "openGuest" | "randomBytes" | "confinement" | "turns"
  > {
  readonly config: Config;
  readonly db: Database;
  readonly driver: Driver;
  readonly clock: Clock;
  /** This boot of the host. */
  readonly bootId: string;
  /** The moment that is now, of this boot; the host's own unless given. */
  readonly moment?: () => BootMoment;
  /** The real one unless given. */
  readonly kernel?: HostKernel;
  /** The kernel for containers. */
  readonly attachmentKernel?: AttachmentKernel;
  /** Binds host ports; to real sockets unless given. */
  readonly hold?: Hold;
  /** Answers guests without an agent; by real sockets unless given. */
  readonly openAnswers?: Host["openAnswers"];
  /** Lets resolvers be asked; at real sockets unless given. */
  readonly listen?: Listen;
  /** The relay's process; without it connections whose name decides stay closed. */
  readonly relay?: RelayProcess;
  /** The caller has the agents of adopted machines reached: see `Pods.reachAgents`. */
  readonly agentsLater?: boolean;
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
  readonly networks: Networks;
  readonly resolvers: Resolvers;
  readonly metrics: Metrics;
  readonly policies: Policies;
  readonly services: Services;
  readonly denials: Denials;
  readonly verdicts: Verdicts;
  readonly learning: Learning;
  readonly images: Images;
  readonly attachments: Attachments;
}

/**
 * Makes host and rows agree, takes over the pods that run, and is ready for more. Undoes nothing of
 * that when it fails.
 */
export async function openNode(parts: NodeParts): Promise<Node> {
  const { config, db, driver, clock, logOf, bootId } = parts;
  const kept = new KeptPlans(config, logOf("pod"));
  // Before anything of the host is changed.
  refuseOrphans(db, { podsDir: config.podsDir, driver, kept });
  await using opened = new AsyncDisposableStack();
  const decisions = new PolicyDecisions(db);
  const decisionsOf: PolicyOf = (owner) => decisions.of(owner);
  const network = opened.use(openNetwork(parts, decisionsOf));
  await publishFirst(network, db, config);
  const networkLog = logOf("network");
  const recovered = await recoverNetworks({ db, config, host: network, clock, log: networkLog });
  const journal = new Journal(db, clock, logOf("store"));
  const addresses = new Addresses(db, recovered, config.quarantineMs, clock);
  const containerNames = new ContainerNames();
  const resolvers = opened.use(
    new Resolvers({
      config: config.dns,
      names: {
        ...knownNames(db, addresses, containerNames),
        serviceAddresses(network, name) {
          const service = getService(db, name);
          return service?.network === network ? service.addresses : undefined;
        },
      },
      clock,
      journal,
      log: logOf("dns"),
      listen: parts.listen,
      policies: {
        of: (holder) => policies.of(holder),
        open: (holder, name, addresses, seconds) => policies.open(holder, name, addresses, seconds),
        denied: (holder, name, why) => policies.denied(holder, name, why),
        isLearning: (holder) => learning.isLearning(holder),
        learn: (holder, name, addresses) => learning.addName(holder, name, addresses),
      },
    }),
  );
  const networks: Networks = new Networks(
    {
      db,
      config,
      host: network,
      addresses,
      clock,
      log: networkLog,
      configured: config.network.name,
      resolvers,
      sentMtus: (name) => sentMtus(db, name),
      follow: async (name) => {
        await pods.follow(name);
        await attachments.follow(name);
      },
      changedPorts: (definition) => [
        ...pods.changedPorts(definition),
        ...attachments.changedPorts(definition),
      ],
      changedServersText: (name, known) => pods.changedServersText(name, known),
    },
    recovered,
  );
  const published = opened.use(new HeldPorts(parts.hold));
  const records = new PodRecords({ db, journal, addresses, clock, published, kept });
  const log = logOf("pod");
  const unanswered = new Tally(log, "Unanswered DHCP or router requests of guests", (what) =>
    metrics.guestDropped(what),
  );
  const host = openHost(parts, { network, networks, records, published, log, unanswered });
  const metrics: Metrics = new Metrics({
    pods: () => records.listAny().map(stateOf),
    pools: () =>
      networks
        .list()
        .flatMap(({ name }) =>
          addresses.subnets(name).map((subnet) => ({ network: name, ...subnet })),
        ),
  });
  metrics.followPorts(published);
  metrics.followNames(resolvers);
  const images = new Images({
    db,
    directory: config.images.directory,
    registry: config.images.registries[0],
    mostBytes: config.images.mostBytes,
    evict: config.images.evict,
    holders: (file) => namesOfHolders(db, file),
    clock,
  });
  images.recover();
  const pods: Pods = new Pods({
    db,
    config,
    host,
    records,
    kept,
    addresses,
    networks,
    journal,
    log,
    metrics,
    images: {
      findImage: (reference) => {
        const image = images.findImage(reference);
        images.used(image);
        return image;
      },
    },
  });
  metrics.followPool(pods.pool);
  // Pods that were taken over keep this process alive; a start that fails further on must let go of
  // them.
  opened.defer(() => pods.close(0));
  const bootBefore = getMeta(db, "boot_id");
  if (bootBefore !== undefined && bootBefore !== bootId) db.whenRoom(() => skipLostCursors(db));
  await pods.recover(bootId, { agentsLater: true });
  const attachments: Attachments = opened.use(
    openAttachments(parts, {
      host: network,
      network: opened.use(new KernelAttachments(network, parts.attachmentKernel)),
      networks,
      addresses,
      journal,
      published,
      names: containerNames,
    }),
  );
  metrics.followAttachments(() => attachments.listAny());
  await attachments.recover(bootBefore === bootId);
  await sweep(network, records, db);
  const denials = new Denials({ observe: network.observe, decisionsOf });
  const learning = opened.use(
    new Learning({
      network,
      fragmentOf: (id) => {
        const row = records.get(id as PodId);
        if (row === undefined) return attachments.hostParts().find(({ key }) => key === id);
        return hasMachine(row) ? portsOf(row.plan, networks.list()) : undefined;
      },
      log: networkLog,
    }),
  );
  const verdicts = new Verdicts({ clock, ownerOf: (holder) => denialOwner(db, holder) });
  const holders = (): readonly PluggedFragment[] => [
    ...pods.listPresent().map(({ plan }) => portsOf(plan, networks.list())),
    ...attachments.hostParts(),
  ];
  const policies: Policies = opened.use(
    new Policies({
      learning,
      denied(denied) {
        denials.add(denied);
        verdicts.add(denied);
      },
      db,
      decisions,
      network,
      setRules: (id, rules) => pods.setRules(id, rules),
      holders,
      relay: parts.relay,
      journal,
      clock,
      log: networkLog,
    }),
  );
  policies.start();
  const services: Services = opened.use(
    new Services({ db, config, network, networks, holders, journal, clock, log: networkLog }),
  );
  services.start();
  metrics.followServices(services);
  // Not before: who has published port 53 keeps it.
  await networks.answerNames();
  await networks.followServers();
  if (bootBefore !== bootId) db.whenRoom(() => setMeta(db, "boot_id", bootId));
  if (parts.agentsLater !== true) pods.reachAgents();
  const held = opened.move();
  return {
    pods,
    records,
    addresses,
    journal,
    host,
    network,
    networks,
    resolvers,
    metrics,
    policies,
    services,
    denials,
    verdicts,
    learning,
    images,
    attachments,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

function openNetwork({ db, config, kernel, logOf }: NodeParts, policyOf: PolicyOf): HostNetwork {
  const log = logOf("network");
  const remembered = getMeta(db, "network_memory");
  return openHostNetwork({
    // (podnetd has decided; a simulated host has both.)
    firewall: config.firewall === "auto" ? "iptables" : config.firewall,
    iptables: config.disableIptables ? "off" : config.iptablesVariant,
    chain: config.iptablesChain,
    policyOf,
    relayPort: config.relayPort,
    ...(remembered === undefined ? {} : { remembered: parseRemembered(remembered) }),
    remember: (value) => rememberNetwork(db, JSON.stringify(value)),
    repeated: (err) => log.warn({ err }, "Comparing and writing the firewall's rules once more"),
    ...(kernel === undefined ? {} : { kernel }),
  });
}

/** Objects that are made and removed on the host must be recorded for their rollback. */
const rememberNetwork = (db: Database, value: string): void =>
  db.transaction(() => setMeta(db, "network_memory", value), undefined, "always", "essential");

function openAttachments(
  parts: NodeParts,
  shared: Pick<AttachmentsParts, "host" | "network" | "addresses" | "published" | "names"> &
    Pick<Node, "networks" | "journal">,
): Attachments {
  const { db, config, clock } = parts;
  return new Attachments({
    ...shared,
    db,
    config,
    clock,
    moment: parts.moment ?? bootMoment,
    randomBytes: (count) => parts.randomBytes(count),
    records: new AttachmentRecords({ ...shared, db, clock }),
    log: parts.logOf("cni"),
  });
}

function openHost(
  parts: NodeParts,
  {
    network,
    networks,
    records,
    published,
    log,
    unanswered,
  }: {
    readonly network: HostNetwork;
    readonly networks: Networks;
    readonly records: PodRecords;
    readonly published: HeldPorts;
    readonly log: Log;
    readonly unanswered: Tally;
  },
): Host {
  return {
    driver: parts.driver,
    confinement: parts.confinement,
    networks,
    network,
    published,
    sandboxes: openSandboxes(
      parts.config.cni.runtime,
      new PluginCalls(join(parts.config.runDir, "cni-calls")),
    ),
    clock: parts.clock,
    turns: parts.turns,
    openTap: (name, options) => parts.openTap(name, options),
    ...(parts.openRehearsalRoom === undefined
      ? {}
      : { openRehearsalRoom: parts.openRehearsalRoom }),
    openGuest: (options) => parts.openGuest(options),
    randomBytes: (count) => parts.randomBytes(count),
    openAnswers: parts.openAnswers ?? ((options) => new PortAnswers(options)),
    dropped: (what) => unanswered.count(what),
    noteGuest: (live, text) => {
      try {
        records.shown(live, text);
      } catch (thrown) {
        log.warn({ pod_id: live.plan.podId, err: thrown }, "Failed to record the guest's state");
      }
    },
    learn: (live, text, next) => records.learn(live, text, next),
    recordRun: (plan, record) => records.started(plan.podId, record),
    processes: {
      logsDir: join(parts.config.stateDir, "logs"),
      starts: (plan) => records.processes.starts(plan),
      ended: (plan, end) => {
        try {
          records.processes.set(plan, { end, endedMs: parts.clock.now() }, endText(end));
        } catch (err) {
          log.warn({ pod_id: plan.podId, err }, "Failed to record the end of the main process");
        }
      },
    },
    timeouts: parts.config.timeouts,
  };
}

/**
 * With another firewall than before, what is published by pods and containers that run is let in
 * before networks judge it.
 */
async function publishFirst(
  network: HostNetwork,
  db: Database,
  { cni }: Pick<Config, "cni">,
): Promise<void> {
  const pods = listPodsWithMachine(db);
  const containers = listAttachments(db).filter(({ state }) => state === "ready");
  const definitions = listNetworks(db).map(({ definition }) => definition);
  const fragments = [
    ...pods.map(({ plan }) => portsOf(plan, definitions)),
    ...containers.map(({ plan }) => hostPart(attachmentFragment(plan, definitions, cni))),
  ];
  await network.apply({ kind: "running-pods", pods: fragments }, AbortSignal.timeout(60_000));
}

const hasMachine = ({ state }: PodRow): boolean => state === "running" || state === "paused";

/**
 * Removes what bears our mark and belongs to no row, and rules of pods that do not run: all in
 * one commit.
 */
async function sweep(network: HostNetwork, records: PodRecords, db: Database): Promise<void> {
  const known = {
    // Of one whose record is damaged the links stay: its machine may run.
    pods: records.ids(),
    ruled: new Set<string>(records.listWithMachine().map(({ id }) => id)),
    networks: new Set<string>(listNetworks(db).map(({ definition }) => definition.name)),
    attachments: attachmentIds(db),
    services: new Set<string>(listServices(db).map(({ name }) => name)),
  };
  await network.remove({ kind: "orphans", known }, AbortSignal.timeout(60_000));
}
