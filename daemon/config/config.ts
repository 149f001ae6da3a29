import { availableParallelism } from "node:os";
import { join } from "node:path";
import type * as z from "zod";
import type { Role } from "../../api/roles.ts";
import { type Cidr, parseIp } from "../../core/address.ts";
import { tracesUrl } from "../../api/telemetry/collector-url.ts";
import { toPodnetError } from "../../core/errors.ts";
import { parsePortRange, type PortRange } from "../../linux/sockets/port-range.ts";
import type { Architecture } from "../../hypervisor/architecture.ts";
import { parseUidRange, type UidRange } from "../../hypervisor/jail/uids.ts";
import { parseChainName } from "../../network/firewall/iptables/rule.ts";
import { type AccessConfig, type AccessEntry, parseAccessEntry } from "./access.ts";
import type { NetworkDefinition } from "./network-definition.ts";
import { type CniSettings, cniSettings, type CniValues } from "./cni.ts";
import { addDerived, defaultLayer } from "./defaults.ts";
import { type DnsConfig, dnsConfig } from "./dns.ts";
import { configError, envLayer, fileLayer, flagLayer, type Layer, type Setting } from "./layers.ts";
import { type ImagesConfig, imagesConfig, type ImagesValues } from "./images.ts";
import { type ApiLimits, limitsConfig } from "./limits.ts";
import { networkConfig, type NetworkValues } from "./network.ts";
import { overlayConfig, type OverlayConfig, type OverlayValues } from "./overlay.ts";
import { type ConfigKey, configKeys, type configSchema } from "./schema.ts";
import { serviceCidrs } from "./service-cidrs.ts";
import { type PoolConfig, poolConfig } from "./pool.ts";
import type { Reader } from "./reader.ts";

export const defaultConfigFile = "/etc/podnet/config.toml";

export interface TcpConfig {
  readonly host: string;
  readonly port: number;
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string;
}

interface QemuConfig {
  readonly arch: Architecture;
  readonly path: string | undefined;
  readonly kvm: "auto" | "on" | "off";
  readonly confine: boolean;
  readonly uids: UidRange;
  readonly memoryOverheadMib: number;
  readonly pids: number;
  /** Relative to each cgroup hierarchy's mount point. */
  readonly cgroup: string;
}

/** The daemon's configuration, every value checked; every path is absolute. */
export interface Config {
  readonly stateDir: string;
  readonly runDir: string;
  /** Directories of the machines, one by pod id. */
  readonly podsDir: string;
  /** Network namespaces that CNI plugins set up for pods. */
  readonly netnsDir: string;
  /** Copy-on-write disks of pods, in directories by pod id. */
  readonly disksDir: string;
  /**
   * MiB that such a file may take, of a disk that does not say; 0: as much as its disk is large.
   */
  readonly diskMaxMib: number;
  readonly socket: string;
  readonly socketGroup: string | undefined;
  readonly logLevel: "trace" | "debug" | "info" | "warn" | "error";
  readonly tcp: TcpConfig | undefined;
  readonly access: AccessConfig;
  /** Where files lie that callers below admin may name. */
  readonly imagePaths: readonly string[];
  /** Where disks lie that callers below admin may write through to. */
  readonly writeThroughPaths: readonly string[];
  /** Where directories lie that callers below admin may share with their pods. */
  readonly sharePaths: readonly string[];
  /** Where directories lie that pods may write to. */
  readonly writableSharePaths: readonly string[];
  readonly limits: ApiLimits;
  /** Machines that may start at a time. */
  readonly startsAtATime: number;
  /** The default network, which pods join that name no network. */
  readonly network: NetworkDefinition;
  readonly dns: DnsConfig;
  /** How this host joins others; undefined when it does not. */
  readonly overlay: OverlayConfig | undefined;
  /** How container runtimes are served. */
  readonly cni: CniSettings;
  /** Socket of Kubernetes' runtime interface; undefined: it is not served. */
  readonly criSocket: string | undefined;
  /** Where containers of sandboxes have their logs, and their files from. */
  readonly cri: {
    readonly logPath: string;
    readonly mountPaths: readonly string[];
    /** Where programs, containers and ports are streamed. */
    readonly stream: Endpoint;
  };
  /** Socket of hyperd's REST API; undefined: it is not served. */
  readonly hyperdSocket: string | undefined;
  /** Directories that its callers may have copies of. */
  readonly hyperdMountPaths: readonly string[];
  /** Where spans of calls are sent; undefined: none are made. */
  readonly tracesUrl: URL | undefined;
  /** Whether /metrics shows each pod. */
  readonly podMetrics: boolean;
  readonly firewall: "auto" | "iptables" | "nftables";
  readonly iptablesChain: string;
  readonly iptablesVariant: "auto" | "nft" | "legacy";
  /** Where addresses of services come from: at most one of each family, IPv4 first. */
  readonly serviceCidrs: readonly Cidr[];
  readonly disableIptables: boolean;
  readonly guardEthertypes: readonly number[];
  /** Where the relay takes connections whose name decides. */
  readonly relayPort: number;
  /** Where denials of policies are written; undefined: nowhere. */
  readonly policyLog: { readonly path: string; readonly mostBytes: number } | undefined;
  /** Where host ports are chosen from; undefined is net.ipv4.ip_local_port_range. */
  readonly publishPorts: PortRange | undefined;
  readonly qemu: QemuConfig;
  readonly image: { readonly kernel: string; readonly initrd: string };
  /** Images of containers and disks, by name. */
  readonly images: ImagesConfig;
  readonly factory: "cold" | "template" | "pool";
  readonly pool: PoolConfig;
  /** Between looks for drift; 0 never looks. */
  readonly driftMs: number;
  readonly quarantineMs: number;
  readonly timeouts: {
    readonly createMs: number;
    readonly readyMs: number;
    readonly stopMs: number;
    readonly powerButtonMs: number;
  };
}

