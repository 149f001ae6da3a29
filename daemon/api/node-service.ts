import { hostname, release } from "node:os";
import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/node_service_pb.ts";
import { toErrorInfo } from "../../api/codes.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { overlayDirectories, removeLeftOverlays } from "../../hypervisor/disks/copy-on-write.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { version } from "../../api/version.ts";
import { rowText } from "../containers/row-text.ts";
import { answeredKey } from "./http/answered.ts";
import { callerKey } from "../listeners/callers.ts";
import { note, type ServiceParts } from "./context.ts";
import { diffHost } from "./diff-view.ts";
import { healthChecks } from "./http/health-checks.ts";
import { peerKey, peerText } from "../listeners/peer.ts";
import type { MachinePool } from "../pods/pool/pool.ts";
import { stateOf } from "../pods/store/pod-rows.ts";
import { time } from "./views.ts";

/** The node service: what this node is, how it fares, and the end of it. */
export function nodeService(parts: ServiceParts): ServiceImpl<typeof wire.NodeService> {
  return {
    async info(_request, context) {
      const known = await info(parts, context.signal);
      const caller = peerText(context.values.get(peerKey));
      return { ...known, caller, role: context.values.get(callerKey)?.role ?? "" };
    },
    async health(_request, context) {
      const checks = await healthChecks(parts, context.signal);
      return {
        checks,
        ok: checks.every(({ status }) => status !== wire.HealthCheck_Status.FAILED),
      };
    },
    diff: (_request, context) => diffHost(parts, context.signal),
    async down({ planOnly }, context) {
      if (planOnly) return { removed: downPlan(parts) };
      note(parts, context, "down");
      const removed = await down(parts);
      // Not before: the end of the daemon would take this answer with it.
      context.values.get(answeredKey)(() => parts.end());
      return { removed };
    },
    async listPools() {
      const { pool } = parts.pods;
      return {
        pools: await poolViews(pool),
        drained: pool.isDrained,
        unlike: BigInt(pool.unlike),
      };
    },
    async fillPools(_request, context) {
      note(parts, context, "fill the pools");
      const { pool } = parts.pods;
      await pool.fill(context.signal);
      return { pools: await poolViews(pool) };
    },
    async drainPools(_request, context) {
      note(parts, context, "drain the pools");
      return { ended: await parts.pods.pool.drain() };
    },
    logLevel({ level }, context) {
      const { logLevel, config } = parts;
      if (level !== "") {
        const next = validateLogLevel(level);
        const before = logLevel.level;
        // Whatever the levels are, the log says who changed them.
        logLevel.level = "info";
        note(parts, context, `log level ${next} instead of ${before}`);
        logLevel.level = next;
      }
      return { level: logLevel.level, configured: config.logLevel };
    },
  };
}

/** Levels that a log can have; it cannot be silenced. */
const logLevels = ["trace", "debug", "info", "warn", "error"] as const;

