import { HealthCheck_Status as Status } from "../../api/gen/podnet/v1/node_service_pb.ts";
import type { Podnet } from "../../api/client.ts";
import { version } from "../../api/version.ts";
import { isPodnetError, toPodnetError } from "../../core/errors.ts";
import { failed, type Finding, ok, warning } from "./finding.ts";

/** podnetd may be slow on a host under load; one that hangs must not hold the doctor up. */
const answerMs = 20_000;

/** What podnetd says of itself, and whether all parts have one version. */
export async function daemonChecks(podnet: Podnet, signal: AbortSignal): Promise<Finding[]> {
  const options = { signal, timeoutMs: answerMs };
  try {
    const info = await podnet.node.info({}, options);
    const { checks } = await podnet.node.health({}, options);
    const { pods } = await podnet.pods.list({}, options);
    const agents = new Set(pods.flatMap(({ guest }) => guest?.agent || []));
    return [
      ok("podnetd", `It answers at ${podnet.target}, as pid ${info.pid}`),
      versionsCheck(info.version, [...agents]),
      ...checks.map(({ name, status, message, hint }) => ({
        name: `podnetd: ${name}`,
        status: statuses[status] ?? "failed",
        message: message || "As it should be",
        hint: status === Status.OK ? "" : hint,
      })),
    ];
  } catch (thrown) {
    signal.throwIfAborted();
    const { message, hint = "" } = toPodnetError(thrown);
    const isAbsent = isPodnetError(thrown, "DAEMON_UNREACHABLE");
    return [failed("podnetd", message, isAbsent ? "Start it; its log says why it ended" : hint)];
  }
}

const statuses: Readonly<Partial<Record<Status, Finding["status"]>>> = {
  [Status.OK]: "ok",
  [Status.WARNING]: "warning",
  [Status.FAILED]: "failed",
};

function versionsCheck(daemon: string, agents: readonly string[]): Finding {
  const name = "versions";
  if (daemon !== version)
    return warning(
      name,
      `podnet is ${version}, and podnetd ${daemon}`,
      "Install one version of both, and start podnetd again; pods run on",
    );
  const others = agents.filter((each) => each !== version);
  return others.length === 0
    ? ok(name, `podnet, podnetd and the agents of running pods are ${version}`)
    : warning(
        name,
        `podnetd is ${version}, and some running pods have an agent ${others.join(" or ")}`,
        "Build the image again (scripts/build-image), and restart the pods when it suits: podnet restart POD",
      );
}