export interface ConfigSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Flags by dotted key. */
  readonly flags: ReadonlyMap<string, string>;
  /** File named with --config; undefined reads the default one if it is there. */
  readonly file: string | undefined;
  /**
   * The directory podnet itself runs from, whose `build/image` serves as default image when built.
   */
  readonly checkout: string;
}

export interface ResolvedConfig {
  readonly config: Config;
  /** Every key that has a value, with its origin, in the order of the schema. */
  readonly settings: readonly (readonly [ConfigKey, Setting])[];
}

/** Merges default < file < environment < flags and checks the whole. Throws `CONFIG_INVALID`. */
export function resolveConfig(sources: ConfigSources): ResolvedConfig {
  const file = sources.file ?? sources.env["PODNET_CONFIG"];
  const merged = new Map<string, Setting>();
  for (const layer of [
    defaultLayer(sources.env),
    fileLayer(file ?? defaultConfigFile, file !== undefined),
    envLayer(sources.env),
    flagLayer(sources.flags),
  ]) {
    for (const [key, setting] of layer) merged.set(key, setting);
  }
  addDerived(merged, sources.checkout);
  const settings = configKeys.flatMap((key) => {
    const setting = merged.get(key.key);
    return setting === undefined ? [] : [[key, setting] as const];
  });
  return { config: build(merged), settings };
}

/** The settings as the schema types them; what may be left out without a default is optional. */
type Values = Omit<
  z.infer<typeof configSchema>,
  | "socket_group"
  | "publish_ports"
  | "policy_log"
  | "tcp"
  | "qemu"
  | "network"
  | "overlay"
  | "cni"
  | "cri"
  | "hyperd"
  | "tracing"
  | "images"
> & {
  readonly cri: Omit<z.infer<typeof configSchema>["cri"], "socket"> & { readonly socket?: string };
  readonly hyperd: Omit<z.infer<typeof configSchema>["hyperd"], "socket"> & {
    readonly socket?: string;
  };
  readonly tracing?: z.infer<typeof configSchema>["tracing"];
  readonly cni: CniValues;
  readonly overlay: OverlayValues;
  readonly images: ImagesValues;
  readonly network: NetworkValues;
  readonly socket_group?: string;
  readonly publish_ports?: string;
  readonly policy_log?: string;
  readonly tcp?: Partial<z.infer<typeof configSchema>["tcp"]>;
  readonly qemu: Partial<Pick<z.infer<typeof configSchema>["qemu"], "path">> &
    Omit<z.infer<typeof configSchema>["qemu"], "path">;
};

/** Converts dotted keys to nested tables. Each value has passed its own schema already. */
function nested(merged: Layer): Values {
  const tree: Record<string, unknown> = {};
  for (const [key, { value }] of merged) {
    const tables = key.split(".");
    const last = tables.pop() as string;
    let table = tree;
    for (const name of tables) table = (table[name] ??= {}) as Record<string, unknown>;
    table[last] = value;
  }
  return tree as Values;
}

