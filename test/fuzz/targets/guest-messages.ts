import { deepStrictEqual } from "node:assert";
import * as container from "../../../guest-init/protocol/container-messages.ts";
import * as extension from "../../../guest-init/protocol/extension-messages.ts";
import * as file from "../../../guest-init/protocol/file-messages.ts";
import * as share from "../../../guest-init/protocol/share-messages.ts";
import * as main from "../../../guest-init/protocol/main-process.ts";
import * as network from "../../../guest-init/protocol/network-messages.ts";
import * as pod from "../../../guest-init/protocol/pod-messages.ts";
import * as process from "../../../guest-init/protocol/process-messages.ts";
import * as replies from "../../../guest-init/protocol/replies.ts";
import * as steps from "../../../guest-init/protocol/steps.ts";
import { configurationOf, parkedNicOf } from "../../../guest-init/channel/parked.ts";
import {
  park,
  podConfig,
  rehearsal,
  resultOf,
  shownParked,
} from "../../unit/guest-init/channel/fixtures/parked.ts";
import { choosing, chosen, json, type Target, utf8, valueOf } from "../engine/target.ts";

const folder = "guest-init/protocol";
const refusals = ["AGENT_PROTOCOL"] as const;

/** A parser whose value, encoded, is read as the same value again. */
const returning =
  <T>(parse: (bytes: Uint8Array) => T, encode: (value: T) => Uint8Array) =>
  (bytes: Uint8Array): void => {
    const value = valueOf(refusals, () => parse(bytes));
    if (value !== undefined) deepStrictEqual(parse(encode(value)), value);
  };

const mac = "52:54:00:12:34:56";
const config = {
  requestId: "r1",
  hostname: "web.example",
  dns: { servers: ["192.168.123.1", "fd00::1"], search: ["example.org"], options: ["ndots:2"] },
  interfaces: [
    { mac, name: "eth0", mtu: 1500, addresses: ["192.168.123.2/24", "fd00::2/64"] },
    { mac: "52:54:00:12:34:57", name: "eth1", noArp: true, addresses: [] },
  ],
  routes: [
    { destination: "0.0.0.0/0", gateway: "192.168.123.1", interface: "eth0", metric: 5 },
    { destination: "fd01::/64", interface: "eth0", source: "fd00::2", mtu: 1300, advmss: 1200 },
  ],
  neighbours: [{ interface: "eth0", address: "192.168.123.1", mac }],
  waitMs: 5000,
  clockMs: 1_700_000_000_000,
  entropy: "00ff",
};
const observed = {
  requestId: "r1",
  hostname: "web",
  dns: config.dns,
  interfaces: [
    { name: "eth0", mac, index: 2, mtu: 1500, up: true, addresses: ["192.168.123.2/24"] },
  ],
  routes: config.routes,
  clockMs: 1,
  agentRssKib: 900,
  resolverKept: "EROFS",
};
const hello = { versions: [1], nonce: "n" };
const helloReply = { version: 1, agent: "0.1.0", epoch: "e", nonce: "n" };

