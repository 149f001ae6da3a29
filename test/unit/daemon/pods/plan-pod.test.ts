import test from "ava";
import fc from "fast-check";
import { create } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import type { Ip } from "../../../../core/address.ts";
import { type ErrorCode, isPodnetError } from "../../../../core/errors.ts";
import type { PodId } from "../../../../core/names.ts";
import { architectureOf } from "../../../../hypervisor/architecture.ts";
import type { NicPlan } from "../../../../hypervisor/driver.ts";
import { describeRestore } from "../../../../hypervisor/factory/state.ts";
import { describePlug } from "../../../../hypervisor/argv/plug-commands.ts";
import { planPod } from "../../../../daemon/pods/plan/plan.ts";
import type { GuestConfig } from "../../../../guest-init/protocol/configure.ts";
import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import { describePlan } from "../../../../daemon/pods/plan/plan-text.ts";
import { type PodPlan, withNic } from "../../../../daemon/pods/store/pod-plan.ts";
import type {
  NetworkSnapshot,
  Snapshot,
  SubnetSnapshot,
} from "../../../../daemon/pods/plan/snapshot.ts";

const subnet: SubnetSnapshot = {
  cidr: "192.168.123.0/24" as never,
  gateway: "192.168.123.1/24" as never,
  nextFree: Array.from({ length: 32 }, (_, i) => `192.168.123.${i + 2}` as Ip),
  asked: {},
};

const network: NetworkSnapshot = {
  name: "default" as never,
  bridge: "hyper0" as never,
  subnets: [subnet],
  mtu: 1500,
  isolated: false,
  vlanFiltering: false,
  ports: 0,
};

const snapshot: Snapshot = {
  podId: "abcdefghijkl" as PodId,
  podsDir: "/run/podnet/pods",
  disksDir: "/var/lib/podnet/disks",
  disks: [],
  networks: [network],
  macHolders: {},
  freshMacs: Array.from(
    { length: 32 },
    (_, i) => `52:54:00:00:00:${(i + 1).toString(16).padStart(2, "0")}` as never,
  ),
  arch: "x86_64",
  defaultImage: { kernel: "/image/vmlinux", initrd: "/image/initramfs.gz", minMemoryMib: 80 },
  factory: "cold",
  files: {
    "/image/vmlinux": { kind: "file", bytes: 40 << 20 },
    "/image/initramfs.gz": { kind: "file", bytes: 1 << 20 },
    "/own/vmlinux": { kind: "file", bytes: 60 << 20 },
    "/locked": { kind: "unreadable", why: "EACCES" },
  },
  dns: {
    servers: ["127.0.0.53" as Ip, "192.0.2.53" as Ip],
    search: ["example.org"],
    options: ["ndots:2"],
  },
  driver: { nicSlots: 31 },
};

const spec = (wire: object = {}): PodSpec =>
  validateSpec(create(CreatePodRequestSchema, { spec: wire }).spec, { network: network.name });

const plan = (wire: object = {}, over: Partial<Snapshot> = {}): PodPlan =>
  planPod(spec(wire), { ...snapshot, ...over });
/** What the guest is notified of a pod that is asked for so. */
const guestOf = (wire: object = {}, over: Partial<Snapshot> = {}): GuestConfig =>
  guestConfigOf({ plan: plan(wire, over), spec: spec(wire) });

const sections = (of: PodPlan) =>
  describePlan(
    { plan: of, spec: spec() },
    { shared: [], networks: [] },
    {
      command: ({ memoryMib, kernel = "none" }) => [
        "qemu-system-x86_64",
        "-m",
        `${memoryMib}`,
        "-kernel",
        kernel,
      ],
      fragment: (fragment) =>
        fragment.kind === "pod"
          ? fragment.ports.map(({ tap, bridge, alias }) => `port ${tap} on ${bridge} ${alias}`)
          : [],
      plug: describePlug,
      restore: describeRestore,
    },
  );

