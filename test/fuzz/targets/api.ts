import { deepStrictEqual } from "node:assert";
import {
  create,
  type DescMessage,
  fromBinary,
  type JsonValue,
  type MessageShape,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { fromConnectError, fromErrorInfo, toErrorInfo } from "../../../api/codes.ts";
import { ErrorInfoSchema } from "../../../api/gen/podnet/v1/error_pb.ts";
import { InfoRequestSchema } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import * as service from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { parseJsonText, readJson, strictJson } from "../../../api/json.ts";
import {
  validateExec,
  validateExecId,
  validatePodRef,
  validateSignal,
  validateSize,
} from "../../../api/validate/exec.ts";
import { checkMtu } from "../../../api/validate/interfaces.ts";
import { validateCreate, validateLabels } from "../../../api/validate/validate.ts";
import { errorCodes, isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { Random } from "../engine/random.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** All that a request's text may be refused with. */
const refusals = [
  "INVALID_ARGUMENT",
  "UNKNOWN_FIELD",
  "ADDRESS_INVALID",
  "ADDRESS_OUT_OF_RANGE",
  "ADDRESS_RESERVED",
  "ADDRESS_IN_USE",
  "MAC_INVALID",
  "MAC_IN_USE",
  "NAME_IN_USE",
  "MTU_OUT_OF_RANGE",
  "GATEWAY_CONFLICT",
  "MEMORY_TOO_SMALL",
  "UNSUPPORTED",
] as const;
const defaults = { network: "default" as never };

const spec = {
  name: "web",
  labels: { app: "web", tier: "front" },
  resources: { vcpu: 2, memory_mib: 256 },
  boot: {
    kernel: "/boot/vmlinuz",
    initrd: "/boot/initrd",
    cmdline: "quiet",
    disks: [{ path: "/d.qcow2", format: "qcow2", read_only: true }, { path: "/e" }],
  },
  interfaces: [
    {
      network: "default",
      address: "192.168.123.9/24",
      mac: "52:54:00:12:34:56",
      mtu: 1400,
      gateway: "192.168.123.1",
      guest_name: "net0",
    },
    { address: "fd00::9/64", gateway: "fe80::1" },
    { address: "10.9.9.9" },
  ],
  hostname: "web.example",
  dns: { servers: ["9.9.9.9", "2620:fe::fe"], search: ["example.org"], options: ["ndots:2"] },
  routes: [
    { destination: "default", gateway: "10.9.9.1", interface: "eth2" },
    { destination: "10.20.0.0/16", interface: "net0" },
    { destination: "fd09::/64", gateway: "fd00::1" },
  ],
};
const { gateway: _unused, ...withoutGateway } = spec.interfaces[0] as Record<string, unknown>;
const good = {
  request_id: "r-1",
  plan_only: true,
  timeout_ms: 5000,
  spec: { ...spec, interfaces: [withoutGateway, ...spec.interfaces.slice(1)] },
};

/** The good spec with one thing wrong: each refusal has one to grow from. */
const wrong: readonly object[] = [
  { interfaces: [{ mac: "52:54:00:12:34:56" }, { mac: "52:54:00:12:34:56" }] },
  { interfaces: [{ address: "10.0.0.5" }, { address: "10.0.0.5/24" }] },
  { interfaces: [{ guest_name: "eth1" }, {}] },
  { interfaces: [{ gateway: "10.0.0.1" }, { gateway: "10.0.0.2" }] },
  { interfaces: [{ gateway: "10.0.0.1", address: "10.0.0.1/24" }] },
  { interfaces: [{ gateway: "10.0.9.1", address: "10.0.0.1/24" }] },
  { interfaces: [{ address: "10.0.0.0/24" }] },
  { interfaces: [{ address: "10.0.0.255/24" }] },
  { interfaces: [{ address: "10.0.0.0/31" }] },
  { interfaces: [{ address: "::ffff:10.0.0.1" }] },
  { interfaces: [{ address: "ff02::1" }] },
  { interfaces: [{ address: "::" }] },
  { interfaces: [{ address: "127.0.0.1" }] },
  { interfaces: [{ address: "0.0.0.1" }] },
  { interfaces: [{ address: "250.0.0.1" }] },
  { interfaces: [{ address: "224.0.0.1" }] },
  { interfaces: [{ address: "fe80::1" }] },
  { interfaces: [{ mtu: 100 }] },
  { interfaces: [{ mtu: 1000, address: "fd00::5" }] },
  { interfaces: [{ guest_name: "lo" }] },
  { interfaces: Array.from({ length: 25 }, () => ({})) },
  { interfaces: [{ bridge: "br0", address: "10.0.0.5/24", gateway: "10.0.0.1", metric: 5 }] },
  { interfaces: [{ bridge: "br0", addresses: ["10.0.0.5/24", "fd00::5/64"] }] },
  { interfaces: [{ bridge: "br0", address: "none" }] },
  { interfaces: [{ bridge: "br0", addresses: ["none"] }] },
  { interfaces: [{ bridge: "br0" }] },
  { interfaces: [{ bridge: "br0", address: "10.0.0.5" }] },
  { interfaces: [{ bridge: "br0", address: "fd00::5" }] },
  { interfaces: [{ bridge: "br0", network: "default" }] },
  { interfaces: [{ tap_kept: true, tap: "tap0", address: "none" }] },
  { interfaces: [{ tap_kept: true, tap: "tap0", address: "none", port: { vlan: 5 } }] },
  { interfaces: [{ tap_kept: true, address: "none" }] },
  { interfaces: [{ tap: "tap0" }, { tap: "tap0" }] },
  { interfaces: [{ tap: "pnabcdefghijkl0" }] },
  { interfaces: [{ loopback: true, addresses: ["10.0.0.5/32", "fd00::5/128"] }] },
  { interfaces: [{ loopback: true, address: "10.0.0.5" }] },
  { interfaces: [{ loopback: true, address: "10.0.0.5/32", guest_name: "lo5" }] },
  { interfaces: [{ loopback: true, address: "10.0.0.5/32", port: {} }] },
  { interfaces: [{ loopback: true }] },
  { interfaces: [{ cni: {} }, { guest_name: "x", cni: { list: "net", link: "net0" } }] },
  { interfaces: [{ cni: { args: { A: "b" }, capabilities: '{"mac":"02:00:00:00:00:01"}' } }] },
  { interfaces: [{ cni: { netns: "/run/netns/x" } }] },
  { interfaces: [{ cni: { netns: "x" } }] },
  { interfaces: [{ cni: { netns: `/${"x".repeat(5000)}` } }] },
  { interfaces: [{ cni: { netns: "/x", list: "net" } }] },
  { interfaces: [{ cni: { netns: "/x", args: { A: "b" } } }] },
  { interfaces: [{ cni: { netns: "/x", capabilities: "{}" } }] },
  { interfaces: [{ cni: { list: "a/b" } }] },
  { interfaces: [{ cni: { link: "a/b" } }] },
  { interfaces: [{ cni: { args: { "a=b": "" } } }] },
  { interfaces: [{ cni: { args: { a: ";" } } }] },
  {
    interfaces: [{ cni: { args: Object.fromEntries([...Array(33).keys()].map((i) => [i, ""])) } }],
  },
  { interfaces: [{ cni: { capabilities: "{" } }] },
  { interfaces: [{ cni: { capabilities: "[]" } }] },
  { interfaces: [{ cni: { capabilities: " ".repeat(5000) } }] },
  { interfaces: [{ cni: {}, mac: "52:54:00:12:34:56" }] },
  { interfaces: [{ cni: {}, port: {} }] },
  { interfaces: [{ cni: {}, network: "default" }] },
  { interfaces: [{ address: "10.0.0.5", addresses: ["10.0.0.6"] }] },
  { interfaces: [{ addresses: Array.from({ length: 17 }, (_, i) => `10.0.0.${i + 1}`) }] },
  { interfaces: [{ port: {} }, { port: { vlan: 4095 } }] },
  { interfaces: [{ port: { vlan: 7, isolated: true, learning: false } }] },
  { ports: [{ pod_port: 80, host_port: 8080 }] },
  { policy: { default: "deny", rules: [{ name: "a", action: "allow" }] } },
  {
    interfaces: [{ gateway: "10.0.0.1" }],
    routes: [{ destination: "0.0.0.0/0", gateway: "10.0.0.2" }],
  },
  { routes: [{ destination: "10.0.0.0/8" }] },
  { routes: [{ destination: "10.0.0.0/8", interface: "eth0", metric: 5 }] },
  { routes: [{ destination: "10.0.0.0/8", gateway: "fd00::1" }] },
  { routes: [{ destination: "10.0.0.0/8", interface: "nope" }] },
  { routes: [{ destination: "default" }] },
  { routes: [{ destination: "224.0.0.0/8", interface: "eth0" }] },
  {
    routes: [
      { destination: "10.0.0.0/8", interface: "eth0" },
      { destination: "10.0.0.0/8", interface: "eth0" },
    ],
  },
  { dns: { servers: ["127.0.0.1"] } },
  { dns: { search: ["no domain"] } },
  {
    dns: {
      search: ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60), "e".repeat(60)].map(
        (label) => `${label}.x`,
      ),
    },
  },
  { dns: { options: ["NDOTS"] } },
  { dns: {} },
  { resources: { vcpu: 65 } },
  { resources: { memory_mib: 1 } },
  { resources: { memory_mib: 4_000_000 } },
  { boot: { kernel: "relative" } },
  { boot: { cmdline: "\u00fc" } },
  { boot: { disks: [{ path: "/a", format: "vmdk" }] } },
  { boot: { factory: "warm" } },
  { boot: { factory: "template" } },
  { boot: { factory: "template", disks: [{ path: "/a" }] } },
  { labels: { "-": "x" } },
  { labels: { a: "\n" } },
  { process: { args: ["sh", "-c", "a\nb"], entrypoint: ["\t"], env: { A: "\n" } } },
  { process: { args: ["a\0b"] } },
  { bogus: 1 },
  { interfaces: [{ adress: "10.0.0.1" }] },
  { interfaces: {} },
];

