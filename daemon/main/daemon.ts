import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { systemClock } from "../../core/clock.ts";
import { loopTurns } from "../../linux/loop-turns.ts";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { helperUids } from "../../hypervisor/jail/uids.ts";
import { openQemuDriver, type QemuDriver } from "../../hypervisor/qemu/driver.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { openKeptTap, openTap } from "../../linux/tun.ts";
import { openRehearsalRoom } from "../pods/pool/rehearsal-room.ts";
import { Installation } from "../containers/cni/installation.ts";
import { serveCni } from "../containers/cni/serve-cni.ts";
import { degradedKeys } from "../reconcile/queues.ts";
import { PendingDels } from "../containers/cni/pending-dels.ts";
import { watchPending } from "../containers/cni/watch-pending.ts";
import type { Config } from "../config/config.ts";
import { guardHint } from "../../network/firewall/guarded.ts";
import { obstacleHint, obstacleText } from "../../network/model/obstacle.ts";
import { Defects } from "./defects.ts";
import { lockCgroups, lockDisks, lockNetns, lockPlaces, lockState } from "../store/lock.ts";
import { ImageJobs } from "../images/image-jobs.ts";
import { imagesProgram, workerMemoryMib } from "../../images/worker/program.ts";
import { DriftWatch } from "../drift/drift.ts";
import type { Log, LogThreshold } from "../../linux/log.ts";
import { oneLook } from "./metrics.ts";
import { openNode } from "./node.ts";
import { usageOfPods } from "./pod-metrics.ts";
import { withLeasedNetwork } from "../overlays/lease/configured-network.ts";
import { openHostRecords } from "../overlays/records/open-host-records.ts";
import { otherPods } from "../overlays/records/other-pods.ts";
import { openOverlays } from "../overlays/open-overlays.ts";
import { HostQemu } from "./host-qemu.ts";
import { withFirewall } from "./firewall-choice.ts";
import { checkHost } from "./preflight.ts";
import { plansDirectory } from "../pods/store/kept-plans.ts";
import { awaitTemplateGuest } from "../pods/guest/template-guest.ts";
import { HostRelay } from "../policies/relay-process.ts";
import { relayProgram } from "../../relay/program.ts";
import { serveApi } from "../api/api-server.ts";
import type { ServiceParts } from "../api/context.ts";
import { healthPage } from "../api/http/health-pages.ts";
import { serveCri } from "../cri/serve-cri.ts";
import { serveHyperd } from "../hyperd/serve-hyperd.ts";
import { addRoutes } from "../api/routes.ts";
import { runDirProblem } from "../store/run-room.ts";
import { Exporter } from "../telemetry/exporter.ts";
import { tracedCalls } from "../telemetry/traced-calls.ts";
import { Tally } from "../events/tally.ts";
import { Lifetimes } from "../pods/lifetime/lifetimes.ts";
import { packetsOf } from "./pod-packets.ts";
import { placedCounters, tapsOf } from "../traffic/counters.ts";
import { TrafficTotals } from "../traffic/totals.ts";
import { keepSafe } from "../store/keep-safe.ts";
import { openState, watchRoom } from "../store/open-state.ts";
import { watchStopped } from "./watch-stopped.ts";

/** The plugin of container runtimes, as `scripts/build-cni` makes it. */
const builtPlugin = join(import.meta.dirname, "../../build/cni-plugin/podnet-cni");

const checkout = join(import.meta.dirname, "../..");

/** Longest a look at others' rules may take at a start, milliseconds. */
const obstaclesMs = 10_000;

/** Longest that a look at what was refused may wait for changes of the host, milliseconds. */
const refusalsMs = 5000;

/** The logs of podnetd's components, and the level that all of them have. */
export interface Logs {
  readonly level: LogThreshold;
  readonly of: (component: string) => Log;
}

export interface Daemon {
  /** Resolves when programs on the host have been notified of the subnets that overlays gave it. */
  reported(): Promise<void>;
  /**
   * Takes nothing new, lets what is under way end within `graceMs`, and lets go of pods, which run
   * on.
   */
  close(graceMs: number): Promise<void>;
}

/**
 * Starts everything, in order: checks, lock, rows, host, pods, API. Undoes it all when one fails.
 * `end` is called when podnetd has to end: on request, or with the error that stops it.
 */