test("a clone's plan says what makes it one", (t) => {
  const cloned = plan({ boot: { factory: "template" } });
  t.is(cloned.vm.factory, "template");
  t.deepEqual(
    sections(cloned)
      .find(({ step }) => step === "vm.start")
      ?.lines.slice(1),
    [
      '{"execute":"migrate-set-parameters","arguments":{"announce-rounds":0}}',
      '{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true},{"capability":"events","state":true}]}}',
      '{"execute":"getfd","arguments":{"fdname":"state"}}',
      '{"execute":"migrate-incoming","arguments":{"uri":"fd:state"}}',
      '{"execute":"cont"}',
    ],
  );
});

test("unasked, pods of podnet's guest start as the node says, and cold with a disk that they write to", (t) => {
  const factory = (boot: object): string | undefined =>
    plan({ boot }, { factory: "template" }).vm.factory;
  t.is(plan().vm.factory, undefined);
  t.is(factory({}), "template");
  t.is(factory({ cmdline: "quiet" }), "template");
  t.is(factory({ factory: "cold" }), undefined);
  const disk = {
    kind: "disk",
    bytes: 512,
    image: "i",
    mark: "m",
    writable: true,
    usedBy: undefined,
  } as const;
  const withDisk = (readOnly: boolean): string | undefined =>
    plan(
      { boot: { disks: [{ path: "/own/disk", readOnly }] } },
      { factory: "template", disks: [{ ...disk, holders: [] }] },
    ).vm.factory;
  t.is(withDisk(false), undefined);
  t.is(withDisk(true), "template");
  t.is(factory({ kernel: "/own/vmlinux" }), undefined);
  t.is(factory({ kernel: "/own/vmlinux", factory: "template" }), "template");
});

test("a machine is of the node's architecture, and stays so", (t) => {
  const { vm, interfaces } = plan({}, { arch: "arm64" });
  t.is(vm.arch, "arm64");
  const [line] = describePlug(interfaces[0]?.nic as NicPlan, vm).slice(2);
  t.regex(line ?? "", /"bus":"port1","addr":"0x0"/);
  t.is(architectureOf({}), "x86_64", "as in a plan of an earlier podnetd");
});

test("a pod of defaults, as text", (t) => {
  const text = sections(plan())
    .flatMap(({ step, lines }) => lines.map((line) => `${step}: ${line}`))
    .join("\n");
  t.is(
    text,
    `store.claim: pod abcdefghijkl "pod-abcdef" with 1 vCPU and 128 MiB in /run/podnet/pods/abcdefghijkl
store.claim: interface eth0 on default: 192.168.123.2/24 mac 52:54:00:00:00:01 mtu 1500 default route by 192.168.123.1
tap.open: tap pnabcdefghijkl0 no_pi vnet_hdr, not persistent
port.attach: port pnabcdefghijkl0 on hyper0 podnet:pod:abcdefghijkl:0
vm.start: qemu-system-x86_64 -m 128 -kernel /image/vmlinux
guest.configure: configure {"requestId":"abcdefghijkl","hostname":"pod-abcdef","dns":{"servers":["192.0.2.53"],"search":["example.org"],"options":["ndots:2"]},"interfaces":[{"mac":"52:54:00:00:00:01","name":"eth0","mtu":1500,"addresses":["192.168.123.2/24"]}],"routes":[{"destination":"0.0.0.0/0","gateway":"192.168.123.1","interface":"eth0"}],"neighbours":[],"waitMs":15000}
nic.plug: {"execute":"getfd","arguments":{"fdname":"fd-abcdefghijkl-0"}}
nic.plug: {"execute":"netdev_add","arguments":{"type":"tap","id":"net0","fd":"fd-abcdefghijkl-0"}}
nic.plug: {"execute":"device_add","arguments":{"driver":"virtio-net-pci","id":"nic0","bus":"br0","addr":"0x1","netdev":"net0","mac":"52:54:00:00:00:01","romfile":"","guest_announce":false}}`,
  );
});

test("the same spec and snapshot give the same plan, and it is plain JSON", (t) => {
  t.deepEqual(plan(), plan());
  t.deepEqual(JSON.parse(JSON.stringify(plan())), plan());
});

const defaults = (wire: object): (string | undefined)[] =>
  plan(wire).interfaces.map(({ gateways: [first] }) => first?.gateway);

test("the first automatic interface gets the default route", (t) => {
  t.deepEqual(defaults({ interfaces: [{}, {}] }), ["192.168.123.1", undefined]);
  t.deepEqual(defaults({ interfaces: [{ address: "192.168.123.9" }, {}] }), [
    undefined,
    "192.168.123.1",
  ]);
});

