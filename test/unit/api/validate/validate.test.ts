import {
  create,
  fromBinary,
  type JsonValue,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import test from "ava";
import { NetworkSpecSchema } from "../../../../api/gen/podnet/v1/network_service_pb.ts";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodSpecSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import { readJson } from "../../../../api/json.ts";
import { validateCreate } from "../../../../api/validate/validate.ts";
import { validateNetwork } from "../../../../api/validate/network.ts";
import { type ErrorCode, PodnetError } from "../../../../core/errors.ts";
import type { NetworkName } from "../../../../core/names.ts";

type SpecInit = MessageInitShape<typeof PodSpecSchema>;
type RequestInit = MessageInitShape<typeof CreatePodRequestSchema>;

const defaults = { network: "default" as NetworkName };
const check = (init: RequestInit): ReturnType<typeof validateCreate> =>
  validateCreate(create(CreatePodRequestSchema, init), defaults);
const specOf = (spec: SpecInit): PodSpec => check({ spec }).spec;

const times = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);
const one = (
  iface: NonNullable<SpecInit["interfaces"]>[number],
): { interfaces: NonNullable<SpecInit["interfaces"]> } => ({ interfaces: [iface] });
const many = (n: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: n }, (_, i) => [`k${i}`, ""]));

/** Every bad spec: what is wrong, the code, the field. */
const bad: readonly [SpecInit, ErrorCode, string][] = [
  [{ name: "Web" }, "INVALID_ARGUMENT", "name"],
  [{ name: "-web" }, "INVALID_ARGUMENT", "name"],
  [{ name: "w".repeat(64) }, "INVALID_ARGUMENT", "name"],
  [{ labels: { "": "x" } }, "INVALID_ARGUMENT", 'labels[""]'],
  [{ labels: { "a b": "x" } }, "INVALID_ARGUMENT", 'labels["a b"]'],
  [{ labels: { a: "x".repeat(256) } }, "INVALID_ARGUMENT", 'labels["a"]'],
  [{ labels: { a: "x\ny" } }, "INVALID_ARGUMENT", 'labels["a"]'],
  [{ labels: many(65) }, "INVALID_ARGUMENT", "labels"],
  [{ resources: { vcpu: 65 } }, "INVALID_ARGUMENT", "resources.vcpu"],
  [{ resources: { memoryMib: 31 } }, "MEMORY_TOO_SMALL", "resources.memory_mib"],
  [{ resources: { memoryMib: 2 ** 21 } }, "INVALID_ARGUMENT", "resources.memory_mib"],
  [{ boot: { kernel: "vmlinux" } }, "INVALID_ARGUMENT", "boot.kernel"],
  [{ boot: { initrd: "/a\0b" } }, "INVALID_ARGUMENT", "boot.initrd"],
  [{ files: times(65, { path: "/f" }) }, "INVALID_ARGUMENT", "files"],
  [{ disks: times(8, { sizeMib: 1 }) }, "INVALID_ARGUMENT", "disks"],
  [{ disks: [{ sizeMib: 1 }, {}] }, "INVALID_ARGUMENT", "disks[1].file"],
  [
    { files: [{ path: "/a" }, { path: "/b" }, { path: "/a" }] },
    "INVALID_ARGUMENT",
    "files[2].path",
  ],
  ...[
    "",
    "etc/f",
    "/",
    "/etc/",
    "/etc//f",
    "/etc/../f",
    "/./f",
    "/a\nb",
    "/".padEnd(1026, "x"),
  ].map((path): [SpecInit, ErrorCode, string] => [
    { files: [{ path }] },
    "INVALID_ARGUMENT",
    "files[0].path",
  ]),
  [{ shares: times(9, { hostPath: "/h", path: "/g" }) }, "INVALID_ARGUMENT", "shares"],
  ...["", "h", "/h/", "/h/../etc", "/h//i", "/h\0"].map(
    (hostPath): [SpecInit, ErrorCode, string] => [
      { shares: [{ hostPath, path: "/g" }] },
      "INVALID_ARGUMENT",
      "shares[0].host_path",
    ],
  ),
  ...["", "g", "/", "/proc", "/sys/fs", "/dev/shm", "/g/../etc"].map(
    (path): [SpecInit, ErrorCode, string] => [
      { shares: [{ hostPath: "/h", path }] },
      "INVALID_ARGUMENT",
      "shares[0].path",
    ],
  ),
  [
    { shares: ["/g", "/g/below"].map((path) => ({ hostPath: "/h", path })) },
    "INVALID_ARGUMENT",
    "shares[1].path",
  ],
  [
    { shares: [{ hostPath: "/h", path: "/g" }], boot: { factory: "template" } },
    "UNSUPPORTED",
    "boot.factory",
  ],
  [
    { shares: [{ hostPath: "/h", path: "/g" }], resources: { maxMemoryMib: 256 } },
    "UNSUPPORTED",
    "resources.max_memory_mib",
  ],
  [
    { files: [{ path: "/f", content: Buffer.alloc(262_145) }] },
    "INVALID_ARGUMENT",
    "files[0].content",
  ],
  [
    { files: ["/a", "/b", "/c"].map((path) => ({ path, content: Buffer.alloc(180_000) })) },
    "INVALID_ARGUMENT",
    "files",
  ],
  [
    { files: [{ path: "/f", content: Buffer.from("(12 bytes, not shown)") }] },
    "INVALID_ARGUMENT",
    "files[0].content",
  ],
  [{ files: [{ path: "/f", mode: 0o10000 }] }, "INVALID_ARGUMENT", "files[0].mode"],
  [{ files: [{ path: "/f", uid: 0xffffffff }] }, "INVALID_ARGUMENT", "files[0].uid"],
  [{ files: [{ path: "/f", gid: 0xffffffff }] }, "INVALID_ARGUMENT", "files[0].gid"],
  [{ boot: { cmdline: "x".repeat(1025) } }, "INVALID_ARGUMENT", "boot.cmdline"],
  [{ boot: { cmdline: "a\nb" } }, "INVALID_ARGUMENT", "boot.cmdline"],
  [{ boot: { disks: times(9, { path: "/d" }) } }, "INVALID_ARGUMENT", "boot.disks"],
  [{ boot: { disks: [{ path: "d" }] } }, "INVALID_ARGUMENT", "boot.disks[0].path"],
  [
    { boot: { disks: [{ path: "/d", format: "vmdk" }] } },
    "INVALID_ARGUMENT",
    "boot.disks[0].format",
  ],
  [{ boot: { factory: "warm" } }, "INVALID_ARGUMENT", "boot.factory"],
  [{ boot: { factory: "template", disks: [{ path: "/d" }] } }, "UNSUPPORTED", "boot.factory"],
  [
    { boot: { disks: [{ path: "/d", readOnly: true, writeThrough: true }] } },
    "INVALID_ARGUMENT",
    "boot.disks[0].write_through",
  ],
  [{ boot: { kernel: "none" } }, "INVALID_ARGUMENT", "boot.disks"],
  [
    { boot: { kernel: "none", initrd: "/i", disks: [{ path: "/d" }] } },
    "INVALID_ARGUMENT",
    "boot.initrd",
  ],
  [
    { boot: { kernel: "none", cmdline: "quiet", disks: [{ path: "/d" }] } },
    "INVALID_ARGUMENT",
    "boot.cmdline",
  ],
  [{ boot: { factory: "template", cloudInit: {} } }, "UNSUPPORTED", "boot.factory"],
  [{ boot: { factory: "template", agent: "none" } }, "UNSUPPORTED", "boot.factory"],
  [{ boot: { agent: "podnet" } }, "INVALID_ARGUMENT", "boot.agent"],
  [{ boot: { cloudInit: { userData: "x" } } }, "INVALID_ARGUMENT", "boot.cloud_init.user_data"],
  [{ boot: { cloudInit: { userData: "#!\0" } } }, "INVALID_ARGUMENT", "boot.cloud_init.user_data"],
  [
    { boot: { cloudInit: { userData: "#".padEnd(65_537, "x") } } },
    "INVALID_ARGUMENT",
    "boot.cloud_init.user_data",
  ],
  [{ interfaces: times(25, {}) }, "INVALID_ARGUMENT", "interfaces"],
  [one({ bridge: "br1" }), "INVALID_ARGUMENT", "interfaces[0].address"],
  [one({ bridge: "br1", address: "10.0.0.2" }), "INVALID_ARGUMENT", "interfaces[0].address"],
  [one({ bridge: "b r", address: "none" }), "INVALID_ARGUMENT", "interfaces[0].bridge"],
  [one({ bridge: "br1", network: "a" }), "INVALID_ARGUMENT", "interfaces[0].bridge"],
  [one({ bridge: "br1", loopback: true }), "INVALID_ARGUMENT", "interfaces[0].loopback"],
  [one({ tapKept: true, address: "none" }), "INVALID_ARGUMENT", "interfaces[0].tap"],
  [one({ tapKept: true, tap: "t0" }), "INVALID_ARGUMENT", "interfaces[0].address"],
  [
    one({ tapKept: true, tap: "t0", address: "none", port: { vlan: 5 } }),
    "INVALID_ARGUMENT",
    "interfaces[0].port",
  ],
  [one({ tapKept: true, tap: "t0", network: "a" }), "INVALID_ARGUMENT", "interfaces[0].tap_kept"],
  [one({ tap: "pnabcdefghijkl0" }), "INVALID_ARGUMENT", "interfaces[0].tap"],
  [one({ tap: "lo" }), "INVALID_ARGUMENT", "interfaces[0].tap"],
  [{ interfaces: [{ tap: "t0" }, { tap: "t0" }] }, "NAME_IN_USE", "interfaces[1].tap"],
  [one({ loopback: true }), "INVALID_ARGUMENT", "interfaces[0].addresses"],
  [one({ loopback: true, address: "10.0.0.1" }), "INVALID_ARGUMENT", "interfaces[0].address"],
  [
    one({ loopback: true, address: "10.0.0.1/32", mtu: 1400 }),
    "INVALID_ARGUMENT",
    "interfaces[0].mtu",
  ],
  [
    one({ loopback: true, address: "10.0.0.1/32", guestName: "lo1" }),
    "INVALID_ARGUMENT",
    "interfaces[0].guest_name",
  ],
  [
    { interfaces: times(2, { loopback: true, address: "10.0.0.1/32" }) },
    "ADDRESS_IN_USE",
    "interfaces[1].address",
  ],
  [one({ port: { vlan: 4095 } }), "INVALID_ARGUMENT", "interfaces[0].port.vlan"],
  [
    one({ address: "10.0.0.2", addresses: ["10.0.0.3"] }),
    "INVALID_ARGUMENT",
    "interfaces[0].addresses",
  ],
  [one({ addresses: times(17, "10.0.0.2") }), "INVALID_ARGUMENT", "interfaces[0].addresses"],
  [one({ addresses: ["10.0.0.2", "x"] }), "ADDRESS_INVALID", "interfaces[0].addresses[1]"],
  [
    {
      interfaces: [
        { gateway: "10.0.0.1", metric: 7 },
        { network: "b", gateway: "10.1.0.1", metric: 7 },
      ],
    },
    "GATEWAY_CONFLICT",
    "interfaces[1].gateway",
  ],
  [one({ network: "No" }), "INVALID_ARGUMENT", "interfaces[0].network"],
  [one({ address: "192.168.123" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "192.168.123.2/33" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "192.168.123.02" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "127.0.0.1" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "0.0.0.0" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "224.0.0.1" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "255.255.255.255" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "::" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "ff02::1" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "fe80::2" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "::ffff:192.0.2.1" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "fd00::1%eth0" }), "ADDRESS_INVALID", "interfaces[0].address"],
  [one({ address: "192.168.123.0/24" }), "ADDRESS_RESERVED", "interfaces[0].address"],
  [one({ address: "192.168.123.255/24" }), "ADDRESS_RESERVED", "interfaces[0].address"],
  [one({ address: "fd00::/64" }), "ADDRESS_RESERVED", "interfaces[0].address"],
  [one({ mac: "52:54:00:12:34" }), "MAC_INVALID", "interfaces[0].mac"],
  [one({ mac: "53:54:00:12:34:56" }), "MAC_INVALID", "interfaces[0].mac"],
  [one({ mac: "ff:ff:ff:ff:ff:ff" }), "MAC_INVALID", "interfaces[0].mac"],
  [one({ mac: "00:00:00:00:00:00" }), "MAC_INVALID", "interfaces[0].mac"],
  [one({ mtu: 575 }), "MTU_OUT_OF_RANGE", "interfaces[0].mtu"],
  [one({ mtu: 65536 }), "MTU_OUT_OF_RANGE", "interfaces[0].mtu"],
  [one({ address: "fd00::2", mtu: 1279 }), "MTU_OUT_OF_RANGE", "interfaces[0].mtu"],
  [one({ gateway: "fd00::1", mtu: 1279 }), "MTU_OUT_OF_RANGE", "interfaces[0].mtu"],
  [one({ gateway: "gw" }), "ADDRESS_INVALID", "interfaces[0].gateway"],
  [one({ gateway: "224.0.0.1" }), "ADDRESS_INVALID", "interfaces[0].gateway"],
  [one({ address: "10.0.0.2", gateway: "10.0.0.2" }), "ADDRESS_INVALID", "interfaces[0].gateway"],
  [
    one({ address: "10.0.0.2/24", gateway: "10.0.1.1" }),
    "ADDRESS_OUT_OF_RANGE",
    "interfaces[0].gateway",
  ],
  [one({ guestName: "a/b" }), "INVALID_ARGUMENT", "interfaces[0].guest_name"],
  [one({ guestName: "x".repeat(16) }), "INVALID_ARGUMENT", "interfaces[0].guest_name"],
  [one({ guestName: "lo" }), "INVALID_ARGUMENT", "interfaces[0].guest_name"],
  [one({ guestName: "all" }), "INVALID_ARGUMENT", "interfaces[0].guest_name"],
  [one({ bridge: "all", address: "none" }), "INVALID_ARGUMENT", "interfaces[0].bridge"],
  [one({ tap: "default" }), "INVALID_ARGUMENT", "interfaces[0].tap"],
  [
    { interfaces: [{ gateway: "10.0.0.1" }, { network: "b", gateway: "10.1.0.1" }] },
    "GATEWAY_CONFLICT",
    "interfaces[1].gateway",
  ],
  [
    { interfaces: [{ mac: "52:54:00:00:00:0a" }, {}, { mac: "52:54:00:00:00:0A" }] },
    "MAC_IN_USE",
    "interfaces[2].mac",
  ],
  [
    { interfaces: [{ address: "10.0.0.2" }, { address: "10.0.0.2/8" }] },
    "ADDRESS_IN_USE",
    "interfaces[1].address",
  ],
  [
    { interfaces: [{ guestName: "wan" }, { guestName: "wan" }] },
    "INVALID_ARGUMENT",
    "interfaces[1].guest_name",
  ],
  // The second has no name and would be eth1.
  [{ interfaces: [{ guestName: "eth1" }, {}] }, "INVALID_ARGUMENT", "interfaces[1].guest_name"],
  [{ hostname: "a_b" }, "INVALID_ARGUMENT", "hostname"],
  [{ hostname: "h".repeat(64) }, "INVALID_ARGUMENT", "hostname"],
  [{ dns: { servers: ["127.0.0.53"] } }, "ADDRESS_INVALID", "dns.servers[0]"],
  [{ dns: { servers: ["192.0.2.1", "::1"] } }, "ADDRESS_INVALID", "dns.servers[1]"],
  [{ dns: { servers: ["dns.example"] } }, "ADDRESS_INVALID", "dns.servers[0]"],
  [{ dns: { servers: times(4, "192.0.2.1") } }, "INVALID_ARGUMENT", "dns.servers"],
  [{ dns: { search: ["a b"] } }, "INVALID_ARGUMENT", "dns.search[0]"],
  [{ dns: { search: ["a\nnameserver 1.2.3.4"] } }, "INVALID_ARGUMENT", "dns.search[0]"],
  [{ dns: { search: times(7, "a.example") } }, "INVALID_ARGUMENT", "dns.search"],
  [{ dns: { search: times(5, `${"a".repeat(60)}.example`) } }, "INVALID_ARGUMENT", "dns.search"],
  [{ dns: { options: ["ndots: 2"] } }, "INVALID_ARGUMENT", "dns.options[0]"],
  [{ dns: { options: times(9, "rotate") } }, "INVALID_ARGUMENT", "dns.options"],
  [
    { routes: times(65, { destination: "10.0.0.0/8", interface: "eth0" }) },
    "INVALID_ARGUMENT",
    "routes",
  ],
  [{ routes: [{ destination: "10.0.0.0/8" }] }, "INVALID_ARGUMENT", "routes[0]"],
  [
    { routes: [{ destination: "10.0.0.1/8", interface: "eth0" }] },
    "ADDRESS_INVALID",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "", interface: "eth0" }] },
    "ADDRESS_INVALID",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "default", interface: "eth0" }] },
    "INVALID_ARGUMENT",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "127.0.0.0/8", interface: "eth0" }] },
    "ADDRESS_INVALID",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "224.0.0.0/4", interface: "eth0" }] },
    "ADDRESS_INVALID",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "ff00::/8", interface: "eth0" }] },
    "ADDRESS_INVALID",
    "routes[0].destination",
  ],
  [
    { routes: [{ destination: "fd00::/64", gateway: "10.0.0.1" }] },
    "ADDRESS_INVALID",
    "routes[0].gateway",
  ],
  [
    { routes: [{ destination: "10.0.0.0/8", interface: "eth1" }] },
    "INVALID_ARGUMENT",
    "routes[0].interface",
  ],
  [
    { routes: times(2, { destination: "10.0.0.0/8", interface: "eth0" }) },
    "INVALID_ARGUMENT",
    "routes[1].destination",
  ],
  [
    { ...one({ gateway: "10.0.0.1" }), routes: [{ destination: "default", gateway: "10.0.0.9" }] },
    "GATEWAY_CONFLICT",
    "routes[0].destination",
  ],
  [
    { ...one({ gateway: "10.0.0.1" }), routes: [{ destination: "0.0.0.0/0", interface: "eth0" }] },
    "GATEWAY_CONFLICT",
    "routes[0].destination",
  ],
];

