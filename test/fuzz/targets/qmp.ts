import { deepStrictEqual } from "node:assert";
import { parseBlockStats } from "../../../hypervisor/qmp/block-stats.ts";
import { parseFdSets } from "../../../hypervisor/qmp/fd-sets.ts";
import { eventData, type QmpEventName } from "../../../hypervisor/qmp/commands.ts";
import { parseBridges, parseMachine } from "../../../hypervisor/attach/machine.ts";
import { LineSplitter } from "../../../hypervisor/qmp/lines.ts";
import { parseMessage } from "../../../hypervisor/qmp/message.ts";
import { digest, Random } from "../engine/random.ts";
import { json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["QMP_PROTOCOL"] as const;
const limit = 256;
const timestamp = { seconds: 1_700_000_000, microseconds: 5 };
const said = [
  {
    QMP: {
      version: { qemu: { micro: 0, minor: 2, major: 7 }, package: "Debian" },
      capabilities: ["oob"],
    },
  },
  { QMP: { version: { qemu: { micro: 0, minor: 2, major: 7 }, package: 3 }, capabilities: [1] } },
  { QMP: { version: { qemu: {} }, capabilities: [] } },
  { return: {}, id: 2 },
  { return: [{ label: "x" }] },
  { error: { class: "GenericError", desc: "no" }, id: 3 },
  { event: "DEVICE_DELETED", data: { device: "nic0", path: "/machine" }, timestamp },
  { event: "DEVICE_DELETED", data: { path: "/machine" }, timestamp },
  {
    event: "SHUTDOWN",
    data: { guest: true, reason: "guest-shutdown" },
    timestamp: { seconds: -1, microseconds: -1 },
  },
  { event: "VSERPORT_CHANGE", data: { id: "p", open: true }, timestamp },
  { event: "STOP", timestamp },
  { event: "STOP" },
  { event: "STOP", timestamp: {} },
];
const names: readonly QmpEventName[] = [
  "SHUTDOWN",
  "RESET",
  "STOP",
  "RESUME",
  "DEVICE_DELETED",
  "VSERPORT_CHANGE",
];

const messages: Target = {
  name: "qmp-message",
  files: ["hypervisor/qmp/message.ts", "hypervisor/qmp/commands.ts"],
  seeds: [...said.map(json), utf8("[]"), utf8("x"), utf8("[".repeat(1000))],
  words: [
    "QMP",
    "return",
    "error",
    "event",
    "id",
    "class",
    "desc",
    "data",
    "timestamp",
    "seconds",
    "version",
    ...names,
  ],
  longest: 4096,
  run: (bytes) => {
    const message = valueOf(refusals, () => parseMessage(textOf(bytes)));
    if (message?.kind !== "event") return;
    for (const name of names) eventData(message, name);
  },
};

/** Lines of a stream, cut in some way; the last is what was refused. */
function lines(bytes: Uint8Array, most: number): string[] {
  const random = new Random(digest(bytes));
  const splitter = new LineSplitter(limit);
  const found: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const part = bytes.subarray(at, at + 1 + random.below(most));
    at += part.length;
    const more = valueOf(refusals, () => splitter.push(part));
    if (more === undefined) return [...found, "refused"];
    found.push(...more);
    if (splitter.midLine !== (bytes[at - 1] !== 10)) throw new Error("Not where the line is");
  }
  return found;
}

const splitting: Target = {
  name: "qmp-lines",
  files: ["hypervisor/qmp/lines.ts"],
  seeds: [
    utf8('{"return":{}}\r\n{"event":"STOP"}\n'),
    utf8("x".repeat(limit)),
    utf8(`${"y".repeat(limit)}\n\n`),
    utf8("z".repeat(limit + 1)),
  ],
  words: ["\n", "\r\n", "\u00fc", "{}"],
  run: (bytes) => {
    const whole = lines(bytes, 1 << 20);
    const pieces = lines(bytes, 7);
    // A refusal takes with it what came whole in the same piece.
    if (whole.at(-1) === "refused") deepStrictEqual(pieces.at(-1), "refused");
    else deepStrictEqual(pieces, whole);
    for (const line of whole) if (line.length > limit) throw new Error("A line beyond the limit");
  },
};

