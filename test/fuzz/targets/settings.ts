import { parseEnv } from "../../../cli/env-text.ts";
import {
  parseBytes,
  parseCount,
  parseDuration,
  parseMemory,
  parsePairs,
  parseParts,
  parseSignal,
} from "../../../cli/parse.ts";
import { parseUserText } from "../../../core/user-text.ts";
import { resolveConfig } from "../../../daemon/config/config.ts";
import { envLayer, flagLayer, parseLayer } from "../../../daemon/config/layers.ts";
import { errorFromRecord, parseErrorRecord } from "../../../daemon/events/error-record.ts";
import { parseRemembered } from "../../../daemon/networks/network-memory.ts";
import {
  integer,
  json as jsonColumn,
  optionalInteger,
  optionalJson,
  optionalText,
  text as textColumn,
} from "../../../daemon/store/rows.ts";
import { Memory } from "../../../network/kernel/memory.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["CONFIG_INVALID"] as const;

const toml = `state_dir = "/var/lib/podnet"
quarantine_s = 60
firewall = "nftables"
disable_iptables = false
iptables_chain = "HYPER"
[network]
cidr = "192.168.123.0/24"
reserved = ["192.168.123.10-192.168.123.20"]
mtu = 1500
[timeouts]
create_s = 5
[qemu]
kvm = "auto"
`;
const endpoint = {
  "tcp.address": "127.0.0.1:7373",
  "tcp.cert": "/c",
  "tcp.key": "/k",
  "tcp.client_ca": "/a",
};
const settings: readonly object[] = [
  {
    env: {
      PODNET_NETWORK_CIDR: "10.0.0.0/24",
      PODNET_QUARANTINE_S: "5",
      PODNET_NETWORK_DNS: "9.9.9.9, 1.1.1.1",
    },
  },
  { env: { STATE_DIRECTORY: "/a:/b", RUNTIME_DIRECTORY: "/r", PODNET_SOCKET: "/s" } },
  { env: { PODNET_DISABLE_IPTABLES: "1", PODNET_LOG_LEVEL: "loud" } },
  { env: { PODNET_DISABLE_IPTABLES: "maybe" } },
  { env: { PODNET_QUARANTINE_S: "x", PODNET_NETWORK_RESERVED: "" } },
  {
    flags: { "network.reserved": "192.168.123.9", "network.bridge": "br0", "network.name": "lan" },
  },
  { flags: { disable_iptables: "false", "network.reserved": "10.0.0.1" } },
  { flags: { disable_iptables: "0", "timeouts.create_s": "-1" } },
  { flags: { disable_iptables: "true", "qemu.path": "/q", socket_group: "0" } },
  { flags: endpoint },
  { flags: { ...endpoint, "tcp.address": "[::1]:7373" } },
  { flags: { ...endpoint, "tcp.address": "host:99999" } },
  { flags: { "tcp.cert": "/c" } },
  { flags: { "access.admin": "uid:0,gid:root,cert:web", "access.viewer": "uid:missing-here" } },
  { flags: { "access.admin": "uid:4294967295", "access.operator": "who" } },
  { flags: { "network.cidr6": "fd00:1::/64", "network.ranges": "fd00:1::5,192.168.123.9" } },
  { flags: { "network.cidr6": "fd00:1::/64", "network.mtu": "1000" } },
  { flags: { "network.cidr6": "10.0.0.0/24" } },
  { flags: { "network.host_access": "tcp/22,udp/5000-5010", "network.connections": "512" } },
  { flags: { "network.admit": "10.21.0.0/16", "network.cloud_metadata": "true" } },
  { flags: { "network.accept_translated": "true" } },
  { flags: { publish_ports: "30000-32767" } },
  { flags: { "network.limit_in": "10M", "network.packets_out": "none" } },
  { flags: { "network.limit_out": "much" } },
  { flags: { policy_log: "/l", policy_log_mib: "3", "cri.socket": "/c", "hyperd.socket": "/h" } },
  { flags: { "tracing.endpoint": "http://127.0.0.1:4318/in/" } },
  { flags: { "tracing.endpoint": "http://u@a" } },
  { env: { RUNTIME_DIRECTORY: "run", STATE_DIRECTORY: "" } },
  { flags: { "qemu.uids": "5000-4000" } },
  { flags: { "qemu.uids": "5000-5001" } },
  { flags: { "qemu.uids": "100000-165535", "qemu.confine": "off" } },
];