export async function openDaemon(
  configured: Config,
  { of: logOf, level: logLevel }: Logs,
  end: (why?: PodnetError) => void,
): Promise<Daemon> {
  const startedMs = systemClock.now();
  checkHost();
  await using opened = new AsyncDisposableStack();
  const defects = opened.use(new Defects(logOf("main"), systemClock));
  opened.use(lockState(configured.stateDir));
  opened.use(await lockNetns(configured.network.bridge));
  makeRunDirs(configured);
  opened.use(openDisksDir(configured));
  opened.use(lockPlaces(configured));
  warnOfRunDir(configured, logOf("main"));
  const qemu = await HostQemu.open(configured);
  const { confinement } = qemu;
  warnOfQemu(qemu, logOf("main"));
  if (confinement !== undefined) opened.use(lockCgroups(confinement.cgroups));
  const db = opened.use(openState(configured.stateDir, logOf("store")));
  const safe = opened.use(new AsyncDisposableStack());
  const config = withFirewall(withLeasedNetwork(configured, db), db);
  // Acting on damaged rows may do harm; machines run on without rows.
  db.whenDamaged(end);
  const node = opened.use(
    await openNode({
      turns: loopTurns,
      config,
      db,
      driver: opened.use(await openDriver(config, qemu, logOf("hypervisor"))),
      confinement,
      clock: systemClock,
      bootId: bootId(),
      openTap: (name, options) =>
        options?.kept === true
          ? openKeptTap(name)
          : openTap(name, { queues: options?.queues ?? 1 }),
      openRehearsalRoom,
      openGuest: (options) => openGuest(options),
      randomBytes: (count) => randomBytes(count),
      relay: new HostRelay({
        program: relayProgram(checkout, process.execPath),
        directory: join(config.runDir, "relay"),
        port: config.relayPort,
        uid: confinement === undefined ? undefined : helperUids(confinement.uids).relay,
      }),
      agentsLater: true,
      logOf,
    }),
  );
  opened.use(watchRoom(db, logOf("store")));
  node.metrics.includeProcess();
  node.metrics.followDefects(() => defects.counts);
  node.metrics.followQueues(degradedKeys);
  // Of a state that agrees with the machines that run; disposed of before the database, and after
  // all that writes to it.
  safe.use(await keepSafe({ db, file: join(config.stateDir, "state.db"), log: logOf("store") }));
  warnOfGuard(node, logOf("network"));
  await warnOfObstacles(node, logOf("network"));

  const { driftMs: everyMs } = config;
  const drift =
    everyMs === 0
      ? {}
      : {
          drift: opened.use(
            DriftWatch.open({ ...node, clock: systemClock, log: logOf("drift"), everyMs }),
          ),
        };

  opened.use(watchStopped(node, db, logOf, config));

  const overlays = await openOverlays(config, db, node, logOf("overlay"));
  if (overlays !== undefined) opened.use(overlays);
  const records =
    overlays?.records === undefined || config.overlay === undefined
      ? {}
      : {
          hostRecords: opened.use(
            openHostRecords({
              config,
              prefix: config.overlay.prefix,
              etcd: overlays.records,
              overlays,
              db,
              services: node.services,
              journal: node.journal,
              clock: systemClock,
              log: logOf("overlay"),
            }),
          ),
        };
  if (records.hostRecords === undefined) node.services.share(undefined);
  if (overlays !== undefined && records.hostRecords !== undefined)
    node.resolvers.reportOn(otherPods(overlays, records.hostRecords.remote));

  const netlink = opened.use(Rtnetlink.open());
  const totals = new TrafficTotals();
  const countLinks = oneLook(() =>
    placedCounters(
      netlink,
      node.pods.held().flatMap(({ plan }) => tapsOf(plan.interfaces)),
    ),
  );
  const countPods = async () => {
    // A foreign tap has counted before, and does so afterwards.
    const ports = [...node.pods.runningPorts(), ...node.pods.runningJoins()];
    const ours = new Set<string>(ports.map(({ tap }) => tap));
    const links = await countLinks();
    return totals.add(new Map([...links].filter(([tap]) => ours.has(tap))));
  };
  await countPods();
  node.metrics.followTraffic(countPods);
  opened.use(
    new Lifetimes({
      ...node,
      count: async (pods) => packetsOf(pods, await countLinks()),
      clock: systemClock,
      log: logOf("pod"),
    }),
  );
  // (Where rules cannot be read, the other metrics are shown.)
  const lookAtRefusals = async () => {
    const { observe } = node.network;
    const refusals = await observe.refusals(AbortSignal.timeout(refusalsMs)).catch(() => []);
    const drops = await observe.drops(AbortSignal.timeout(refusalsMs)).catch(() => []);
    const denials = await node.denials.list(AbortSignal.timeout(refusalsMs)).catch(() => []);
    return { refusals, drops, denials };
  };
  if (config.podMetrics)
    node.metrics.followPods(async () =>
      usageOfPods(node.pods.held(), await countLinks(), systemClock, await lookAtRefusals()),
    );

  const installation = new Installation({
    db,
    settings: config.cni,
    program: builtPlugin,
    containers: () => node.attachments.listAny().filter(({ state }) => state !== "deleting").length,
    log: logOf("cni"),
  });
  const imageJobs = opened.use(
    new ImageJobs({
      db,
      images: node.images,
      config: config.images,
      worker: {
        program: imagesProgram(checkout, process.execPath),
        jail:
          confinement === undefined
            ? undefined
            : {
                uid: helperUids(confinement.uids).images,
                cgroups: confinement.cgroups,
                memoryMib: workerMemoryMib,
              },
      },
      architecture: config.qemu.arch === "x86_64" ? "amd64" : "arm64",
      clock: systemClock,
      log: logOf("images"),
    }),
  );
  await imageJobs.recover();
  const parts: ServiceParts = {
    ...node,
    installation,
    imageJobs,
    qemu,
    ...drift,
    ...(overlays === undefined ? {} : { overlays }),
    ...records,
    netlink,
    config,
    db,
    log: logOf("api"),
    startedMs,
    logLevel,
    end: () => end(),
  };
  const refusals = new Tally(logOf("api"), "Callers refused or disconnected", (reason) =>
    node.metrics.refused(reason),
  );
  opened.defer(() => refusals.close());
  const { pendingDir } = config.cni;
  const pending = new PendingDels({
    directory: pendingDir,
    attachments: node.attachments,
    log: logOf("cni"),
  });
  const cni = config.cni.enabled
    ? await serveCni({
        path: config.cni.socket,
        access: config.access,
        limits: config.limits,
        attachments: node.attachments,
        carryOutPending: () => pending.carryOut(),
        refused: (reason) => refusals.count(reason),
        done(command, code, ms, error) {
          node.metrics.attachmentAsked(command, code, ms);
          if (error !== undefined)
            logOf("cni").warn({ command, err: error }, "A runtime's request failed");
        },
      })
    : undefined;
  const watching =
    cni &&
    opened.use(
      watchPending(pendingDir, () => void guard("cni", () => pending.carryOut()), logOf("cni")),
    );
  if (cni !== undefined) installation.present();
  // Callers who need a guest wait for its agent, which is being reached.
  node.pods.reachAgents();
  const { criSocket } = config;
  const cri =
    criSocket === undefined
      ? undefined
      : await serveCri(criSocket, parts, (reason) => refusals.count(reason)).catch(
          async (thrown: unknown) => {
            await cni?.close(0);
            throw thrown;
          },
        );
  const { hyperdSocket } = config;
  const hyperd =
    hyperdSocket === undefined
      ? undefined
      : await serveHyperd(hyperdSocket, parts, (reason) => refusals.count(reason)).catch(
          async (thrown: unknown) => {
            await Promise.all([cri?.close(0), cni?.close(0)]);
            throw thrown;
          },
        );
  const exporter =
    config.tracesUrl === undefined
      ? undefined
      : opened.use(new Exporter({ url: config.tracesUrl, log: logOf("telemetry") }));
  if (exporter !== undefined) node.metrics.followSpans(() => exporter.dropped);
  // Last of all: callers of the API find podnetd complete, containers included.
  const api = await serveApi({
    unix: { path: config.socket, group: config.socketGroup },
    tcp: config.tcp,
    access: config.access,
    limits: config.limits,
    refused: (reason) => refusals.count(reason),
    routes: (router) => addRoutes(router, parts),
    interceptors: exporter === undefined ? [] : [tracedCalls(exporter, systemClock)],
    metrics: () => node.metrics.render(),
    health: (page) => healthPage(parts, page),
  }).catch(async (thrown: unknown) => {
    // A caller must not be answered from a closed database.
    await Promise.all([hyperd?.close(0), cri?.close(0), cni?.close(0)]);
    throw thrown;
  });
  node.metrics.followConnections(
    () => api.connections + (cri?.connections ?? 0) + (hyperd?.connections ?? 0),
  );
  const held = opened.move();
  return {
    reported: () => overlays?.notified() ?? Promise.resolve(),
    async close(graceMs) {
      await using _held = held;
      watching?.[Symbol.dispose]();
      // Calls under way still get their answers; then the connections end.
      await Promise.all([node.pods.close(graceMs), node.attachments.close(graceMs)]);
      const others = [hyperd, cri, cni].map((each) => each?.close(1000));
      await Promise.all([api.close(1000), ...others]);
    },
  };
}