/**
 * Text that goes on to command lines, files and the guest: no control character, whatever the
 * field.
 */
function checkSpec(value: unknown, field = "", refused = /\p{Cc}/u): void {
  // A file for cloud-init, which has lines.
  if (field === "userData") return;
  // Sent to plugins as JSON, which writes such characters in another way.
  if (field === "capabilities") return;
  // Read by podnetd, as policies are: see policies in targets/policy.ts.
  if (field === "policy") return;
  // Scripts have lines, and a program is given its arguments as they are.
  const not = field === "process" ? /\0/ : refused;
  if (typeof value === "string" && not.test(value))
    throw new Error(`Accepted as ${field}: ${JSON.stringify(value)}`);
  if (typeof value !== "object" || value === null) return;
  for (const [key, part] of Object.entries(value)) {
    checkSpec(key, `a key of ${field}`, not);
    checkSpec(part, key, not);
  }
}

function readCreate(request: service.CreatePodRequest): void {
  const result = valueOf(refusals, () => validateCreate(request, defaults));
  if (result !== undefined) checkSpec(result);
}

const schemas: readonly DescMessage[] = [
  service.CreatePodRequestSchema,
  service.ExecStartSchema,
  service.ListPodsRequestSchema,
  service.GetPodRequestSchema,
  service.DeletePodRequestSchema,
  service.WatchPodsRequestSchema,
  service.ExecRequestSchema,
  InfoRequestSchema,
];

