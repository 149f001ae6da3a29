import { existsSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import * as wire from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { ipOf } from "../../../core/address.ts";
import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import { changesText } from "../../../network/bridge/change-text.ts";
import { guardHint } from "../../../network/firewall/guarded.ts";
import { obstacleHint, obstacleText } from "../../../network/model/obstacle.ts";
import { rowText } from "../../containers/row-text.ts";
import { runDirProblem } from "../../store/run-room.ts";
import { isDamaged } from "../../pods/store/pod-rows.ts";
import type { ServiceParts } from "../context.ts";
import { overlayChecks } from "./overlay-checks.ts";

const { OK, WARNING, FAILED } = wire.HealthCheck_Status;

function check(
  name: string,
  status: wire.HealthCheck_Status,
  message: string,
  hint = "",
): wire.HealthCheck {
  return create(wire.HealthCheckSchema, { name, status, message, hint });
}

/** How this node fares, thing by thing. */
export async function healthChecks(
  parts: ServiceParts,
  signal: AbortSignal,
): Promise<wire.HealthCheck[]> {
  return [
    storeCheck(parts),
    runDirCheck(parts),
    ...(await networkChecks(parts, signal)),
    ...guardChecks(parts),
    ...(await forwardingChecks(parts, signal)),
    ...namesChecks(parts),
    ...qemuCheck(parts),
    ...imageChecks(parts),
    podsCheck(parts),
    ...containersCheck(parts),
    ...pluginCheck(parts),
    ...overlayChecks(parts.overlays),
  ];
}

/** A node that runs containers only may be without QEMU. */
function qemuCheck({ qemu }: ServiceParts): wire.HealthCheck[] {
  const missing = qemu.missing();
  if (missing === undefined) return [];
  const { message, hint = "" } = missing;
  return [check("qemu", WARNING, `containers only, no pod can start: ${message}`, hint)];
}

function storeCheck({ db, config }: ServiceParts): wire.HealthCheck {
  try {
    if (!db.hasRoom) throw db.noRoom();
    db.transaction(() => db.run("UPDATE meta SET value = value WHERE key = 'boot_id'"));
    return check("store", OK, `${config.stateDir}/state.db`);
  } catch (thrown) {
    const { message, hint } = toPodnetError(thrown);
    return check("store", FAILED, message, hint);
  }
}

function runDirCheck({ config: { runDir } }: ServiceParts): wire.HealthCheck {
  try {
    const problem = runDirProblem(runDir);
    if (problem === undefined) return check("run directory", OK, runDir);
    return check("run directory", FAILED, problem.message, problem.hint);
  } catch (thrown) {
    return check("run directory", FAILED, toPodnetError(thrown).message);
  }
}

async function networkChecks(
  { networks, network }: ServiceParts,
  signal: AbortSignal,
): Promise<wire.HealthCheck[]> {
  return Promise.all(
    networks.fragments().map(async (fragment) => {
      const name = `network ${fragment.key}`;
      try {
        const drift = await network.diff(fragment, signal);
        if (drift.length === 0)
          return check(name, OK, `bridge ${fragment.bridge} and its rules are as planned`);
        return check(
          name,
          WARNING,
          `differs from the plan: ${changesText(drift).join("; ")}`,
          "See what: podnet diff; podnetd repairs it every drift_s seconds, and at its start",
        );
      } catch (thrown) {
        const { message, hint } = toPodnetError(thrown);
        return check(name, FAILED, message, hint);
      }
    }),
  );
}

/**
 * Whether guests' frames are judged: forged senders, router advertisements, the cloud's metadata.
 */
const guardChecks = ({ network }: ServiceParts): wire.HealthCheck[] =>
  network.observe.guardLacking.map((why) =>
    check("guard", WARNING, `a part of it is not in force: ${why}`, guardHint),
  );

/** Foreign settings that keep pods from being reached, if any. */
async function forwardingChecks(
  { networks, network }: ServiceParts,
  signal: AbortSignal,
): Promise<wire.HealthCheck[]> {
  try {
    const obstacles = await network.observe.obstacles(networks.fragments(), signal);
    return obstacles.map((each) =>
      check("forwarding", WARNING, obstacleText(each), obstacleHint(each)),
    );
  } catch (thrown) {
    const { message, hint } = toPodnetError(thrown);
    return [check("forwarding", WARNING, message, hint)];
  }
}

/** Of each network whose pods are to ask podnet for names. */
function namesChecks({ networks, resolvers }: ServiceParts): wire.HealthCheck[] {
  return networks
    .list()
    .filter((each) => networks.isResolving(each))
    .map(({ name, subnets }) => {
      const error = resolvers.error(name);
      const gateways = subnets.map(({ gateway }) => ipOf(gateway)).join(" and ");
      return error === undefined
        ? check(`names ${name}`, OK, `pods ask ${gateways}, and find POD.${resolvers.domain}`)
        : check(`names ${name}`, WARNING, error.message, namesHint(error));
    });
}

const namesHint = ({ code, hint = "" }: PodnetError): string =>
  code === "PORT_IN_USE"
    ? "End that program or keep it off the bridge, or set dns.resolver = false; until then new pods ask the network's or the host's servers"
    : hint;

function imageChecks({ config }: ServiceParts): wire.HealthCheck[] {
  return [config.image.kernel, config.image.initrd].map((path) =>
    existsSync(path)
      ? check("image", OK, path)
      : check(
          "image",
          WARNING,
          `"${path}" is missing`,
          "Build the default image: scripts/build-image",
        ),
  );
}

/** Nothing where there are no containers. */
function containersCheck({ attachments }: ServiceParts): wire.HealthCheck[] {
  const rows = attachments.listAny();
  if (rows.length === 0) return [];
  const reported = rows.flatMap((row) => {
    const trouble = attachments.troubleOf(row);
    return trouble === undefined ? [] : [`${rowText(row)}: ${trouble}`];
  });
  return reported.length === 0
    ? [check("containers", OK, `${rows.length} attached, as planned`)]
    : [check("containers", WARNING, reported.join("; "), "See which: podnet cni list")];
}

/** Nothing where no plugin was installed. */
function pluginCheck({ installation, config }: ServiceParts): wire.HealthCheck[] {
  const { installed, trouble } = installation;
  if (installed !== undefined && !config.cni.enabled)
    return [
      check(
        "cni plugin",
        WARNING,
        `container runtimes find it in ${installed.dir}, and podnetd does not serve them`,
        "Set cni.enabled to true, or remove the plugin: podnet cni uninstall",
      ),
    ];
  if (trouble !== undefined)
    return [
      check(
        "cni plugin",
        WARNING,
        `container runtimes are not served as installed: ${trouble.message}`,
        `${trouble.hint ?? "See podnetd's log"}; then podnet cni install, or start podnetd anew`,
      ),
    ];
  return installed === undefined
    ? []
    : [check("cni plugin", OK, `${installed.binDir} and ${installed.dir} have this podnetd's`)];
}

function podsCheck({ pods }: ServiceParts): wire.HealthCheck {
  const reported = pods.listAny().flatMap((row) => {
    if (isDamaged(row)) return [row.damage.message];
    const { name, state, reason } = row;
    if (state === "failed") return [`${name} has failed`];
    // A running pod with a reason runs on and lacks something: its agent, say.
    return (state === "running" || state === "paused") && reason !== undefined
      ? [`${name}: ${reason}`]
      : [];
  });
  if (reported.length === 0) return check("pods", OK, "none has failed");
  return check("pods", WARNING, reported.join("; "), "See more: podnet get POD");
}