const extensionMessages: Target = {
  name: "extension-messages",
  files: [`${folder}/extension-messages.ts`, `${folder}/fields.ts`],
  // The agent's engine has another one; texts are a process's.
  except: ["quote", "texts", "isPlain", "parse"],
  seeds: [
    ...["[]", "7", "{}", '{"version":1,"other":2}'].map((text) => chosen(0, utf8(text))),
    chosen(2, json({ ...config, interfaces: [7], routes: null })),
    chosen(2, json({ ...config, interfaces: [{}] })),
    chosen(2, json({ ...config, interfaces: 7 })),
    chosen(2, json({ ...config, routes: [{ ...config.routes[1], other: 1 }] })),
    ...[hello, helloReply, config, observed, { entropy: "00ff", clockMs: 1 }].map((value, i) =>
      chosen(i, json(value)),
    ),
    chosen(2, json({ ...config, interfaces: [{ ...config.interfaces[1], noArp: false }] })),
    chosen(2, json({ ...config, routes: [{ ...config.routes[1], source: "10.0.0.1" }] })),
    chosen(3, json({ ...observed, hostname: "h".repeat(256) })),
    chosen(3, json({ ...observed, interfaces: [{ ...observed.interfaces[0], up: 1 }] })),
    chosen(4, json({ entropy: "0g", clockMs: 1 })),
    chosen(0, utf8("[".repeat(500))),
    chosen(1, Uint8Array.of(0xff, 0xfe, 0x7b)),
  ],
  words: [
    "requestId",
    "hostname",
    "dns",
    "servers",
    "search",
    "options",
    "interfaces",
    "routes",
    "neighbours",
    "waitMs",
    "clockMs",
    "entropy",
    "mac",
    "name",
    "mtu",
    "addresses",
    "gateway",
    "metric",
    "noArp",
    "source",
    "advmss",
    "eth0",
    "..",
    "::",
    "fe80::1",
    "10.0.0.0/8",
    "00:00:00:00:00:00",
    "01:00:5e:00:00:01",
    "x".repeat(256),
    "zz",
    "-eth0",
  ],
  run: choosing([
    returning(extension.parseHelloRequest, extension.encodeHelloRequest),
    returning(extension.parseHelloReply, extension.encodeHelloReply),
    returning(extension.parseGuestConfig, extension.encodeGuestConfig),
    returning(extension.parseObservedGuest, extension.encodeObservedGuest),
    returning(extension.parseAwakening, extension.encodeAwakening),
  ]),
};

/** What a guest says when it refuses: kept short and fit for a log. */
function readFailure(bytes: Uint8Array): void {
  const failure = replies.parseFailure(bytes);
  for (const text of Object.values(failure) as string[]) {
    if (text.length > 2500) throw new Error(`A reason of ${text.length} characters`);
    if (/[\u0000-\u001f\u007f-\u009f\u202e]/.test(text))
      throw new Error("A reason with control characters");
  }
  const { message, code } = replies.refusal("it", bytes);
  if (code !== "AGENT_REFUSED" || message.length > 2600) throw new Error(message);
}

const replyMessages: Target = {
  name: "replies",
  files: [`${folder}/replies.ts`],
  seeds: [
    chosen(0, replies.encodeVersion()),
    chosen(1, replies.encodeVersion(17)),
    chosen(
      2,
      replies.encodeFailure({ message: "no such device", field: "interfaces[0]", errno: "ENODEV" }),
    ),
    chosen(2, replies.encodeFailure({ message: "x".repeat(500) })),
    chosen(2, replies.encodeErrorText("no\u001b[2J such process")),
    chosen(2, replies.encodeErrorText("")),
  ],
  words: ["message", "field", "errno", "\u0000", "\u001b", "\u202e", "y".repeat(81)],
  longest: 8192,
  run: choosing([
    (bytes) => valueOf(refusals, () => replies.parseVersion(bytes)),
    (bytes) => valueOf(refusals, () => replies.parseNext(bytes)),
    readFailure,
  ]),
};

const spec = {
  id: "p1",
  user: "root",
  group: "wheel",
  additionalGroups: ["7"],
  terminal: false,
  stdio: 1,
  stderr: 2,
  args: ["sh", "-c", "true"],
  envs: [{ env: "A", value: "b" }, { env: "B" }],
  workdir: "/",
};

