import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Ip, parseIp } from "../../core/address.ts";
import { toPodnetError } from "../../core/errors.ts";
import { type IfName, type NetworkName, parseIfName, parseNetworkName } from "../../core/names.ts";
import { type IpRange, parseRange, parseSubnet, type SubnetConfig } from "./cidr.ts";
import { configError, envLayer, fileLayer, flagLayer, type Layer, type Setting } from "./layers.ts";
import { type ConfigKey, configKeys } from "./schema.ts";

export const defaultConfigFile = "/etc/podnet/config.toml";

export interface NetworkConfig extends SubnetConfig {
  readonly name: NetworkName;
  readonly bridge: IfName;
  readonly mtu: number;
  readonly reserved: readonly IpRange[];
  readonly dns: readonly Ip[];
  readonly dnsSearch: readonly string[];
}

export interface TcpConfig {
  readonly host: string;
  readonly port: number;
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string;
}

/** The daemon's configuration, every value checked; every path is absolute. */
export interface Config {
  readonly stateDir: string;
  readonly runDir: string;
  /** Directories of the machines, one by pod id. */
  readonly podsDir: string;
  readonly socket: string;
  readonly socketGroup: string | undefined;
  readonly logLevel: "trace" | "debug" | "info" | "warn" | "error";
  readonly tcp: TcpConfig | undefined;
  readonly network: NetworkConfig;
  readonly iptablesChain: string;
  readonly iptablesVariant: "auto" | "nft" | "legacy";
  readonly disableIptables: boolean;
  readonly qemu: { readonly path: string | undefined; readonly kvm: "auto" | "on" | "off" };
  readonly image: { readonly kernel: string; readonly initrd: string };
  readonly quarantineMs: number;
  readonly timeouts: {
    readonly createMs: number;
    readonly readyMs: number;
    readonly stopMs: number;
  };
}

export interface ConfigSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Flags by dotted key. */
  readonly flags: ReadonlyMap<string, string>;
  /** File named with --config; undefined reads the default one if it is there. */
  readonly file: string | undefined;
  /** The directory podnet itself runs from, whose `build/image` serves as default image when built. */
  readonly checkout: string;
}

export interface ResolvedConfig {
  readonly config: Config;
  /** Every key that has a value, with its origin, in the order of the schema. */
  readonly settings: readonly (readonly [ConfigKey, Setting])[];
}

/** Built-in values; systemd's RUNTIME_DIRECTORY and STATE_DIRECTORY stand in for the two directories. */
function defaultLayer(sources: ConfigSources): Layer {
  const built = join(sources.checkout, "build", "image");
  const image = existsSync(join(built, "manifest.json")) ? built : "/usr/share/podnet";
  const first = (list: string | undefined): string | undefined => list?.split(":")[0] || undefined;
  const fromUnit = (name: string, otherwise: string): Setting => {
    const value = first(sources.env[name]);
    return value === undefined ? { value: otherwise, origin: "default" } : { value, origin: name };
  };
  const plain: Record<string, unknown> = {
    log_level: "info",
    "network.name": "default",
    "network.bridge": "hyper0",
    "network.cidr": "192.168.123.0/24",
    "network.mtu": 1500,
    "network.reserved": [],
    "network.dns": [],
    "network.dns_search": [],
    iptables_chain: "HYPER",
    iptables_variant: "auto",
    disable_iptables: false,
    "qemu.kvm": "auto",
    "image.kernel": join(image, "vmlinux"),
    "image.initrd": join(image, "initramfs.gz"),
    quarantine_s: 60,
    "timeouts.create_s": 120,
    "timeouts.ready_s": 60,
    "timeouts.stop_s": 5,
  };
  const layer = new Map<string, Setting>([
    ["state_dir", fromUnit("STATE_DIRECTORY", "/var/lib/podnet")],
    ["run_dir", fromUnit("RUNTIME_DIRECTORY", "/run/podnet")],
  ]);
  for (const [key, value] of Object.entries(plain)) layer.set(key, { value, origin: "default" });
  return layer;
}