const counted = { rd_bytes: 512, rd_operations: 1, wr_bytes: 0, wr_operations: 0, flush: 1 };
const blockStats: Target = {
  name: "qmp-block-stats",
  files: ["hypervisor/qmp/block-stats.ts"],
  seeds: [
    [{ "node-name": "disk0", qdev: "/machine/peripheral/disk0", stats: counted }],
    [{ device: "", stats: counted }],
    [{ "node-name": "disk0", stats: { ...counted, rd_bytes: -1 } }],
    [{ "node-name": "disk0", stats: { ...counted, wr_operations: "1" } }],
    [{ "node-name": 1, stats: counted }, null, 5],
    {},
  ].map(json),
  words: ["node-name", "stats", ...Object.keys(counted), "disk0", "1e999", "-1", "null"],
  run: (bytes) => {
    let answer: unknown;
    try {
      answer = JSON.parse(textOf(bytes));
    } catch {
      return;
    }
    for (const stats of parseBlockStats(answer).values())
      for (const each of [stats.rd_bytes, stats.rd_operations, stats.wr_bytes, stats.wr_operations])
        BigInt(each);
  },
};

const fdSets: Target = {
  name: "qmp-fd-sets",
  files: ["hypervisor/qmp/fd-sets.ts"],
  seeds: [
    [
      { "fdset-id": 0, fds: [{ fd: 3, opaque: "/srv/disk" }] },
      { "fdset-id": 1, fds: [{ fd: 9 }, { fd: 10, opaque: "data-one" }] },
    ],
    [{ "fdset-id": "1", fds: [{ opaque: "data-one" }] }],
    [{ "fdset-id": 1, fds: [null, 1, "data-one"] }, null, {}],
    {},
  ].map(json),
  words: ["fdset-id", "fds", "opaque", "data-one", "1e999", "-1", "1.5", "null"],
  run: (bytes) => {
    let answer: unknown;
    try {
      answer = JSON.parse(textOf(bytes));
    } catch {
      return;
    }
    for (const set of parseFdSets(answer, "data-one")) BigInt(set);
  },
};

const others = {
  type: "pc-q35-7.2-machine",
  status: { running: true, status: "running" },
  migration: {},
  kvm: { enabled: false },
  memory: { "base-memory": 134_217_728, "plugged-memory": 0 },
  cpus: [{ "thread-id": 32 }],
  nics: [{ name: "virtio-net-pci" }],
  peripherals: [
    { name: "port1", type: "child<pcie-root-port>" },
    { name: "bridge1", type: "child<pcie-pci-bridge>" },
    { name: "nic0", type: "child<virtio-net-pci>" },
  ],
  handler: "/machine/unattached/device[2]",
  taken: [40, 250],
};
const othersMachine: Target = {
  name: "qmp-others-machine",
  files: ["hypervisor/attach/machine.ts"],
  seeds: [
    others,
    { ...others, taken: [] },
    { ...others, type: "pc-i440fx-7.2-machine" },
    { ...others, type: "microvm-machine" },
    { ...others, type: 1 },
    { ...others, status: { running: false, status: "prelaunch" } },
    { ...others, migration: { status: "active" } },
    { ...others, nics: [] },
    { ...others, memory: { "base-memory": -1 } },
    { ...others, cpus: [{ "thread-id": 0 }] },
    { ...others, handler: "" },
    { ...others, peripherals: [{ name: "port 1", type: "child<pcie-root-port>" }, 5] },
    { ...others, taken: ["x"] },
    [],
  ].map(json),
  words: [
    ...Object.keys(others),
    "child<pcie-root-port>",
    "child<pci-bridge>",
    "child<__proto__>",
    "thread-id",
    "base-memory",
    "running",
    "1e999",
  ],
  longest: 4096,
  run: (bytes) => {
    let said: typeof others | undefined;
    try {
      said = JSON.parse(textOf(bytes)) as typeof others;
    } catch {
      return;
    }
    if (typeof said !== "object" || said === null) return;
    const { handler, taken, peripherals, ...rest } = said;
    const codes = ["QMP_PROTOCOL", "UNSUPPORTED", "WRONG_STATE", "NIC_SLOTS_FULL"] as const;
    const bridges = valueOf(codes, () => parseBridges(peripherals)) ?? [];
    for (const { path } of bridges)
      if (!/^[\w./-]+$/.test(path)) throw new Error(`A path that should not be asked for: ${path}`);
    const buses = bridges.map((bus) => ({
      ...bus,
      handler,
      taken: Array.isArray(taken) ? taken : [],
    }));
    const found = valueOf(codes, () => parseMachine({ ...rest, buses }));
    if (found === undefined) return;
    if (found.places.length === 0) throw new Error("Neither a place nor a refusal");
    for (const { slot } of found.places)
      if (slot < 0 || slot > 31) throw new Error(`A slot that is none: ${slot}`);
  },
};

export const qmp: readonly Target[] = [messages, splitting, blockStats, fdSets, othersMachine];