function validateLogLevel(text: string): (typeof logLevels)[number] {
  const level = logLevels.find((each) => each === text);
  if (level !== undefined) return level;
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is no log level`, {
    field: "level",
    hint: `Levels are ${logLevels.join(", ")}`,
  });
}

async function poolViews(pool: MachinePool): Promise<wire.Pool[]> {
  if (!pool.isUsed) return [];
  return (await pool.view()).map(({ boots, image, error, memoryBytes, claimed, missed, ...now }) =>
    create(wire.PoolSchema, {
      ...now,
      image: image ?? "",
      kernel: boots?.kernel ?? "",
      initrd: boots?.initrd ?? "",
      memoryBytes: BigInt(memoryBytes),
      claimed: BigInt(claimed),
      missed: BigInt(missed),
      ...(error && { error: toErrorInfo(error) }),
    }),
  );
}

async function info(parts: ServiceParts, signal: AbortSignal): Promise<wire.InfoResponse> {
  const { config, pods, host, startedMs } = parts;
  const { arch, accelerators, nicSlots } = host.driver.capabilities();
  const states: Record<string, number> = {};
  for (const { state } of pods.listAny().map(stateOf)) states[state] = (states[state] ?? 0) + 1;
  return create(wire.InfoResponseSchema, {
    version,
    pid: process.pid,
    startedAt: time(startedMs),
    hostname: hostname(),
    kernel: release(),
    arch: process.arch === "x64" ? "x86_64" : "aarch64",
    nodeVersion: process.versions.node,
    driver: host.driver.name,
    qemuVersion: await parts.qemu.version(),
    accelerator: accelerators[arch],
    machineArch: arch,
    firewall: await firewall(parts, signal),
    stateDir: config.stateDir,
    disksDir: config.disksDir,
    runDir: config.runDir,
    defaultNetwork: config.network.name,
    defaultKernel: config.image.kernel,
    defaultInitrd: config.image.initrd,
    nicSlots,
    pods: states,
  });
}

const firewalls = {
  nft: "iptables-nft",
  legacy: "iptables-legacy",
  off: "disabled",
  nftables: "nftables",
} as const;

/**
 * The current backend of firewall rules. If it cannot be determined, the rest is still reported.
 */
async function firewall({ network }: ServiceParts, signal: AbortSignal): Promise<string> {
  try {
    const written = firewalls[(await network.observe.facts(signal)).firewall];
    const { guardLacking } = network.observe;
    return guardLacking.length === 0 ? written : `${written}; without ${guardLacking.join(", ")}`;
  } catch {
    return "unreadable";
  }
}

function downPlan({
  config,
  pods,
  attachments,
  networks,
  network,
  overlays,
  installation,
  services,
}: ServiceParts): string[] {
  const rows = pods.listAny();
  const left = overlayDirectories(config.disksDir).filter(
    (id) => !rows.some((row) => row.id === id),
  );
  return [
    ...rows.map(({ name }) => `pod ${name}`),
    ...attachments.listAny().map(rowText),
    ...installation.paths(),
    ...left.map((id) => `what pod ${id} wrote, of which there is no record`),
    ...networks.fragments().flatMap((fragment) => [...network.describe(fragment)]),
    ...services.describe(),
    ...(overlays?.list() ?? []).flatMap(({ name }) => [...(overlays?.planned(name) ?? [])]),
  ];
}

/**
 * Deletes every pod, takes every container off its network, then everything podnet made on the
 * host. A stuck pod does not stop it. When something of it fails the node is as usable as before,
 * without the pods that are gone, and may be asked again.
 */
async function down(parts: ServiceParts): Promise<string[]> {
  const { pods, attachments, network, networks, drift, overlays, log } = parts;
  pods.refuse();
  attachments.refuse();
  const goOn = await drift?.rest();
  const goOnOverlays = await overlays?.rest();
  try {
    return await takeDown(parts);
  } catch (thrown) {
    for (const fragment of networks.fragments())
      await network.apply(fragment, AbortSignal.timeout(60_000)).catch((err: unknown) => {
        log.error({ network: fragment.key, err }, "Failed to restore the network");
      });
    await networks.answerNames();
    pods.admit();
    attachments.admit();
    goOn?.();
    goOnOverlays?.();
    throw toPodnetError(thrown).with({
      hint: "podnetd continues; fix the problem and try again: podnet down",
    });
  }
}

/**
 * Longest attempt to notify other hosts that this one's pods are gone, milliseconds; they find out
 * in the end.
 */
const withdrawMs = 3000;

async function takeDown(parts: ServiceParts): Promise<string[]> {
  const { config, pods, attachments, network, networks, services } = parts;
  const { overlays, installation, log } = parts;
  const rows = pods.listAny();
  const ends = await Promise.allSettled(
    rows.map(async ({ id }) => {
      try {
        await pods.delete(id, { force: false });
      } catch (thrown) {
        log.warn({ pod_id: id, err: thrown }, "Deleting the pod by force");
        await pods.delete(id, { force: true });
      }
    }),
  );
  const failed = ends.find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
  const containers = await attachments.down();
  const plugin = installation.uninstall({ force: true });
  await removeLeftOverlays(config.disksDir);
  const ofOverlays = (await overlays?.down()) ?? [];
  services.forget();
  const changes = await networks.down(() =>
    network.remove({ kind: "everything" }, AbortSignal.timeout(60_000)),
  );
  await parts.hostRecords?.withdraw(AbortSignal.timeout(withdrawMs));
  return [
    ...rows.map(({ name }) => `pod ${name}`),
    ...containers.map(rowText),
    ...plugin,
    ...ofOverlays,
    ...changesText(changes),
  ];
}