/** Merges default < file < environment < flags and checks the whole. Throws `CONFIG_INVALID`. */
export function resolveConfig(sources: ConfigSources): ResolvedConfig {
  const file = sources.file ?? sources.env["PODNET_CONFIG"];
  const merged = new Map<string, Setting>();
  for (const layer of [
    defaultLayer(sources),
    fileLayer(file ?? defaultConfigFile, file !== undefined),
    envLayer(sources.env),
    flagLayer(sources.flags),
  ]) {
    for (const [key, setting] of layer) merged.set(key, setting);
  }
  const runDir = merged.get("run_dir")?.value as string;
  if (!merged.has("socket")) {
    merged.set("socket", { value: join(runDir, "podnet.sock"), origin: "default" });
  }
  const settings = configKeys.flatMap((key) => {
    const setting = merged.get(key.key);
    return setting === undefined ? [] : [[key, setting] as const];
  });
  return { config: build(merged), settings };
}

type Reader = <T>(key: string, parse: (value: never) => T) => T;

function build(merged: Layer): Config {
  const value = <T>(key: string): T => merged.get(key)?.value as T;
  const read: Reader = (key, parse) => {
    const setting = merged.get(key) as Setting;
    try {
      return parse(setting.value as never);
    } catch (thrown) {
      const error = toPodnetError(thrown);
      throw configError(
        key,
        setting.origin,
        `is not usable: ${error.message}`,
        error.hint ?? "",
        error,
      );
    }
  };
  const runDir = value<string>("run_dir");
  return {
    stateDir: value("state_dir"),
    runDir,
    podsDir: join(runDir, "pods"),
    socket: value("socket"),
    socketGroup: value("socket_group"),
    logLevel: value("log_level"),
    tcp: tcpConfig(merged, read),
    network: networkConfig(value, read),
    iptablesChain: value("iptables_chain"),
    iptablesVariant: value("iptables_variant"),
    disableIptables: value("disable_iptables"),
    qemu: { path: value("qemu.path"), kvm: value("qemu.kvm") },
    image: { kernel: value("image.kernel"), initrd: value("image.initrd") },
    quarantineMs: value<number>("quarantine_s") * 1000,
    timeouts: {
      createMs: value<number>("timeouts.create_s") * 1000,
      readyMs: value<number>("timeouts.ready_s") * 1000,
      stopMs: value<number>("timeouts.stop_s") * 1000,
    },
  };
}

function networkConfig(value: <T>(key: string) => T, read: Reader): NetworkConfig {
  const subnet = read("network.cidr", parseSubnet);
  return {
    ...subnet,
    name: read("network.name", (text: string) => parseNetworkName(text)),
    bridge: read("network.bridge", (text: string) => parseIfName(text)),
    mtu: value("network.mtu"),
    reserved: read("network.reserved", (list: string[]) =>
      list.map((text) => parseRange(text, subnet.cidr)),
    ),
    dns: read("network.dns", (list: string[]) => list.map((text) => parseIp(text))),
    dnsSearch: value("network.dns_search"),
  };
}

/** TCP is served only with all four of its settings: never without client certificates. */
function tcpConfig(merged: Layer, read: Reader): TcpConfig | undefined {
  const keys = ["tcp.address", "tcp.cert", "tcp.key", "tcp.client_ca"];
  const present = keys.find((key) => merged.has(key));
  if (present === undefined) return undefined;
  const missing = keys.find((key) => !merged.has(key));
  if (missing !== undefined) {
    const { origin } = merged.get(present) as Setting;
    throw configError(
      present,
      origin,
      `needs "${missing}" as well`,
      "TCP is served with mutual TLS only: set address, cert, key and client_ca",
    );
  }
  const { host, port } = read("tcp.address", parseEndpoint);
  const text = (key: string): string => merged.get(key)?.value as string;
  return {
    host,
    port,
    cert: text("tcp.cert"),
    key: text("tcp.key"),
    clientCa: text("tcp.client_ca"),
  };
}

function parseEndpoint(text: string): { host: string; port: number } {
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