const processMessages: Target = {
  name: "process-messages",
  files: [`${folder}/process-messages.ts`],
  seeds: [
    chosen(0, json({ container: "hyperstart", process: spec })),
    chosen(0, json({ container: "c", process: { terminal: true, stdio: 1, args: ["sh"] } })),
    chosen(1, json({ container: "c", process: "p", row: 24, column: 80 })),
    chosen(1, json({ seq: 3, row: 24, column: 80 })),
    chosen(2, json({ container: "c", process: "p", signal: 9 })),
    chosen(3, json({ container: "c", process: "p", event: "finished", status: 137 })),
    chosen(3, utf8('{"container":"c","process":"p","event":"finished","status":-0}')),
  ],
  words: Object.keys(spec).concat(
    "container",
    "process",
    "seq",
    "row",
    "column",
    "event",
    "finished",
    "status",
  ),
  run: choosing([
    returning(process.parseExecCmd, process.encodeExecCmd),
    returning(process.parseWinSize, process.encodeWinSize),
    returning(process.parseSignalProcess, process.encodeSignalProcess),
    returning(process.parseProcessEvent, process.encodeProcessEvent),
  ]),
};

const mainSpec = {
  id: "start-1",
  args: ["sh", "-c", "true"],
  env: [{ env: "A", value: "1" }],
  user: "web:logs",
  workdir: "/",
  terminal: true,
  stdin: true,
  rows: 24,
  columns: 80,
  addresses: ["10.0.0.2", "fd00::2"],
};

const mainMessages: Target = {
  name: "main-process-messages",
  files: [`${folder}/main-process.ts`],
  seeds: [
    chosen(0, json(mainSpec)),
    chosen(0, json({ ...mainSpec, args: [] })),
    chosen(1, json({ stdout: 3, stderr: 4, from: 0 })),
    chosen(2, json({ id: "start-1", at: 512 })),
    chosen(3, json({ signal: 15 })),
    chosen(4, json({ rows: 24, columns: 80 })),
    chosen(5, json({ id: "start-1", at: 512, code: 3 })),
    chosen(5, json({ id: "start-1", at: 512, signal: 9 })),
    chosen(5, json({ id: "start-1", at: 512, signal: 9, outOfMemory: true })),
    chosen(5, json({ id: "start-1", at: 512, code: 137, outOfMemory: true })),
    chosen(5, json({ id: "start-1", at: 512, code: 1, message: "0aff" })),
    chosen(5, json({ id: "start-1", at: 512, code: 1, message: "0Af" })),
    chosen(5, json({ id: "start-1", at: 512, signal: 9, code: 3 })),
    chosen(6, json({ args: ["sh", "-c"], path: "/bin", workdir: "/" })),
    chosen(6, json({ args: [], workdir: "/" })),
  ],
  words: Object.keys(mainSpec).concat("stdout", "stderr", "from", "at", "signal", "code"),
  run: choosing([
    returning(main.parseStartMain, main.encodeStartMain),
    returning(main.parseFollowMain, main.encodeFollowMain),
    returning(main.parseFollowedMain, main.encodeFollowedMain),
    returning(main.parseSignalMain, main.encodeSignalMain),
    returning(main.parseResizeMain, ({ rows, columns }) => main.encodeResizeMain(rows, columns)),
    returning(main.parseMainEnded, main.encodeMainEnded),
    returning(main.parsePreload, main.encodePreload),
  ]),
};

const containerStart = {
  id: "web-1",
  args: ["sh", "-c", "true"],
  env: [{ env: "A", value: "1" }],
  user: "web:logs",
  groups: [7, 44],
  workdir: "/srv",
  terminal: false,
  stdin: true,
  readOnly: true,
  capabilities: [0, 10, 40],
  noNewPrivileges: true,
  maskedPaths: ["/proc/kcore"],
  readOnlyPaths: ["/proc/sys"],
};
const containerCreate = { id: "web-1", disk: "image", addresses: ["10.0.0.2"], waitMs: 5000 };
const containerFile = {
  id: "web-1",
  path: "/etc/motd",
  mode: 0o644,
  uid: 0,
  gid: 0,
  readOnly: true,
};