/**
 * JSON is read by our own reader first; what it takes protobuf-es must take, and say the same back.
 */
function readAny<Desc extends DescMessage>(
  desc: Desc,
  bytes: Uint8Array,
): MessageShape<Desc> | undefined {
  const strict = strictJson(desc) as { textDecoder: { decode: (bytes: Uint8Array) => string } };
  try {
    const message = readJson(desc, parseJsonText(strict.textDecoder.decode(bytes)));
    const again = readJson(desc, toJson(desc, message, { useProtoFieldName: true }));
    deepStrictEqual(toJson(desc, again), toJson(desc, message));
    return message;
  } catch (error) {
    if (error instanceof ConnectError) {
      if (!isPodnetError(fromConnectError(error), ...refusals)) throw error;
    } else if (!isPodnetError(error, ...refusals)) throw error;
    return undefined;
  }
}

const jsonRequests: Target = {
  name: "api-json",
  files: ["api/json.ts"],
  seeds: [
    ...schemas.map((_, i) => chosen(i, json({}))),
    chosen(0, json(good)),
    chosen(0, json({ spec: { memoryMib: 5 } })),
    chosen(0, json({ spec: { resources: { memoryMib: "x" } } })),
    chosen(0, json([])),
    chosen(0, json({ spec: { boot: { disks: [{ nope: 1 }] } } })),
    chosen(5, json({ bogus: 1 })),
    chosen(6, json({ start: {}, resize: {} })),
    chosen(6, json({ close_stdin: { x: 1 } })),
    chosen(7, json({ x: 1 })),
    chosen(7, json([])),
    chosen(2, json({ label: { a: "b" } })),
    chosen(3, utf8("{")),
    chosen(0, Uint8Array.of(0x22, 0xff)),
    chosen(0, utf8(`{"spec":${"[".repeat(800)}`)),
  ],
  words: [
    "spec",
    "interfaces",
    "memoryMib",
    "memory-mib",
    "labels",
    "disks",
    "__proto__",
    "toString",
    "1",
    "null",
  ],
  run: choosing(schemas.map((desc) => (bytes) => void readAny(desc, bytes))),
};

