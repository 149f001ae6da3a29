import { deepStrictEqual } from "node:assert";
import { parseAnswer, renderPost } from "../../../cni/plugin/http.ts";
import { parseSettings } from "../../../cni/plugin/settings.ts";
import { kubernetesPod, parseArgs } from "../../../cni/protocol/args.ts";
import { decodeBase64 } from "../../../cni/protocol/base64.ts";
import { parseCapabilities, parseIps, parseWantedIp } from "../../../cni/protocol/capabilities.ts";
import { decodeConfig, parseConfig } from "../../../cni/protocol/config-read.ts";
import { parseExchange, parseOutcome, renderExchange } from "../../../cni/protocol/exchange.ts";
import { flagAt, truth } from "../../../cni/protocol/json.ts";
import { isNestedTooDeep, nestingLimit } from "../../../cni/protocol/nesting.ts";
import {
  isMeant,
  isPendingName,
  parsePending,
  pendingName,
} from "../../../cni/protocol/pending.ts";
import { parseRequest } from "../../../cni/protocol/request-read.ts";
import { parseDns, parseResult } from "../../../cni/protocol/result-read.ts";
import { renderResult } from "../../../cni/protocol/result-write.ts";
import { cniVersions, parseVersion } from "../../../cni/protocol/version.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT", "UNSUPPORTED", "ADDRESS_INVALID", "MAC_INVALID"] as const;

