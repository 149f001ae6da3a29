import { failed, type Finding, ok, warning } from "./finding.ts";
import type { Host } from "./host.ts";
import type { Settings } from "./settings.ts";

/** podnetd's unit, files and surroundings. */
export async function serviceChecks(host: Host, settings: Settings): Promise<Finding[]> {
  return [
    ...configCheck(settings),
    await unitCheck(host),
    await socketCheck(host, settings.socket),
    ...(await roomChecks(host, settings)),
    await clockCheck(host),
    ...(await etcdChecks(host, settings.etcd)),
    ...(await kubernetesChecks(host, settings.kubernetes)),
  ];
}

const configCheck = ({ refused }: Settings): Finding[] =>
  refused === undefined
    ? []
    : [failed("configuration", `podnetd refuses it: ${refused}`, "See podnetd config --resolved")];

const unit = "podnetd.service";

async function unitCheck(host: Host): Promise<Finding> {
  const properties = "LoadState,ActiveState,SubState,Result,NRestarts,UnitFileState";
  const ran = await host.run(["systemctl", "show", unit, `--property=${properties}`]);
  const name = "systemd unit";
  if (ran === null || ran.code !== 0)
    return ok(name, "No systemd runs here: something else starts podnetd");
  const has = Object.fromEntries(ran.stdout.split("\n").map((text) => text.split("=", 2)));
  if (has["LoadState"] !== "loaded")
    return warning(
      name,
      `${unit} is not installed: podnetd does not start with the host`,
      "Install the package, or copy daemon/podnetd.service to /etc/systemd/system",
    );
  const restarts = Number(has["NRestarts"] ?? 0);
  const state = `${has["ActiveState"]} (${has["SubState"]})`;
  if (has["ActiveState"] === "active" && restarts > 0)
    return warning(
      name,
      `${unit} is ${state}, after ${restarts} restarts`,
      `See why: journalctl --unit ${unit}`,
    );
  if (has["ActiveState"] === "active") return ok(name, `${unit} is ${state}`);
  return {
    ...failed(
      name,
      `${unit} is ${state}${has["Result"] === "success" ? "" : `: ${has["Result"]}`}`,
      `systemctl start ${unit}; if it ends again: journalctl --unit ${unit}`,
    ),
    // Pods run on without podnetd: its start takes nothing from them.
    fix: ["systemctl", "start", unit],
  };
}

async function socketCheck(host: Host, path: string): Promise<Finding> {
  const found = await host.stat(path);
  if (found === null)
    return failed("socket", `"${path}" does not exist: podnetd does not run`, "Start podnetd");
  if (found.kind !== "socket")
    return failed("socket", `"${path}" is not a socket`, "Move it away, and start podnetd");
  const { uid, groups } = await host.self();
  const bits = found.uid === uid ? 0o200 : groups.includes(found.gid) ? 0o020 : 0o002;
  const mode = `mode ${found.mode.toString(8)}, uid ${found.uid}, gid ${found.gid}`;
  if (found.mode & 0o002)
    return warning(
      "socket",
      `Every user of the host may write to "${path}" (${mode})`,
      "Start podnetd again, which sets its mode; see docs/how-to/access.md",
    );
  return uid === 0 || found.mode & bits
    ? ok("socket", `You may use "${path}" (${mode})`)
    : failed(
        "socket",
        `You may not use "${path}" (${mode})`,
        "Become a member of its group, or of one in access.viewer: see docs/how-to/access.md",
      );
}

/** Below these podnetd, or its pods, soon cannot write, MiB. */
const room = { failed: 64, warning: 1024 } as const;

async function roomChecks(host: Host, settings: Settings): Promise<Finding[]> {
  const asked = [
    { name: "disk", path: settings.stateDir, least: room },
    // (A tmpfs of the host, which is small by itself.)
    { name: "run directory", path: settings.runDir, least: { failed: 8, warning: 32 } },
  ];
  return Promise.all(
    asked.map(async ({ name, path, least }) => {
      const free = (await host.room(path)) ?? (await host.room("/"));
      if (free === null) return warning(name, `"${path}" cannot be read`, "Look at it as root");
      const said = `${free.freeMib} of ${free.totalMib} MiB are free at "${path}"`;
      const hint = "Remove images (podnet image prune) and pods, or enlarge the filesystem";
      if (free.freeMib < least.failed) return failed(name, `Only ${said}`, hint);
      return free.freeMib < least.warning ? warning(name, `Only ${said}`, hint) : ok(name, said);
    }),
  );
}

/** No podnet is older than this. */
const earliestMs = Date.UTC(2025, 0, 1);

async function clockCheck(host: Host): Promise<Finding> {
  const { nowMs } = await host.self();
  const now = new Date(nowMs).toISOString();
  const hint = "Let it follow a time server: timedatectl set-ntp true";
  if (nowMs < earliestMs)
    return failed("clock", `It says ${now}: certificates are refused, and leases end early`, hint);
  const ran = await host.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"]);
  if (ran?.code === 0 && ran.stdout.trim() === "no")
    return warning("clock", `It says ${now}, and follows no time server`, hint);
  return ok("clock", `It says ${now}`);
}

async function etcdChecks(host: Host, endpoints: readonly string[]): Promise<Finding[]> {
  return Promise.all(
    endpoints.map(async (endpoint) => {
      const url = /^[a-z]+:\/\//.test(endpoint) ? endpoint : `http://${endpoint}`;
      if (!URL.canParse(url))
        return failed("etcd", "An endpoint is not a URL", "See podnetd config");
      const { hostname, port, protocol } = new URL(url);
      const at = `${hostname}:${port || (protocol === "https:" ? "443" : "2379")}`;
      const errno = await host.connectError(
        hostname.replaceAll(/^\[|\]$/g, ""),
        Number(at.split(":").at(-1)),
      );
      return errno === null
        ? ok("etcd", `${at} accepts connections`)
        : failed(
            "etcd",
            `${at} does not accept connections (${errno})`,
            "See that etcd runs, and that no firewall is in between",
          );
    }),
  );
}

/** (The files are not read: a report would keep the token that may be in one.) */
const kubernetesChecks = (host: Host, files: readonly string[]): Promise<Finding[]> =>
  Promise.all(
    files.map(async (file) => {
      const facts = await host.stat(file);
      return facts?.kind === "file"
        ? ok("kubernetes", `${file} is there`)
        : failed(
            "kubernetes",
            `${file} is not there`,
            "podnetd joins no other host without it: see overlay.kubernetes in podnetd config",
          );
    }),
  );