function build(merged: Layer): Config {
  const values = nested(merged);
  const read: Reader = (key, value, parse) => {
    try {
      return parse(value);
    } catch (thrown) {
      const error = toPodnetError(thrown);
      const { origin } = merged.get(key) as Setting;
      throw configError(key, origin, `is not usable: ${error.message}`, error.hint ?? "", error);
    }
  };
  const { timeouts } = values;
  return {
    stateDir: values.state_dir,
    runDir: values.run_dir,
    podsDir: join(values.run_dir, "pods"),
    netnsDir: join(values.run_dir, "netns"),
    disksDir: values.disks_dir,
    diskMaxMib: values.disk_max_mib,
    socket: values.socket,
    socketGroup: values.socket_group,
    logLevel: values.log_level,
    tcp: tcpConfig(values, merged, read),
    access: accessConfig(values, read),
    imagePaths: values.access.image_paths,
    writeThroughPaths: values.access.write_through_paths,
    sharePaths: values.access.share_paths,
    writableSharePaths: values.access.writable_share_paths,
    limits: limitsConfig(values.limits),
    startsAtATime: values.limits.starts || 4 * availableParallelism(),
    network: networkConfig(values.network, read),
    dns: dnsConfig(values.dns, read),
    overlay: overlayConfig(values.overlay, read),
    cni: cniSettings(values.cni, read),
    criSocket: values.cri.socket,
    cri: {
      logPath: values.cri.log_path,
      mountPaths: values.cri.mount_paths,
      stream: read("cri.stream_address", values.cri.stream_address, parseEndpoint),
    },
    hyperdSocket: values.hyperd.socket,
    hyperdMountPaths: values.hyperd.mount_paths,
    tracesUrl:
      values.tracing === undefined
        ? undefined
        : read("tracing.endpoint", values.tracing.endpoint, tracesUrl),
    podMetrics: values.metrics.pods,
    firewall: values.firewall,
    iptablesChain: read("iptables_chain", values.iptables_chain, parseChainName),
    iptablesVariant: values.iptables_variant,
    serviceCidrs: read("service_cidrs", values.service_cidrs, serviceCidrs),
    disableIptables: values.disable_iptables,
    guardEthertypes: values.guard_ethertypes,
    relayPort: values.relay_port,
    policyLog:
      values.policy_log === undefined
        ? undefined
        : { path: values.policy_log, mostBytes: values.policy_log_mib * 2 ** 20 },
    publishPorts:
      values.publish_ports === undefined
        ? undefined
        : read("publish_ports", values.publish_ports, parsePortRange),
    qemu: qemuConfig(values, read),
    image: values.image,
    images: imagesConfig(values.images, values.state_dir, read),
    factory: values.factory,
    pool: poolConfig(values.pool, read),
    driftMs: values.drift_s * 1000,
    quarantineMs: values.quarantine_s * 1000,
    timeouts: {
      createMs: timeouts.create_s * 1000,
      readyMs: timeouts.ready_s * 1000,
      stopMs: timeouts.stop_s * 1000,
      powerButtonMs: timeouts.power_button_s * 1000,
    },
  };
}

function accessConfig({ access }: Values, read: Reader): AccessConfig {
  const entries = (role: Role): readonly AccessEntry[] =>
    read(`access.${role}`, access[role], (list) => list.map(parseAccessEntry));
  return { viewer: entries("viewer"), operator: entries("operator"), admin: entries("admin") };
}

const qemuConfig = ({ qemu }: Values, read: Reader): QemuConfig => ({
  arch: qemu.arch,
  path: qemu.path,
  kvm: qemu.kvm,
  confine: qemu.confine === "on",
  uids: read("qemu.uids", qemu.uids, parseUidRange),
  memoryOverheadMib: qemu.memory_overhead_mib,
  pids: qemu.pids,
  cgroup: qemu.cgroup,
});

/** TCP is served only with all four of its settings: never without client certificates. */
function tcpConfig({ tcp }: Values, merged: Layer, read: Reader): TcpConfig | undefined {
  if (tcp === undefined) return undefined;
  const { address, cert, key, client_ca: clientCa } = tcp;
  if (address === undefined || cert === undefined || key === undefined || clientCa === undefined) {
    const keys = ["tcp.address", "tcp.cert", "tcp.key", "tcp.client_ca"];
    const present = keys.find((each) => merged.has(each)) ?? "tcp.address";
    const missing = keys.find((each) => !merged.has(each)) ?? "";
    throw configError(
      present,
      merged.get(present)?.origin ?? "",
      `needs "${missing}" as well`,
      "TCP is served with mutual TLS only: set address, cert, key and client_ca",
    );
  }
  return { ...read("tcp.address", address, parseEndpoint), cert, key, clientCa };
}

interface Endpoint {
  readonly host: string;
  readonly port: number;
}

function parseEndpoint(text: string): Endpoint {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535) {
    throw new TypeError("write ADDRESS:PORT, such as 127.0.0.1:7373 or [::1]:7373");
  }
  return { host: parseIp(match[1] ?? match[2] ?? ""), port };
}

/** Each value with its origin, one per line, for `podnetd config --resolved`. */
export function renderSettings(resolved: ResolvedConfig): string {
  const rows = resolved.settings.map(([key, { value, origin }]) => [
    key.key,
    JSON.stringify(value),
    origin,
  ]);
  const width = (column: number): number =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0));
  const [first, second] = [width(0), width(1)];
  return rows
    .map(
      ([key, value, origin]) => `${key?.padEnd(first)} = ${value?.padEnd(second)}  # ${origin}\n`,
    )
    .join("");
}