const creates: Target = {
  name: "api-create",
  files: [
    "api/validate/validate.ts",
    "api/validate/interfaces.ts",
    "api/validate/cni.ts",
    "api/validate/routes.ts",
    "api/validate/dns.ts",
    "api/validate/unicast.ts",
    "api/fields.ts",
  ],
  seeds: [
    json(good),
    json({ spec: {} }),
    json({ timeout_ms: 5 }),
    json({ request_id: "\n" }),
    ...wrong.map((part) => json({ spec: part })),
  ],
  words: [
    "default",
    "0.0.0.0/0",
    "::/0",
    "eth0",
    "10.0.0.1",
    "10.0.0.0/24",
    "fd00::1",
    "fe80::1",
    "raw",
    "qcow2",
    "/x",
    "a".repeat(300),
    "\u0000",
    "all",
  ],
  longest: 8192,
  generate: (random) => json({ spec: { ...random.pick(wrong), ...random.pick(wrong) } }),
  run: (bytes) => {
    const request = readAny(service.CreatePodRequestSchema, bytes);
    if (request === undefined) return;
    readCreate(request);
    // Alike by wire.
    readCreate(
      fromBinary(service.CreatePodRequestSchema, toBinary(service.CreatePodRequestSchema, request)),
    );
    for (const one of request.spec?.interfaces ?? [])
      valueOf(refusals, () => checkMtu(one.mtu ?? 0, 4, "mtu"));
    valueOf(refusals, () => validateLabels(request.spec?.labels ?? {}));
  },
};

const start = {
  args: ["sh", "-c", "true"],
  env: { A: "b" },
  workdir: "/",
  terminal: true,
  rows: 24,
  columns: 80,
};
const execs: Target = {
  name: "api-exec",
  files: ["api/validate/exec.ts"],
  seeds: [
    start,
    { args: [] },
    { args: [""] },
    { args: ["x".repeat(70_000)] },
    { args: ["a\u0000"] },
    { args: ["a"], env: { "1": "x" } },
    { args: ["a"], workdir: "x" },
    { args: ["a"], rows: 5000 },
    { args: ["a"], timeoutMs: 1000, user: "web:users" },
    { args: ["a"], timeoutMs: 4_000_000_000 },
    "0123456789abcdef",
    { args: ["a"] },
    { args: Array.from({ length: 300 }, () => "a") },
  ].map(json),
  words: ["args", "env", "workdir", "rows", "columns", "\u0000", "=", "__proto__"],
  longest: 80_000,
  run: (bytes) => {
    const request = readAny(service.ExecStartSchema, bytes);
    if (request !== undefined) {
      valueOf(refusals, () => validateExec(request));
      valueOf(refusals, () => validateSize(request));
      valueOf(refusals, () => validateSignal(request.rows));
    }
    valueOf(refusals, () => validatePodRef(textOf(bytes.subarray(0, 70))));
    // (An id stands in quotes among the seeds.)
    valueOf(refusals, () => validateExecId(textOf(bytes.subarray(1, 17))));
  },
};