test("an interface with an address of its own gets it only by asking", (t) => {
  t.deepEqual(defaults({ interfaces: [{ address: "192.168.123.9" }] }), [undefined]);
  t.deepEqual(defaults({ interfaces: [{ address: "192.168.123.9", gateway: "192.168.123.77" }] }), [
    "192.168.123.77",
  ]);
});

test("a gateway or default route that is asked for leaves the automatic one out", (t) => {
  t.deepEqual(
    defaults({ interfaces: [{}, { address: "192.168.123.9", gateway: "192.168.123.1" }] }),
    [undefined, "192.168.123.1"],
  );
  const guest = guestOf({ routes: [{ destination: "default", gateway: "192.168.123.200" }] });
  t.deepEqual(guest.routes, [
    { destination: "0.0.0.0/0", gateway: "192.168.123.200", interface: "eth0" },
  ] as never);
});

test("automatic addresses pass by those the same pod asks for", (t) => {
  const { interfaces } = plan({ interfaces: [{}, { address: "192.168.123.3" }, {}] });
  t.deepEqual(
    interfaces.map(({ addresses }) => addresses[0]),
    ["192.168.123.2/24", "192.168.123.3/24", "192.168.123.4/24"] as never,
  );
});

test("a guest is never given a nameserver on loopback", (t) => {
  const servers = ["127.0.0.1", "::1", "192.0.2.1"] as Ip[];
  t.deepEqual(guestOf({}, { dns: { servers, search: [], options: [] } }).dns?.servers, [
    "192.0.2.1",
  ] as never);
});

test("dns that names no server takes the host's, with the search list it gives", (t) => {
  const dns = {
    servers: ["127.0.0.53", "192.0.2.1"] as Ip[],
    search: ["host"],
    options: ["edns0"],
  };
  t.deepEqual(guestOf({ dns: { search: ["a.example"] } }, { dns }).dns, {
    servers: ["192.0.2.1" as Ip],
    search: ["a.example"],
    options: [],
  });
  t.deepEqual(guestOf({ dns: { servers: ["192.0.2.9"] } }, { dns }).dns?.servers, [
    "192.0.2.9",
  ] as never);
});

test("a pod that names servers or domains has these alone; with options alone it finds pods still", (t) => {
  const dns = {
    servers: ["10.30.0.1" as Ip],
    search: ["podnet", "host"],
    options: [],
    domains: ["podnet"],
  };
  const reported = (more?: object) => guestOf(more === undefined ? {} : { dns: more }, { dns }).dns;
  const gateway = { servers: ["10.30.0.1"], search: ["podnet"], options: [] };
  t.deepEqual(reported(), { ...gateway, search: ["podnet", "host"] } as never);
  t.deepEqual(reported({ options: ["ndots:2"] }), { ...gateway, options: ["ndots:2"] } as never);
  t.deepEqual(reported({ search: ["a.example"] }), { ...gateway, search: ["a.example"] } as never);
  t.deepEqual(reported({ servers: ["192.0.2.9"] }), {
    servers: ["192.0.2.9"],
    search: [],
    options: [],
  } as never);
});

const asked = (status: SubnetSnapshot["asked"]): Partial<Snapshot> => ({
  networks: [{ ...network, subnets: [{ ...subnet, asked: status }] }],
});