const containerVolume = {
  id: "web-1",
  path: "/cache",
  volume: "v-1",
  readOnly: false,
  mode: 0o777,
  uid: 0,
  gid: 7,
};

const repeated = (length: number): object[] =>
  Array.from({ length }, () => ({ id: "a", state: "created", at: 0 }));

const containerMessages: Target = {
  name: "container-messages",
  files: [`${folder}/container-messages.ts`],
  seeds: [
    chosen(0, json(containerCreate)),
    chosen(0, json({ ...containerCreate, id: "hyperstart" })),
    chosen(0, json({ ...containerCreate, id: "../x" })),
    chosen(0, json({ ...containerCreate, disk: "d".repeat(21) })),
    chosen(0, json({ ...containerCreate, waitMs: 10_001 })),
    chosen(1, container.encodeContainerFile({ ...containerFile, data: utf8("data") })),
    chosen(1, container.encodeContainerFile({ ...containerFile, path: "/a/../b", data: utf8("") })),
    chosen(1, container.encodeContainerFile({ ...containerFile, path: "/", data: utf8("") })),
    chosen(1, Uint8Array.of(255, 255, 255, 255, 123)),
    chosen(2, json(containerStart)),
    chosen(2, json({ ...containerStart, args: [] })),
    chosen(2, json({ ...containerStart, capabilities: [41] })),
    chosen(
      2,
      json({ ...containerStart, maskedPaths: Array.from({ length: 65 }, () => "/proc/x") }),
    ),
    chosen(2, json({ ...containerStart, readOnlyPaths: [`/${"x".repeat(4001)}`] })),
    chosen(3, json({ id: "a", stdout: 3, stderr: 4, from: 0 })),
    chosen(4, json({ id: "a", signal: 15 })),
    chosen(5, json({ id: "a", rows: 24, columns: 80 })),
    chosen(6, json({ id: "a" })),
    chosen(
      7,
      json({
        containers: [
          { id: "a", state: "created", at: 0 },
          { id: "b", state: "running", at: 9 },
          { id: "c", state: "ended", at: 9, code: 3 },
          { id: "d", state: "ended", at: 9, signal: 9 },
        ],
      }),
    ),
    chosen(7, json({ containers: repeated(2) })),
    chosen(7, json({ containers: repeated(33) })),
    chosen(7, json({ containers: [{ id: "a", state: "gone", at: 0 }] })),
    chosen(8, json(containerVolume)),
    chosen(8, json({ ...containerVolume, volume: "../up" })),
    chosen(8, json({ ...containerVolume, volume: undefined })),
    chosen(8, json({ ...containerVolume, mode: 0o10000 })),
    chosen(8, json({ ...containerVolume, share: { at: "/run/podnet-shares/0", below: "a/b" } })),
    chosen(8, json({ ...containerVolume, share: { at: "/run/podnet-shares/0", below: "" } })),
    chosen(
      8,
      json({ ...containerVolume, share: { at: "/run/podnet-shares/0", below: "a/../.." } }),
    ),
    chosen(9, json({ id: "a", limits: { memoryBytes: 1, cpuQuotaUs: 1000, cpuWeight: 10_000 } })),
    chosen(9, json({ id: "a", limits: { cpuPeriodUs: 0 } })),
    chosen(
      10,
      json({
        containers: [{ id: "a", cpuUs: 1, memoryBytes: 2, workingSetBytes: 1, oomKills: 0 }],
      }),
    ),
  ],
  words: [
    ...Object.keys(containerStart),
    ...Object.keys(containerCreate),
    ...Object.keys(containerVolume),
    "path",
    "mode",
    "stdout",
    "stderr",
    "from",
    "signal",
    "rows",
    "columns",
    "containers",
    "state",
    "at",
    "created",
    "running",
    "ended",
    "code",
    "..",
    "/",
    "hyperstart",
  ],
  run: choosing([
    returning(container.parseCreateContainer, container.encodeCreateContainer),
    returning(container.parseContainerFile, container.encodeContainerFile),
    returning(container.parseStartContainer, container.encodeStartContainer),
    returning(container.parseFollowContainer, container.encodeFollowContainer),
    returning(container.parseSignalContainer, container.encodeSignalContainer),
    returning(container.parseResizeContainer, container.encodeResizeContainer),
    returning(container.parseContainerId, container.encodeContainerId),
    returning(container.parseContainerList, container.encodeContainerList),
    returning(container.parseContainerVolume, container.encodeContainerVolume),
    returning(container.parseLimitContainer, container.encodeLimitContainer),
    returning(container.parseContainerUsage, container.encodeContainerUsage),
  ]),
};

