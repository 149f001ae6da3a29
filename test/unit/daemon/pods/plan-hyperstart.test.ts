import test from "ava";
import { create } from "@bufbuild/protobuf";
import {
  AddInterfaceRequestSchema,
  CreatePodRequestSchema,
  UpdateInterfaceRequestSchema,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import {
  type InterfaceChange,
  validateAddInterface,
  validateUpdateInterface,
} from "../../../../api/validate/interface-change.ts";
import type { Ip } from "../../../../core/address.ts";
import type { PodId } from "../../../../core/names.ts";
import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import { describeChange } from "../../../../daemon/pods/plan/change-text.ts";
import { guestThatIs } from "../../../../daemon/pods/guest/guest-of.ts";
import { planChange } from "../../../../daemon/pods/plan/plan-change.ts";
import { describePlan } from "../../../../daemon/pods/plan/plan-text.ts";
import { planPod } from "../../../../daemon/pods/plan/plan.ts";
import type {
  NetworkSnapshot,
  Snapshot,
  SubnetSnapshot,
} from "../../../../daemon/pods/plan/snapshot.ts";
import type { PodContents } from "../../../../daemon/pods/store/pod-row.ts";

const subnet = (prefix: string, length: number): SubnetSnapshot => ({
  cidr: `${prefix}0/${length}` as never,
  gateway: `${prefix}1/${length}` as never,
  nextFree: [2, 3, 4].map((n) => `${prefix}${n}` as Ip),
  asked: {},
});
const six: SubnetSnapshot = { ...subnet("fd00::", 64), cidr: "fd00::/64" as never };
const network = (name: string, ...subnets: readonly SubnetSnapshot[]): NetworkSnapshot => ({
  name: name as never,
  bridge: `br-${name}` as never,
  subnets,
  mtu: 1500,
  isolated: false,
  vlanFiltering: false,
  ports: 0,
});
const snapshot = {
  podId: "abcdefghijkl" as PodId,
  podsDir: "/run/podnet/pods",
  disksDir: "/var/lib/podnet/disks",
  disks: [],
  networks: [network("both", subnet("10.0.0.", 24), six), network("six", six)],
  macHolders: {},
  freshMacs: [1, 2, 3, 4].map((n) => `52:54:00:00:00:0${n}` as never),
  arch: "x86_64",
  defaultImage: { kernel: "/vmlinux", initrd: "/initramfs", minMemoryMib: 80 },
  factory: "template",
  files: {
    "/vmlinux": { kind: "file", bytes: 1 },
    "/initramfs": { kind: "file", bytes: 1 },
  },
  dns: { servers: ["fd00::53" as Ip, "192.0.2.53" as Ip], search: ["example.org"], options: [] },
  driver: { nicSlots: 31 },
} as Snapshot;

const planned = (wire: object, agent = "hyperstart"): PodContents => {
  const asked = create(CreatePodRequestSchema, { spec: { boot: { agent }, ...wire } });
  const spec = validateSpec(asked.spec, { network: "both" as never });
  return { spec, plan: planPod(spec, snapshot) };
};

test("an automatic address of a network with both families is the IPv4 one, and servers are", (t) => {
  const pod = planned({});
  const { plan } = pod;
  t.is(plan.agent, "hyperstart");
  t.is(plan.vm.factory, undefined, "no clone");
  t.deepEqual(plan.interfaces[0]?.addresses as readonly string[], ["10.0.0.2/24"]);
  t.deepEqual(guestConfigOf(pod).routes, [
    { destination: "0.0.0.0/0", gateway: "10.0.0.1", interface: "eth0" },
  ] as never);
  t.deepEqual(guestConfigOf(pod).dns?.servers as readonly string[], ["192.0.2.53"]);
  const ours = planned({}, "");
  t.is(ours.plan.interfaces[0]?.addresses.length, 2, "control: podnet's own agent gets both");
  t.is(guestConfigOf(ours).dns?.servers.length, 2);
});

test("what a hyperstart cannot do is refused with its field, and podnet's agent does it", (t) => {
  for (const [wire, field] of [
    [{ interfaces: [{ address: "fd00::9" }] }, "interfaces[0].address"],
    [{ interfaces: [{ addresses: ["10.0.0.9", "fd00::9"] }] }, "interfaces[0].addresses[1]"],
    [{ interfaces: [{}, { loopback: true, address: "10.7.0.1/32" }] }, "interfaces[1].loopback"],
    [{ interfaces: [{ metric: 5 }] }, "interfaces[0].metric"],
    [{ interfaces: [{ network: "six" }] }, "interfaces[0].network"],
    [
      { interfaces: [{ addresses: ["10.0.0.9", "fd00::9"], gateway: "fd00::1" }] },
      "interfaces[0].addresses[1]",
    ],
    [{ routes: [{ destination: "fd01::/64", interface: "eth0" }] }, "routes[0].destination"],
    [
      { routes: [{ destination: "10.1.0.0/16", interface: "eth0", metric: 7 }] },
      "routes[0].metric",
    ],
    [{ dns: { servers: ["192.0.2.1", "fd00::1"] } }, "dns.servers[1]"],
  ] as const) {
    const error = t.throws(() => planned(wire), { code: "UNSUPPORTED" }, field);
    t.like(error, { field });
    t.regex(error?.message ?? "", /^A plain hyperstart /);
    t.notThrows(() => planned(wire, ""), `control: ${field}`);
  }
  t.like(
    t.throws(() => planned({ boot: { agent: "hyperstart", factory: "template" } }), {
      code: "UNSUPPORTED",
    }),
    { field: "boot.factory" },
  );
  t.notThrows(() =>
    planned({
      interfaces: [
        { network: "six", address: "none" },
        { mtu: 1400, guestName: "lan" },
      ],
    }),
  );
});

test("changes are refused alike, and the world is the same", (t) => {
  const pod = planned({});
  const add = (wire: object): InterfaceChange =>
    validateAddInterface(
      create(AddInterfaceRequestSchema, { idOrName: "x", interface: {}, ...wire }),
      "both" as never,
    );
  const set = (wire: object): InterfaceChange =>
    validateUpdateInterface(
      create(UpdateInterfaceRequestSchema, { idOrName: "x", guestName: "eth0", ...wire }),
    );
  const ours = planned({}, "");
  for (const [change, field] of [
    [add({ interface: { address: "fd00::9" } }), "interface.address"],
    [add({ interface: { loopback: true, address: "10.7.0.1/32" } }), "interface.loopback"],
    [add({ interface: { network: "six" } }), "interface.network"],
    [add({ routes: [{ destination: "10.1.0.0/16", metric: 7 }] }), "routes[0].metric"],
    [set({ addresses: { addresses: ["10.0.0.9", "fd00::9"] } }), "addresses[1]"],
    [set({ metric: 4 }), "metric"],
    [set({ routes: { routes: [{ destination: "fd01::/64" }] } }), "routes[0].destination"],
  ] as const) {
    const error = t.throws(() => planChange(pod, change, snapshot), { code: "UNSUPPORTED" }, field);
    t.like(error, { field });
    t.notThrows(() => planChange(ours, change, snapshot), `control: ${field}`);
  }
  const { plan } = planChange(pod, add({}), snapshot);
  t.deepEqual(plan.interfaces[1]?.addresses as readonly string[], ["10.0.0.3/24"]);
  t.notThrows(() => planChange(pod, { kind: "remove", name: "eth0" as never }, snapshot));
});

test("the plan shows what is sent: commands of hyperstart's, STARTPOD to a new guest alone", (t) => {
  const describe = { command: () => [], fragment: () => [], plug: () => [], restore: () => [] };
  const host = { shared: [], networks: [] };
  const pod = planned({});
  const reported = describePlan(pod, host, describe).find(({ step }) => step === "guest.configure");
  t.deepEqual(
    reported?.lines.map((line) => line.replace(/ .*/, "")),
    ["STARTPOD", "SETUPINTERFACE", "SETUPROUTE"],
  );
  t.regex(
    reported?.lines[1] ?? "",
    /"newDeviceName":"eth0".*"10\.0\.0\.2","netMask":"255\.255\.255\.0"/,
  );
  t.regex(
    reported?.lines[2] ?? "",
    /"dest":"0\.0\.0\.0\/0","gateway":"10\.0\.0\.1","device":"eth0"/,
  );
  const change = validateUpdateInterface(
    create(UpdateInterfaceRequestSchema, { idOrName: "x", guestName: "eth0", mtu: 1400 }),
  );
  const after = planChange(pod, change, snapshot);
  const again = describeChange(pod, after, [], describe).find(
    ({ step }) => step === "guest.configure",
  );
  t.deepEqual(
    again?.lines.map((line) => line.replace(/ .*/, "")),
    ["SETUPINTERFACE", "SETUPROUTE"],
  );
});

test("the kind of agent that answers is reported with what it cannot do", (t) => {
  const plain = { api: 4244, extension: undefined, agent: undefined };
  t.is(guestThatIs(plain).name, "hyperstart");
  const cannot = guestThatIs(plain).text.cannot(plain);
  for (const what of ["IPv6", "lo", "metrics", "templates"])
    t.true(
      cannot.some((line) => line.includes(what)),
      what,
    );
  const ours = {
    api: 4244,
    extension: 1,
    agent: "1",
    features: ["awake", "loopback", "attributes", "parking", "files", "shares"],
  };
  const { name, text } = guestThatIs(ours);
  t.is(name, "podnet");
  t.deepEqual(text.cannot(ours), []);
  t.is(text.cannot({ ...ours, features: ["loopback"] }).length, 4);
  const kept = { resolverKept: "EROFS" } as never;
  const [what = "", ...more] = text.cannot(ours, kept);
  t.regex(what, /nameservers.*EROFS/);
  t.deepEqual(more, []);
});
