import type { Host } from "./host.ts";

/** What the doctor wants of podnetd's configuration. */
export interface Settings {
  readonly stateDir: string;
  readonly runDir: string;
  readonly socket: string;
  /** Endpoints of etcd; empty where podnetd is in no overlay. */
  readonly etcd: readonly string[];
  /** Files by which podnetd joins the hosts of a Kubernetes cluster; empty where it does not. */
  readonly kubernetes: readonly string[];
  /** Why podnetd refuses its configuration, in its own words. */
  readonly refused?: string;
}

const programs = ["podnetd", "/opt/podnet/bin/podnetd"];

/**
 * The settings as podnetd's own command resolves them here; its defaults where it is missing. A
 * socket that the caller named counts more.
 */
export async function settingsOf(host: Host): Promise<Settings> {
  const settings = await resolvedSettings(host);
  const { socket = settings.socket } = await host.self();
  return { ...settings, socket };
}

async function resolvedSettings(host: Host): Promise<Settings> {
  for (const program of programs) {
    const ran = await host.run([program, "config", "--resolved"]);
    if (ran === null) continue;
    const values = valuesOf(ran.stdout);
    return {
      ...from(values),
      ...(ran.code === 0 ? {} : { refused: ran.stderr.trim().split("\n")[0] ?? "" }),
    };
  }
  return from(new Map());
}

/** Lines such as `state_dir = "/var/lib/podnet"  # default`. */
function valuesOf(text: string): ReadonlyMap<string, unknown> {
  return new Map(
    text.split("\n").flatMap((line) => {
      const [, key = "", value = ""] = /^([\w.]+)\s*=\s*(.*?)\s*# [^#]*$/.exec(line) ?? [];
      try {
        return key === "" ? [] : [[key, JSON.parse(value) as unknown] as const];
      } catch {
        return [];
      }
    }),
  );
}

function from(values: ReadonlyMap<string, unknown>): Settings {
  const text = (key: string, otherwise: string): string => {
    const value = values.get(key);
    return typeof value === "string" ? value : otherwise;
  };
  const etcd = [...values].flatMap(([key, value]) =>
    /(?:^|\.)(?:etcd_)?endpoints$/.test(key) && Array.isArray(value) ? value.map(String) : [],
  );
  return {
    stateDir: text("state_dir", "/var/lib/podnet"),
    runDir: text("run_dir", "/run/podnet"),
    socket: text("socket", "/run/podnet/podnet.sock"),
    etcd: [...new Set(etcd)],
    kubernetes:
      values.get("overlay.subnet_manager") === "kubernetes"
        ? ["overlay.kubernetes.kubeconfig", "overlay.kubernetes.net_conf"].flatMap(
            (key) => text(key, "") || [],
          )
        : [],
  };
}