/**
 * Says which guests' frames are not judged, and why, where the kernel or a library lacks what that
 * takes.
 */
function warnOfGuard({ network }: Pick<ServiceParts, "network">, log: Log): void {
  for (const why of network.observe.guardLacking)
    log.warn({ why, hint: guardHint }, "A part of the guard is not in force on this host");
}

/**
 * Logs obstacles that keep pods from being reached, and that podnetd cannot change; a failed check
 * does not prevent the start.
 */
async function warnOfObstacles(
  { network, networks }: Pick<ServiceParts, "network" | "networks">,
  log: Log,
): Promise<void> {
  try {
    const limit = AbortSignal.timeout(obstaclesMs);
    for (const each of await network.observe.obstacles(networks.fragments(), limit))
      log.warn({ hint: obstacleHint(each) }, obstacleText(each));
  } catch (err) {
    log.warn({ err }, "Failed to look for foreign rules that drop forwarded packets");
  }
}

/** A node may run containers only. */
function warnOfQemu(qemu: HostQemu, log: Log): void {
  const err = qemu.missing();
  if (err !== undefined)
    log.warn({ err, hint: err.hint }, "QEMU is not installed: only containers work, not pods");
}

/**
 * Running pods do not need room in the run directory, and can be stopped and deleted: that it is
 * full does not prevent the start.
 */