const env = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/blue",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin:/usr/lib/cni",
  CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u;X=1",
};
const previous = {
  cniVersion: "1.1.0",
  interfaces: [
    {
      name: "eth0",
      mac: "0a:58:0a:00:00:02",
      sandbox: "/n",
      mtu: 1500,
      pciID: "p",
      socketPath: "/s",
    },
  ],
  ips: [
    { address: "10.0.0.2/24", gateway: "10.0.0.1", interface: 0 },
    { address: "fd00::2/64", interface: -1 },
  ],
  routes: [
    { dst: "0.0.0.0/0", gw: "10.0.0.1", mtu: 1400, advmss: 1, priority: 1, table: 1, scope: 0 },
    { dst: "::/0" },
  ],
  dns: { nameservers: ["10.0.0.1"], domain: "d", search: ["s"], options: ["o"] },
};
const old = {
  cniVersion: "0.2.0",
  ip4: { ip: "10.0.0.2/24", gateway: "10.0.0.1", routes: [{ dst: "0.0.0.0/0" }] },
  ip6: { ip: "fd00::2/64" },
};
const capabilities = {
  portMappings: [
    { HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "" },
    { hostPort: 53, containerPort: 53, protocol: "udp", hostIP: "10.0.0.1" },
    { hostPort: 0 },
  ],
  bandwidth: { IngressRate: 1, IngressBurst: 4294967295, EgressRate: 2 },
  ips: ["10.0.0.5", "10.0.0.5/24"],
  mac: "0a:58:0a:00:00:05",
  dns: { Servers: ["10.0.0.1"], Searches: ["s"], Options: ["o"] },
  ipRanges: [
    [{ subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", rangeEnd: "10.0.0.10", gateway: "10.0.0.1" }],
  ],
  aliases: { podnet: ["a", "Two_2"], other: 7 },
  "io.kubernetes.cri.pod-annotations": { a: "b", c: null },
};
const config = {
  cniVersion: "1.1.0",
  name: "podnet",
  type: "podnet-cni",
  network: "lan",
  mtu: 1400,
  serviceCidr: ["172.30.0.0/16"],
  dns: { nameservers: ["10.0.0.1"] },
  args: {
    cni: {
      ips: ["10.0.0.7"],
      mac: "0a:58:0a:00:00:07",
      labels: [{ key: "role", value: "builder" }],
    },
  },
  runtimeConfig: capabilities,
  prevResult: previous,
  "cni.dev/valid-attachments": [{ containerID: "c1", ifname: "eth0" }],
};
const without = (...keys: string[]): object =>
  Object.fromEntries(Object.entries(config).filter(([key]) => !keys.includes(key)));

interface Call {
  readonly env?: unknown;
  readonly stdin?: unknown;
}
const call = (variables: object, stdin: unknown = config): Uint8Array =>
  json({ env: { ...env, ...variables }, stdin });

function valueIn(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(textOf(bytes));
  } catch {
    return undefined;
  }
}

/** One call: `env` as a runtime's environment, `stdin` a text or what becomes one. */
function feedCall(bytes: Uint8Array): void {
  const { env: given, stdin } = Object(valueIn(bytes)) as Call;
  const variables = Object.fromEntries(
    Object.entries(Object(given) as object).map(([name, value]) => [name, String(value)]),
  );
  const input = utf8(typeof stdin === "string" ? stdin : (JSON.stringify(stdin) ?? ""));
  const request = valueOf(refusals, () => parseRequest(variables, input));
  const object = valueOf(refusals, () => decodeConfig(input));
  if (object !== undefined) valueOf(refusals, () => parseConfig(object, false));
  valueOf(refusals, () => parseArgs(variables["CNI_ARGS"] ?? "", true));
  if (request === undefined || request.command === "VERSION") return;
  kubernetesPod(request.args);
  if (!("containerId" in request)) return;
  // It names a file.
  const name = pendingName(request.containerId, request.ifName);
  if (name.includes("/") || name.length > 255 || !isPendingName(name)) throw new Error(name);
}

const requests: Target = {
  name: "cni-requests",
  files: [
    "cni/protocol/request-read.ts",
    "cni/protocol/config-read.ts",
    "cni/protocol/capabilities.ts",
    "cni/protocol/args.ts",
    "cni/protocol/json.ts",
  ],
  // Of lists, which cni-lists feeds.
  except: ["flagAt"],
  apart: ["cni/protocol/nesting.ts"],
  longest: 8192,
  seeds: [
    ...["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "UPDATE", ""].map((CNI_COMMAND) =>
      call({ CNI_COMMAND }),
    ),
    json({ env: { CNI_COMMAND: "ADD" }, stdin: config }),
    json({ env: {}, stdin: config }),
    json({ env: { CNI_COMMAND: "GC" }, stdin: config }),
    call({ CNI_COMMAND: "DEL", CNI_NETNS: "", CNI_ARGS: "x" }, { ...config, mtu: "x" }),
    call({ CNI_CONTAINERID: "a/b" }),
    call({ CNI_IFNAME: "a/b" }),
    call({ CNI_ARGS: "X=1" }),
    call({ CNI_ARGS: "X;=1;;A=B" }),
    call({ CNI_ARGS: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=i" }),
    call({ CNI_ARGS: "IgnoreUnknown=f;K8S_POD_NAME=web" }),
    call({}, "{"),
    call({}, "[]"),
    call({}, {}),
    call({}, { ...config, name: "a b" }),
    call({}, { ...config, cniVersion: "2.0.0" }),
    call({}, { ...config, cniVersion: 2 }),
    call({ CNI_COMMAND: "CHECK" }, { ...config, cniVersion: "0.3.1" }),
    call({ CNI_COMMAND: "CHECK" }, without("prevResult")),
    call({ CNI_COMMAND: "GC" }, without("cni.dev/valid-attachments")),
    call({ CNI_COMMAND: "GC" }, { ...config, "cni.dev/valid-attachments": [{}] }),
    call({ CNI_COMMAND: "GC" }, { ...config, "cni.dev/valid-attachments": [null] }),
    call(
      {},
      without(
        "cniVersion",
        "type",
        "network",
        "mtu",
        "dns",
        "args",
        "runtimeConfig",
        "serviceCidr",
      ),
    ),
    call({}, { ...config, serviceCidr: "172.30.0.0/16" }),
    call({}, { ...config, serviceCidr: "" }),
    call({}, { ...config, portsHeldByRuntime: "true" }),
    call({}, { ...config, serviceCidr: [7] }),
    call({}, { ...config, serviceCidr: ["x"] }),
    call({}, { ...config, dns: { domain: "d" } }),
    call({}, { ...config, args: { cni: { mac: "x" } } }),
    call({}, { ...config, args: { cni: { labels: [{ key: 5 }, {}, "role"] } } }),
    ...[
      { portMappings: {} },
      { portMappings: [{ hostPort: 1 }] },
      { portMappings: [{ hostPort: 70000 }] },
      { portMappings: [{ hostPort: 1, containerPort: 1 }] },
      { portMappings: [{ hostPort: 1, containerPort: 1, protocol: "SCTP" }] },
      { portMappings: [{ hostPort: 1, containerPort: 1, protocol: "icmp" }] },
      { bandwidth: {} },
      { ips: [7] },
      { ips: ["10.0.0.300"] },
      { ipRanges: [[{}]] },
      { ipRanges: [7] },
      { mac: 7 },
    ].map((runtimeConfig) => call({}, { ...config, runtimeConfig })),
  ],
  words: [
    "CNI_COMMAND",
    "CNI_ARGS",
    "runtimeConfig",
    "prevResult",
    "HostPort",
    "hostIP",
    "IgnoreUnknown=1",
    "K8S_POD_NAME=",
  ],
  run: feedCall,
};

const results: Target = {
  name: "cni-results",
  files: ["cni/protocol/result-read.ts", "cni/protocol/result-write.ts", "cni/protocol/version.ts"],
  except: ["versionAnswer"],
  longest: 4096,
  seeds: [
    ...cniVersions.map((cniVersion) => json({ ...previous, cniVersion })),
    json(old),
    json({ ...old, cniVersion: "0.1.0", ip6: undefined }),
    json({ ip4: { ip: "10.0.0.2" } }),
    json({ cniVersion: "0.2.0", ip4: {} }),
    json({ cniVersion: "0.2.0" }),
    json({ cniVersion: "3.0.0" }),
    json({}),
    json([]),
    json({ interfaces: [{}], ips: [{}] }),
    json({ routes: [{ dst: "10.1.2.3/8" }] }),
    json({ routes: [{}] }),
  ],
  words: ["cniVersion", "interfaces", "ips", "routes", "dst", "gw", "address", "gateway"],
  run: (bytes) => {
    const value = valueIn(bytes);
    const result = valueOf(refusals, () => parseResult(value, "1.1.0"));
    valueOf(refusals, () => parseVersion(typeof value === "string" ? value : undefined));
    valueOf(refusals, () => parseDns(Object(value) as Record<string, unknown>, "dns"));
    if (result === undefined) return;
    for (const version of cniVersions) {
      const written = valueOf(refusals, (): string => renderResult(result, version));
      if (written === undefined) continue;
      const again = parseResult(JSON.parse(written), version);
      // Whatever was lost is lost at once.
      deepStrictEqual(renderResult(again, version), written);
    }
  },
};

const post = renderPost(renderExchange({ CNI_COMMAND: "ADD" }, "e30="));
const body = (text: string, more = ""): Uint8Array =>
  utf8(`HTTP/1.1 200 OK\r\n${more}Content-Length: ${text.length}\r\n\r\n${text}`);

const exchanges: Target = {
  name: "cni-exchanges",
  files: [
    "cni/protocol/exchange.ts",
    "cni/protocol/pending.ts",
    "cni/protocol/base64.ts",
    "cni/plugin/http.ts",
    "cni/plugin/settings.ts",
  ],
  except: [
    "renderPost",
    "renderExchange",
    "renderOutcome",
    "renderPending",
    "pendingName",
    "isPendingName",
    "temporaryName",
    "isTemporaryName",
  ],
  seeds: [
    ...[
      { env, config: "e30=" },
      { env, config: "e30", hostVeth: "v" },
      { env: { a: 7 }, config: "" },
      { env: [], config: "????" },
      { env, config: "e30=", hostVeth: "veth1", atMs: 7 },
      { env, config: "YQ==" },
      { env, config: "e30=", atMs: 7, boot: "b", monotonicUs: 7 },
      { env, config: "e30=", atMs: 7, boot: 7, monotonicUs: -1 },
    ].map((value) => chosen(0, json(value))),
    chosen(0, utf8("{")),
    chosen(1, json({ exit: 0, stdout: "{}" })),
    chosen(1, json({ exit: 256 })),
    chosen(1, json({ exit: 1 })),
    chosen(1, json({})),
    chosen(1, utf8("{")),
    chosen(2, body("{}")),
    chosen(2, body("{}", "Connection: close\r\n")),
    chosen(2, body("{}", "Content-Length: 2\r\n")),
    chosen(2, body("{}").subarray(0, -1)),
    chosen(2, utf8("HTTP/1.1 200 OK\r\n\r\n")),
    chosen(2, utf8("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")),
    chosen(2, utf8("HTTP/2 200\r\n\r\n")),
    chosen(2, utf8("x\r\n".repeat(6000))),
    chosen(2, post),
    chosen(3, json({ socket: "/s", pendingDirectory: "/p", timeoutSeconds: 5 })),
    chosen(3, json({})),
    chosen(3, json({ timeoutSeconds: 0 })),
    ...["e30=", "e30", "YQ==", "e=30", "", "===="].map((text) => chosen(4, utf8(text))),
  ],
  longest: 20_000,
  words: ["Content-Length: ", "\r\n\r\n", "HTTP/1.1 200 ", '"exit":', '"env":{', "=="],
  run: choosing([
    (bytes) => {
      const exchange = valueOf(refusals, () => parseExchange(bytes));
      const pending = valueOf(refusals, () => parsePending(bytes));
      if (pending?.moment !== undefined) {
        const made = { createdMs: 0, moment: pending.moment };
        if (!isMeant(pending, made, "")) throw new Error("what was attached at once is not meant");
      }
      if (exchange === undefined) return;
      const text = Buffer.from(exchange.stdin).toString("base64");
      deepStrictEqual(parseExchange(utf8(renderExchange(exchange.env, text))).env, exchange.env);
    },
    (bytes) => {
      const outcome = valueOf(refusals, () => parseOutcome(bytes));
      if (outcome !== undefined && !(outcome.exit >= 0 && outcome.exit < 256))
        throw new Error("exit");
    },
    (bytes) => {
      const answer = valueOf(["INTERNAL"], () => parseAnswer(bytes));
      if (answer !== undefined && answer.body.length > bytes.length) throw new Error("longer");
    },
    (bytes) => {
      const settings = valueOf(refusals, () => parseSettings(bytes));
      if (settings !== undefined && !(settings.timeoutMs > 0)) throw new Error("no time");
    },
    (bytes) => {
      const text = textOf(bytes);
      const decoded = decodeBase64(text);
      // Node's takes what is none; of what is one it says the same.
      if (decoded !== undefined) deepStrictEqual(Buffer.from(decoded), Buffer.from(text, "base64"));
    },
  ]),
};

const words: Target = {
  name: "cni-words",
  files: ["cni/protocol/json.ts", "cni/protocol/capabilities.ts"],
  only: ["truth", "flagAt", "parseWantedIp"],
  seeds: [
    ...["1", "t", "true", "False", "0", "maybe", ""].map((text) => json({ f: text })),
    json({ f: true }),
    json({ F: 7 }),
    json({}),
    json({ f: "10.0.0.1/8", ips: ["10.0.0.1"], portMappings: [] }),
  ],
  run: (bytes) => {
    const object = Object(valueIn(bytes)) as Record<string, unknown>;
    valueOf(refusals, () => flagAt(object, "f", "f"));
    valueOf(refusals, () => parseWantedIp(String(object["f"]), "f"));
    valueOf(refusals, () => parseIps(object, "ips", "ips"));
    valueOf(refusals, () => parseCapabilities(object, "podnet"));
    truth(String(object["f"]));
  },
};

/** Lists and objects in each other, by a parser that needs no stack for them. */
function depthOf(text: string): number {
  let depth = 0;
  for (let level = [JSON.parse(text) as unknown]; ; depth++) {
    const inside = level.filter((value) => typeof value === "object" && value !== null);
    if (inside.length === 0) return depth;
    level = inside.flatMap((value) => Object.values(value));
  }
}

const nested = (open: string, close: string, levels: number): Uint8Array =>
  utf8(`${open.repeat(levels)}${close.repeat(levels)}`);

/** As long as what is not looked at. */
const blanks = Buffer.alloc(nestingLimit, " ");

const nesting: Target = {
  name: "cni-nesting",
  files: ["cni/protocol/nesting.ts"],
  longest: 2 * nestingLimit + 2,
  seeds: [
    utf8("{}"),
    // Short ones, of which the growth is judged, and those at the limit.
    nested("[", "]", 9),
    nested('{"a":[', "]}", 3),
    json({ "a name as long as names are": ["and a text that has none, as texts of it have"] }),
    json({ a: "[{", b: [[], '\\"}', {}], c: [[[7]], "text without any"] }),
    nested("[", "]", nestingLimit),
    nested("[", "]", nestingLimit + 1),
    utf8("[".repeat(3000)),
    json(Array.from({ length: nestingLimit + 1 }, () => [])),
    json(Array.from({ length: 1000 }, () => ({}))),
    json(["[{".repeat(1500), '\\"]']),
  ],
  words: ["[", "]", "{", "}", '"', "\\", '[{"a":'],
  run: (bytes) => {
    // Short ones with blanks behind them, so that they are looked at: else longer ones would seem
    // to cost out of proportion.
    const short = bytes.length <= nestingLimit;
    const tooDeep = isNestedTooDeep(short ? Buffer.concat([bytes, blanks]) : bytes);
    if (short) deepStrictEqual(isNestedTooDeep(bytes), tooDeep);
    if (valueIn(bytes) === undefined) return;
    deepStrictEqual(tooDeep, depthOf(textOf(bytes)) > nestingLimit);
  },
};

export const cni = [requests, results, exchanges, words, nesting];