type Texts = Readonly<Record<string, unknown>>;
function resolve(bytes: Uint8Array): void {
  const value = Object(jsonOf(bytes)) as { env?: Texts; flags?: Texts };
  const texts = (given: Texts | undefined): [string, string][] =>
    Object.entries(Object(given) as Texts).map(([key, text]) => [key, String(text)]);
  const env = Object.fromEntries(texts(value.env).filter(([key]) => key !== "PODNET_CONFIG"));
  const flags = new Map(texts(value.flags));
  valueOf(refusals, () => envLayer(env));
  valueOf(refusals, () => flagLayer(flags));
  const resolved = valueOf(refusals, () =>
    resolveConfig({ env, flags, file: undefined, checkout: "/nowhere" }),
  );
  for (const path of [resolved?.config.stateDir, resolved?.config.socket])
    if (path !== undefined && !path.startsWith("/")) throw new Error(`A path like ${path}`);
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(textOf(bytes));
  } catch {
    return {};
  }
}

const configuration: Target = {
  name: "configuration",
  files: [
    "daemon/config/layers.ts",
    "daemon/config/config.ts",
    "daemon/config/access.ts",
    "daemon/config/network.ts",
    "hypervisor/jail/uids.ts",
  ],
  // What is in a file goes to parseLayer.
  except: ["fileLayer", "renderSettings", "freeUid", "isMapped"],
  seeds: [
    chosen(0, utf8(toml)),
    chosen(0, utf8("network = 5")),
    chosen(0, utf8("[network]\ncidrs = 5")),
    chosen(0, utf8("nonsense = 1")),
    chosen(0, utf8("cidr = 1")),
    chosen(0, utf8("= broken")),
    chosen(0, utf8('[network]\nreserved = [1]\nmtu = "x"')),
    chosen(0, utf8("disable_iptables = 3\n")),
    chosen(0, utf8('log_level = "loud"\n')),
    chosen(0, utf8(`a = ${"[".repeat(1000)}`)),
    ...settings.map((one) => chosen(1, json(one))),
  ],
  words: [
    "[network]",
    "cidr",
    "=",
    '"',
    "\n",
    "mtu",
    "[",
    "]",
    "PODNET_",
    "network.cidr",
    "true",
    "1e9",
    "__proto__",
    "timeouts",
  ],
  longest: 4096,
  run: choosing([
    (bytes) => void valueOf(refusals, () => parseLayer(textOf(bytes), "config.toml")),
    resolve,
  ]),
};

const pairsKept = (bytes: Uint8Array): void => {
  const words = textOf(bytes).split("\n");
  const pairs = valueOf(["INVALID_ARGUMENT"], () => parsePairs("--env", words));
  for (const word of pairs === undefined ? [] : words)
    if (!Object.hasOwn(pairs as object, word.slice(0, word.indexOf("="))))
      throw new Error(`Lost: ${word}`);
};
const environmentKept = (bytes: Uint8Array): void => {
  const words = textOf(bytes).split("\n");
  const env = valueOf(["INVALID_ARGUMENT"], () => parseEnv("--env", words, { HOME: "/" }));
  for (const [key, value] of Object.entries(env ?? {}))
    if (!words.includes(`${key}=${value}`) && !(words.includes(key) && key === "HOME"))
      throw new Error(`Made up: ${key}`);
};
/** Nothing may reach the guest as another field of its /etc/passwd. */
const userKept = (bytes: Uint8Array): void => {
  const text = textOf(bytes);
  const parsed = valueOf(["INVALID_ARGUMENT"], () => parseUserText(text, "user"));
  if (parsed === undefined) return;
  const { user, group } = parsed;
  const again = group === undefined ? user : `${user}:${group}`;
  if (again !== text || /[:\s]/.test(user + (group ?? ""))) throw new Error(`Not so: ${text}`);
};
const amount = (bytes: Uint8Array, parse: (text: string) => number): void => {
  const value = valueOf(["INVALID_ARGUMENT"], () => parse(textOf(bytes)));
  if (value !== undefined && !(Number.isFinite(value) && value >= 0))
    throw new Error(`An amount of ${value}`);
};