const refusals: readonly (readonly [ErrorCode, string, object, Partial<Snapshot>])[] = [
  ["NAME_IN_USE", "name", { name: "web" }, { nameHolder: "bbbbbbbbbbbb" as PodId }],
  [
    "ADDRESS_IN_USE",
    "interfaces[0].address",
    { interfaces: [{ address: "192.168.123.5" }] },
    asked({ "192.168.123.5": { kind: "held", by: "pod b/0" } } as never),
  ],
  [
    "ADDRESS_RESERVED",
    "interfaces[0].address",
    { interfaces: [{ address: "192.168.123.1" }] },
    asked({ "192.168.123.1": { kind: "reserved", why: "gateway" } } as never),
  ],
  ["ADDRESS_OUT_OF_RANGE", "interfaces[0].address", { interfaces: [{ address: "10.0.0.1" }] }, {}],
  [
    "ADDRESS_OUT_OF_RANGE",
    "interfaces[0].gateway",
    { interfaces: [{ address: "192.168.123.5", gateway: "10.0.0.1" }] },
    {},
  ],
  [
    "POOL_EXHAUSTED",
    "interfaces[0].network",
    {},
    { networks: [{ ...network, subnets: [{ ...subnet, nextFree: [] }] }] },
  ],
  ["NETWORK_NOT_FOUND", "interfaces[0].network", { interfaces: [{ network: "blue" }] }, {}],
  [
    "MAC_IN_USE",
    "interfaces[0].mac",
    { interfaces: [{ mac: "52:54:00:aa:bb:cc" }] },
    { macHolders: { "52:54:00:aa:bb:cc": "bbbbbbbbbbbb" } as never },
  ],
  ["MTU_OUT_OF_RANGE", "interfaces[0].mtu", { interfaces: [{ mtu: 1501 }] }, {}],
  ["NIC_SLOTS_FULL", "interfaces", { interfaces: [{}, {}] }, { driver: { nicSlots: 1 } }],
  ["IMAGE_MISSING", "boot.kernel", { boot: { kernel: "/gone" } }, {}],
  ["IMAGE_UNREADABLE", "boot.initrd", { boot: { initrd: "/locked" } }, {}],
  ["IMAGE_MISSING", "boot.disks[0].path", { boot: { disks: [{ path: "/gone" }] } }, {}],
  [
    "UNSUPPORTED",
    "boot.kernel",
    { boot: { kernel: "none", disks: [{ path: "/own/disk" }] } },
    { arch: "arm64" },
  ],
  ["MEMORY_TOO_SMALL", "resources.memory_mib", { resources: { memoryMib: 79 } }, {}],
  [
    "MEMORY_TOO_SMALL",
    "resources.memory_mib",
    { resources: { memoryMib: 61 }, boot: { kernel: "/own/vmlinux" } },
    {},
  ],
  [
    "INVALID_ARGUMENT",
    "routes[0].gateway",
    { routes: [{ destination: "10.0.0.0/8", gateway: "172.16.0.1" }] },
    {},
  ],
];

for (const [code, field, wire, over] of refusals) {
  test(`refused: ${code} of ${field} in ${JSON.stringify(wire)}`, (t) => {
    const error = t.throws(() => plan(wire, over));
    t.true(isPodnetError(error, code), String(error));
    if (!isPodnetError(error)) return;
    t.is(error.field, field);
    t.truthy(error.hint);
  });
}

test("a bridge has 1,023 ports and not one more", (t) => {
  t.notThrows(() => plan({}, { networks: [{ ...network, ports: 1022 }] }));
  t.throws(() => plan({}, { networks: [{ ...network, ports: 1023 }] }), { code: "BRIDGE_FULL" });
});

test("whatever interfaces are asked for, no two get the same of anything", (t) => {
  const wanted = fc.record(
    {
      address: fc.integer({ min: 2, max: 12 }).map((n) => `192.168.123.${n}`),
      mac: fc.integer({ min: 1, max: 8 }).map((n) => `52:54:00:00:00:0${n}`),
      guestName: fc.constantFrom("eth0", "eth1", "net9"),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(wanted, { minLength: 1, maxLength: 16 }), (interfaces) => {
      let made: PodPlan;
      try {
        made = plan({ interfaces });
      } catch (thrown) {
        t.true(
          isPodnetError(thrown, "ADDRESS_IN_USE", "MAC_IN_USE", "INVALID_ARGUMENT"),
          String(thrown),
        );
        return;
      }
      for (const of of [
        made.interfaces.flatMap(({ addresses }) => addresses),
        withNic(made.interfaces).map(({ nic }) => nic.mac),
        withNic(made.interfaces).map(({ nic }) => nic.tap),
        withNic(made.interfaces).map(({ nic }) => `${nic.slot}`),
        made.interfaces.map(({ guestName }) => guestName),
      ]) {
        t.is(new Set<string>(of).size, interfaces.length);
      }
      t.true(withNic(made.interfaces).every(({ nic }) => nic.tap.length <= 15));
      t.true(made.interfaces.flatMap(({ gateways }) => gateways).length <= 1);
    }),
  );
});