test("nothing said is a pod of defaults", (t) => {
  t.deepEqual(check({}), {
    spec: {
      labels: {},
      resources: { vcpu: 1, memoryMib: 128 },
      boot: { cmdline: "", disks: [] },
      interfaces: [{ network: defaults.network }],
      routes: [],
    },
    planOnly: false,
  });
});

test("a spec that says everything keeps everything, in canonical form", (t) => {
  const spec = specOf({
    name: "web",
    labels: { "app.kubernetes.io/name": "web", tier: "" },
    resources: { vcpu: 2, memoryMib: 256 },
    boot: {
      kernel: "/boot/vmlinux",
      initrd: "/boot/initrd",
      cmdline: "quiet console=ttyS0",
      disks: [
        { path: "/var/a.raw", writeThrough: true },
        { path: "/var/b.qcow2", format: "qcow2", readOnly: true },
      ],
      factory: "cold",
      agent: "none",
      cloudInit: { userData: "#cloud-config\n" },
    },
    interfaces: [
      { address: "192.168.123.9", mac: "52:54:00:AB:CD:EF", mtu: 1400, gateway: "192.168.123.1" },
      { network: "lan", address: "FD00:0::2/64", mtu: 1280, guestName: "lan0", gateway: "fe80::1" },
    ],
    hostname: "web.example",
    dns: { servers: ["192.0.2.53"], search: ["example.org"], options: ["ndots:2", "rotate"] },
    routes: [
      { destination: "10.0.0.0/8", gateway: "192.168.123.7" },
      { destination: "198.51.100.0/24", interface: "lan0" },
    ],
  });
  t.deepEqual(JSON.parse(JSON.stringify(spec)), {
    name: "web",
    labels: { "app.kubernetes.io/name": "web", tier: "" },
    resources: { vcpu: 2, memoryMib: 256 },
    boot: {
      kernel: "/boot/vmlinux",
      initrd: "/boot/initrd",
      cmdline: "quiet console=ttyS0",
      disks: [
        { path: "/var/a.raw", format: "raw", readOnly: false, writeThrough: true },
        { path: "/var/b.qcow2", format: "qcow2", readOnly: true },
      ],
      factory: "cold",
      agent: "none",
      cloudInit: { userData: "#cloud-config\n" },
    },
    interfaces: [
      {
        network: "default",
        addresses: ["192.168.123.9"],
        mac: "52:54:00:ab:cd:ef",
        mtu: 1400,
        gateway: "192.168.123.1",
      },
      {
        network: "lan",
        addresses: ["fd00::2/64"],
        mtu: 1280,
        gateway: "fe80::1",
        guestName: "lan0",
      },
    ],
    hostname: "web.example",
    dns: { servers: ["192.0.2.53"], search: ["example.org"], options: ["ndots:2", "rotate"] },
    routes: [
      { destination: "10.0.0.0/8", gateway: "192.168.123.7" },
      { destination: "198.51.100.0/24", interface: "lan0" },
    ],
  });
});