const setup = {
  device: "eth0",
  newDeviceName: "net0",
  mtu: 1400,
  ipAddresses: [
    { ipAddress: "10.0.0.2", netMask: "255.255.255.0" },
    { ipAddress: "-fd00::2", netMask: "64" },
    { ipAddress: "10.0.0.3", netMask: "0x18" },
  ],
};
const routes = {
  routes: [
    { dest: "default", gateway: "10.0.0.1", device: "eth0" },
    { dest: "10.1.0.0/255.255.0.0" },
    { dest: "any", gateway: "fd00::1" },
    { dest: "10.2.3.4" },
    { dest: "fd01::/64", gateway: "fd00::1" },
  ],
};

const networkMessages: Target = {
  name: "network-messages",
  files: [`${folder}/network-messages.ts`],
  seeds: [
    chosen(0, json(setup)),
    chosen(0, json({ device: "eth0", ipAddress: "10.0.0.2", netMask: "24", mtu: 0 })),
    chosen(0, json({ device: "eth0", ipAddress: "10.0.0.2" })),
    chosen(0, json({ device: "" })),
    chosen(1, json({ routes: [{ dest: "10.0.0.1/8" }] })),
    chosen(1, json({ routes: [{ dest: "10.0.0.0/8", gateway: "fd00::1" }] })),
    chosen(1, json(routes)),
    chosen(1, json({})),
  ],
  words: [
    ...Object.keys(setup),
    "ipAddress",
    "netMask",
    "dest",
    "gateway",
    "255.0.255.0",
    "0x21",
    "129",
    "0.0.0.0/0",
    "all",
  ],
  run: choosing([
    returning(network.parseInterfaceSetup, network.encodeInterfaceSetup),
    returning(network.parseRouteSetup, network.encodeRouteSetup),
  ]),
};

const started = {
  hostname: "h",
  dns: ["10.0.0.1"],
  dnsSearch: ["a.b"],
  dnsOptions: ["ndots:1"],
  shareDir: "share",
  portmappingWhiteLists: { internalNetworks: ["10.0.0.0/8"], externalNetworks: ["0.0.0.0/0"] },
  interfaces: [setup],
  routes: routes.routes,
  containers: [{ id: "c" }],
};
const placed = { path: "/etc/motd", mode: 0o644, uid: 0, gid: 7 };
const podMessages: Target = {
  name: "pod-messages",
  files: ["pod", "file", "share"].map((each) => `${folder}/${each}-messages.ts`),
  seeds: [
    chosen(0, json(started)),
    chosen(0, json({})),
    chosen(1, json({ container: "hyperstart", file: "/etc/hosts" })),
    chosen(2, file.encodeWriteFile({ container: "hyperstart", file: "/a", data: utf8("data }") })),
    chosen(2, utf8("data without an object")),
    // Its name holds the brace that ends the object, in JSON's other way to write it.
    chosen(2, utf8('{"container":"c","file":"\\u007d"}')),
    chosen(3, file.encodePlaceFile({ ...placed, data: utf8("data") })),
    chosen(3, file.encodePlaceFile({ ...placed, mode: 0o10000, data: utf8("") })),
    chosen(4, json({ tag: "share0", path: "/srv/data" })),
    chosen(4, json({ tag: "share0", path: "/srv/data", writable: true })),
    chosen(4, json({ tag: "no tag", path: "/srv" })),
    chosen(4, json({ tag: "share0", path: "/srv/../etc" })),
  ],
  words: [...Object.keys(started), "container", "file", "}", "{"],
  run: choosing([
    returning(pod.parseStartPod, pod.encodeStartPod),
    returning(file.parseReadFile, file.encodeReadFile),
    (bytes) => {
      const parsed = valueOf(refusals, () => file.parseWriteFile(bytes));
      // Keys in another order, or a name holding what its own encoder refuses to write.
      if (parsed === undefined) return;
      const again = valueOf(refusals, () => file.encodeWriteFile(parsed));
      if (again !== undefined) deepStrictEqual(file.parseWriteFile(again), parsed);
    },
    returning(file.parsePlaceFile, file.encodePlaceFile),
    returning(share.parseMountShare, share.encodeMountShare),
  ]),
};