/** What people type, which scripts often made of what others wrote. */
const flags: Target = {
  name: "cli-flags",
  files: ["cli/parse.ts", "cli/env-text.ts", "core/user-text.ts"],
  // (Files are read elsewhere.)
  except: ["collect", "environmentOf", "linesOf"],
  seeds: [
    ...["5", "x", "1000000000"].map((text) => chosen(0, utf8(text))),
    ...["256", "256M", "1 GiB", "1T", "mi"].map((text) => chosen(1, utf8(text))),
    ...["30s", "500ms", "1.5", "2min", "x"].map((text) => chosen(2, utf8(text))),
    ...["A=b", "A=b\nC=", "=x", "A"].map((text) => chosen(3, utf8(text))),
    ...[
      "10.0.0.0/8 via 10.0.0.1",
      "address=10.0.0.1,ro",
      "/disk,format=qcow2,ro",
      "x,bogus",
      "x,adress=10.0.0.1",
      "a,via",
    ].map((text) => chosen(4, utf8(text))),
    ...["A=b", "HOME\nA", "=x", "A B"].map((text) => chosen(5, utf8(text))),
    ...["web", "1000:adm", "a:b:c", ":", "x\n"].map((text) => chosen(6, utf8(text))),
    ...["TERM", "sigterm", "65", "9"].map((text) => chosen(7, utf8(text))),
    ...["4096", "512M", "64TiB", "1x", "999999999999T"].map((text) => chosen(8, utf8(text))),
  ],
  words: ["=", ",", " ", "via", "ro", "address", "__proto__=x", "G", "ms", "."],
  longest: 400,
  run: choosing([
    (bytes) => amount(bytes, (text) => parseCount("--vcpu", text)),
    (bytes) => amount(bytes, parseMemory),
    (bytes) => amount(bytes, (text) => parseDuration("--timeout", text)),
    pairsKept,
    (bytes) =>
      void valueOf(["INVALID_ARGUMENT"], () =>
        parseParts("--route", textOf(bytes), ["via", "address", "format"], ["ro"]),
      ),
    environmentKept,
    userKept,
    (bytes) => amount(bytes, parseSignal),
    (bytes) => amount(bytes, (text) => parseBytes("--size", text)),
  ]),
};

const error = { code: "QEMU_EXITED", message: "m", details: { pid: 5, at: "x", core: true } };
const memory = {
  host: "boot netns",
  ipForward: "0",
  besideForward: [{ key: "net/ipv6/conf/a/accept_ra", value: "1" }],
  chains: ["nft filter HYPER"],
  raised: ["br0"],
  pinned: [5],
};
const memoryOfSix = {
  ...memory,
  ipv6Forward: "0",
  besideIpv6Forward: memory.besideForward,
  chains6: ["nft filter HYPER"],
  rules6: "known",
  table: true,
};
const damage = ["STATE_CORRUPT", "STATE_NEWER"] as const;
/** What is read can be worked with, and all of it was in the text. */
function rememberedKept(text: string): void {
  const value = valueOf(damage, () => parseRemembered(text));
  if (value === undefined) return;
  const memory = new Memory(value.host, value);
  memory.rememberRaised("br9" as never);
  memory.rememberPinned(9);
  for (const family of [4, 6] as const) {
    const chains = memory.chains(family);
    chains.remember("nft", "filter", "HYPER");
    for (const name of chains.names("nft")) chains.forget("nft", "filter", name);
  }
  for (const { key, value: set } of value.besideForward ?? [])
    if (typeof key !== "string" || typeof set !== "string") throw new Error("No setting");
}

const stored: Target = {
  name: "stored-rows",
  files: [
    "daemon/store/rows.ts",
    "daemon/events/error-record.ts",
    "daemon/networks/network-memory.ts",
  ],
  // What is done with records that have been read.
  except: ["recordError", "errorFromRecord"],
  seeds: [
    ...[{ a: "text" }, { a: 5 }, { a: null }, {}, { a: "{}" }, { a: "{" }].map((row) =>
      chosen(0, json(row)),
    ),
    ...[
      { ...error, hint: "h" },
      { ...error, details: { a: [] } },
      { ...error, code: "NEW" },
    ].map((record) => chosen(1, json(record))),
    ...[
      memory,
      memoryOfSix,
      { ...memory, rules6: "suspected" },
      { ...memoryOfSix, table: 1 },
      { ...memoryOfSix, rules6: true },
      { ...memory, pinned: ["5"] },
      { ...memory, besideForward: [5] },
      null,
    ].map((value) => chosen(2, json(value))),
  ],
  words: ["version", "1", "a", "details", "null", "[]"],
  run: choosing([
    (bytes) => {
      const row = Object(jsonOf(bytes)) as Record<string, string>;
      for (const read of [
        textColumn,
        optionalText,
        integer,
        optionalInteger,
        jsonColumn,
        optionalJson,
      ])
        valueOf(damage, () => read(row, "a"));
    },
    (bytes) => void valueOf(damage, () => errorFromRecord(parseErrorRecord(textOf(bytes)))),
    (bytes) => rememberedKept(textOf(bytes)),
  ]),
};

export const settingTexts: readonly Target[] = [configuration, flags, stored];