test("a request id and a timeout pass through", (t) => {
  const { requestId, timeoutMs, planOnly } = check({
    requestId: "f00-1",
    timeoutMs: 5000,
    planOnly: true,
  });
  t.deepEqual(
    { requestId, timeoutMs, planOnly },
    {
      requestId: "f00-1",
      timeoutMs: 5000,
      planOnly: true,
    },
  );
});

test("every bad spec is refused with its code and the field at fault", (t) => {
  for (const [spec, code, field] of bad) {
    const shown = JSON.stringify(spec);
    const error = t.throws(() => specOf(spec), { instanceOf: PodnetError }, shown);
    t.is(error?.code, code, shown);
    t.is(error?.field, field, shown);
    t.truthy(error?.hint, `${shown} has no hint`);
    t.notRegex(error?.message ?? "", /\.$/, "messages have no full stop");
  }
});

test("a zero that is written is refused where it is no amount, as JSON or by wire; left out it is the default", (t) => {
  const zeros: readonly [JsonValue, ErrorCode, string][] = [
    [{ resources: { vcpu: 0 } }, "INVALID_ARGUMENT", "resources.vcpu"],
    [{ resources: { memory_mib: 0 } }, "MEMORY_TOO_SMALL", "resources.memory_mib"],
    [{ interfaces: [{ mtu: 0 }] }, "MTU_OUT_OF_RANGE", "interfaces[0].mtu"],
    [{ interfaces: [{ port: { vlan: 0 } }] }, "INVALID_ARGUMENT", "interfaces[0].port.vlan"],
    [{ ports: [{ pod_port: 80, count: 0 }] }, "INVALID_ARGUMENT", "ports[0].count"],
  ];
  for (const [spec, code, field] of zeros) {
    const request = readJson(CreatePodRequestSchema, { spec });
    const bytes = toBinary(CreatePodRequestSchema, request);
    for (const each of [request, fromBinary(CreatePodRequestSchema, bytes)]) {
      const error = t.throws(() => validateCreate(each, defaults), { instanceOf: PodnetError });
      t.deepEqual([error.code, error.field], [code, field]);
    }
  }
  const spec = { resources: {}, interfaces: [{ port: {} }], ports: [{ pod_port: 80 }] };
  const { resources } = validateCreate(readJson(CreatePodRequestSchema, { spec }), defaults).spec;
  t.deepEqual(resources, { vcpu: 1, memoryMib: 128 });
  const network = { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }] };
  t.is(validateNetwork(readJson(NetworkSpecSchema, network)).mtu, 1500);
  t.throws(() => validateNetwork(readJson(NetworkSpecSchema, { ...network, mtu: 0 })), {
    instanceOf: PodnetError,
    message: /MTU 0 is not between/,
  });
});