const stepMessages: Target = {
  name: "step-messages",
  files: [`${folder}/steps.ts`],
  except: ["bodyOf", "encodeSteps", "encodeStepResults"],
  seeds: [
    chosen(
      0,
      steps.encodeSteps([
        { kind: "entropy", bytes: Uint8Array.of(1, 2) },
        { kind: "clock", ms: 1_700_000_000_000 },
        { kind: "clock" },
        { kind: "hostname", name: "web" },
        { kind: "resolver", text: "nameserver 10.0.0.1\n" },
        { kind: "write-file", path: "/proc/sys/x", text: "1" },
        { kind: "read-file", path: "/etc/resolv.conf" },
        { kind: "netlink", requests: new Uint8Array(20) },
        { kind: "packet", to: new Uint8Array(20), frame: new Uint8Array(42) },
        { kind: "twin", epoch: "one", machineId: "0f".repeat(16) },
      ]),
    ),
    chosen(0, Uint8Array.of(0, 0, 0, 0x17, 0)),
    chosen(0, Uint8Array.of(0, 0, 0, 0x14, 0x61)),
    chosen(0, Uint8Array.of(0, 0, 0, 0x0f)),
    chosen(0, Uint8Array.of(0, 0, 0, 0x12, 0)),
    chosen(1, steps.encodeStepResults({ done: [Uint8Array.of(1), new Uint8Array(0)], errno: 0 })),
    chosen(1, steps.encodeStepResults({ done: [], errno: 13 })),
  ],
  words: [],
  run: choosing([
    returning(steps.parseSteps, steps.encodeSteps),
    returning(steps.parseStepResults, steps.encodeStepResults),
  ]),
};

const nic = parkedNicOf(rehearsal, park, shownParked);
const stepped = nic && configurationOf(podConfig, nic);
const resultsAs = (hostname: string, refused?: number): Uint8Array =>
  steps.encodeStepResults({
    done: (stepped?.steps ?? []).map((step) => resultOf(step, hostname, refused)),
    errno: 0,
  });

/** What a guest hands on as its kernel's, after it was sent steps. */
const stepResults: Target = {
  name: "step-results",
  files: ["guest-init/channel/parked.ts"],
  except: [
    "parkedNicOf",
    "aloneParkedNicOf",
    "stepsOfTwin",
    "configurationOf",
    "changesOf",
    "add",
    "netlinkStep",
  ],
  seeds: [resultsAs("pod"), resultsAs("x".repeat(256)), resultsAs("pod", 13)],
  words: [],
  run: (bytes) => void valueOf(refusals, () => stepped?.observed(steps.parseStepResults(bytes))),
};

export const guestMessages: readonly Target[] = [
  stepMessages,
  stepResults,
  extensionMessages,
  replyMessages,
  processMessages,
  mainMessages,
  containerMessages,
  networkMessages,
  podMessages,
];