function warnOfRunDir({ runDir }: Config, log: Log): void {
  const problem = runDirProblem(runDir);
  if (problem !== undefined) log.error({ err: problem }, "VMs cannot start yet");
}

function makeRunDirs(config: Config): void {
  try {
    perform("file", "make run directories", () => {
      mkdirSync(config.runDir, { recursive: true, mode: 0o755 });
      mkdirSync(config.podsDir, { recursive: true, mode: 0o700 });
      mkdirSync(plansDirectory(config), { recursive: true, mode: 0o700 });
    });
  } catch (cause) {
    throw new PodnetError("PREFLIGHT_FAILED", `Run directory "${config.runDir}" cannot be made`, {
      field: "run_dir",
      hint: "Run podnetd as root, or choose another --run-dir",
      cause,
    });
  }
}

/** One in the state directory is locked with it. */
function openDisksDir({ stateDir, disksDir }: Config): Disposable {
  if (dirname(disksDir) !== stateDir) return lockDisks(disksDir);
  try {
    perform("file", "make disks directory", () =>
      mkdirSync(disksDir, { recursive: true, mode: 0o700 }),
    );
  } catch (cause) {
    throw new PodnetError("STATE_UNWRITABLE", `Directory "${disksDir}" cannot be made`, {
      hint: "Make room on its filesystem, or choose another --disks-dir",
      cause,
    });
  }
  return new DisposableStack();
}

function openDriver(config: Config, qemu: HostQemu, log: Log): Promise<QemuDriver> {
  // Where it is not installed yet it is looked for at each start of a machine.
  const configuredQemu = config.qemu.path ?? qemu.path;
  return openQemuDriver({
    arch: config.qemu.arch,
    ...(configuredQemu === undefined ? {} : { qemuPath: configuredQemu }),
    prepare: (program) => qemu.prepare(program),
    kvm: config.qemu.kvm,
    // The planner knows whether a machine is to boot the default image, and refuses what that
    // cannot do with.
    leastMemoryMib: 1,
    awaitGuest: awaitTemplateGuest(openGuest, config.timeouts.readyMs),
    log: (level, message, fields) => log[level](fields, message),
  });
}