test("every bad request around the spec is refused", (t) => {
  for (const [init, field] of [
    [{ requestId: "a b" }, "request_id"],
    [{ requestId: "é" }, "request_id"],
    [{ requestId: "x".repeat(65) }, "request_id"],
    [{ timeoutMs: 999 }, "timeout_ms"],
    [{ timeoutMs: 600_001 }, "timeout_ms"],
  ] as const) {
    const error = t.throws(() => check(init), { instanceOf: PodnetError });
    t.deepEqual([error?.code, error?.field], ["INVALID_ARGUMENT", field]);
  }
});

test("one default route per family is fine, and a /31 has no reserved addresses", (t) => {
  const spec = specOf({
    interfaces: [{ gateway: "10.0.0.1", address: "10.0.0.0/31" }, { gateway: "fd00::1" }],
    routes: [{ destination: "0.0.0.0/1", gateway: "10.0.0.1" }],
  });
  t.is(spec.interfaces.length, 2);
  t.is(
    specOf({ routes: [{ destination: "default", gateway: "fd00::9" }] }).routes[0]
      ?.destination as string,
    "::/0",
  );
});

test("an interface leads to a network, to a foreign bridge or tap, or to the guest's own lo", (t) => {
  const { interfaces } = specOf({
    interfaces: [
      { addresses: ["10.0.0.2", "fd00::2"], gateway: "10.0.0.1", metric: 10, tap: "web0" },
      { bridge: "br1", address: "10.1.0.2/16", port: { vlan: 7, isolated: true, learning: false } },
      { bridge: "br1", address: "none", gateway: "" },
      { tap: "vpn0", tapKept: true, address: "10.2.0.2/24", gateway: "10.2.0.1", metric: 20 },
      { loopback: true, addresses: ["10.3.0.1/32", "fd01::1/128"] },
    ],
  });
  t.deepEqual(JSON.parse(JSON.stringify(interfaces)), [
    {
      network: "default",
      addresses: ["10.0.0.2", "fd00::2"],
      gateway: "10.0.0.1",
      metric: 10,
      tap: "web0",
    },
    {
      kind: "bridge",
      bridge: "br1",
      addresses: ["10.1.0.2/16"],
      port: { vlan: 7, isolated: true, learning: false },
    },
    { kind: "bridge", bridge: "br1", addresses: [] },
    {
      kind: "tap",
      tap: "vpn0",
      addresses: ["10.2.0.2/24"],
      gateway: "10.2.0.1",
      metric: 20,
    },
    { kind: "loopback", addresses: ["10.3.0.1/32", "fd01::1/128"] },
  ]);
});

test("routes to the same place are told apart by their metric, as the kernel does", (t) => {
  const routes = [
    { destination: "10.9.0.0/16", interface: "eth0" },
    { destination: "10.9.0.0/16", interface: "eth0", metric: 5 },
  ];
  t.is(specOf({ routes }).routes[1]?.metric, 5);
  t.throws(() => specOf({ routes: [routes[1] ?? {}, routes[1] ?? {}] }), {
    code: "INVALID_ARGUMENT",
  });
});