/**
 * protobuf-es throws what it likes, which Connect reports as INVALID_ARGUMENT; but not what a slip
 * in code throws.
 */
const isSlip = (error: unknown): boolean =>
  error instanceof TypeError &&
  !("code" in error && error.code === "ERR_ENCODING_INVALID_ENCODED_DATA");

/** Fields of protobuf's wire, of any number and type. */
function wire(random: Random, depth = 0): Uint8Array {
  const varint = (value: number): number[] =>
    value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))];
  const field = (): number[] => {
    const number = 1 + random.below(12);
    const type = random.below(random.once(10) ? 8 : 3);
    if (type === 0)
      return [
        ...varint(number * 8),
        ...varint(random.pick([0, 1, 127, 128, 65535, 2 ** 31, 2 ** 32, 2 ** 53 - 1])),
      ];
    if (type === 1) return [...varint(number * 8 + 1), ...random.bytes(8)];
    if (type !== 2) return [...varint(number * 8 + type), ...random.bytes(random.below(5))];
    const body =
      depth < 3 && random.once(2)
        ? wire(random, depth + 1)
        : utf8(random.pick(["eth0", "10.0.0.1/24", "", "\u0000", "52:54:00:00:00:01", "a=b"]));
    return [
      ...varint(number * 8 + 2),
      ...varint(random.once(10) ? random.below(2 ** 31) : body.length),
      ...body,
    ];
  };
  return Uint8Array.from(random.list(random.below(5), field).flat());
}

const binary = (value: object): Uint8Array =>
  toBinary(
    service.CreatePodRequestSchema,
    readJson(service.CreatePodRequestSchema, value as JsonValue),
  );
const binaryRequests: Target = {
  name: "api-protobuf",
  files: [
    "api/validate/validate.ts",
    "api/validate/interfaces.ts",
    "api/validate/routes.ts",
    "api/validate/dns.ts",
    "api/validate/unicast.ts",
  ],
  seeds: [
    binary(good),
    ...wrong.slice(0, -3).map((part) => binary({ spec: part })),
    binary({ timeout_ms: 5 }),
    binary({ request_id: "\n" }),
  ],
  generate: wire,
  longest: 4096,
  run: (bytes) => {
    let request: service.CreatePodRequest;
    try {
      request = fromBinary(service.CreatePodRequestSchema, bytes);
    } catch (error) {
      if (isSlip(error)) throw error;
      return;
    }
    readCreate(request);
    valueOf(refusals, () => checkMtu(request.timeoutMs, 6, "mtu"));
  },
};

/** What a client gets from a daemon that is not ours. */
const errorInfos: Target = {
  name: "api-error-info",
  files: ["api/codes.ts"],
  except: ["toConnectError"],
  seeds: [
    toBinary(
      ErrorInfoSchema,
      toErrorInfo(
        new PodnetError("POD_NOT_FOUND", "no", {
          hint: "h",
          field: "f",
          step: "s",
          details: { a: 1 },
        }),
      ),
    ),
    toBinary(ErrorInfoSchema, create(ErrorInfoSchema, { code: "NEW", message: "m" })),
  ],
  words: ["INTERNAL", "constructor"],
  run: (bytes) => {
    for (const code of [bytes[0] ?? 0, 2, 3]) {
      fromConnectError(new ConnectError(bytes.length === 0 ? "" : textOf(bytes), code));
      fromConnectError(
        new ConnectError("x", code, undefined, undefined, new PodnetError("CANCELLED", "y")),
      );
    }
    fromConnectError(new Error(textOf(bytes)));
    fromConnectError(new PodnetError("CANCELLED", "y"));
    const outgoing = new ConnectError("x", 3);
    outgoing.details.push({ type: ErrorInfoSchema.typeName, value: bytes });
    if (!errorCodes.includes(fromConnectError(outgoing).code)) throw new Error("No code of ours");
    try {
      const info = fromBinary(ErrorInfoSchema, bytes);
      const again = toErrorInfo(fromErrorInfo(info));
      if (errorCodes.includes(info.code as never)) deepStrictEqual(again.message, info.message);
    } catch (error) {
      if (isSlip(error)) throw error;
    }
  },
};

export const api: readonly Target[] = [jsonRequests, creates, execs, binaryRequests, errorInfos];
