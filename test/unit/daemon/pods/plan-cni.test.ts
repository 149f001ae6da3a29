import { create } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { CreatePodRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import { validateSpec } from "../../../../api/validate/validate.ts";
import { type ErrorCode, isPodnetError } from "../../../../core/errors.ts";
import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import { seedOf } from "../../../../daemon/pods/plan/plan-seed.ts";
import { followServers } from "../../../../daemon/pods/plan/gather-networks.ts";
import type { KnownNetworks } from "../../../../daemon/networks/known-networks.ts";
import { planPod } from "../../../../daemon/pods/plan/plan.ts";
import { planChange } from "../../../../daemon/pods/plan/plan-change.ts";
import {
  withoutTaken,
  withSandbox,
  withTaken,
} from "../../../../daemon/pods/interfaces/plan-taken.ts";
import { describePlan } from "../../../../daemon/pods/plan/plan-text.ts";
import { parseStoredPlan, type PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import { dnsOf } from "../../../../daemon/pods/interfaces/sandboxes.ts";
import type { Snapshot } from "../../../../daemon/pods/plan/snapshot.ts";
import { createSteps, type Flow, undoSteps } from "../../../../daemon/pods/plan/steps.ts";
import type { TakenOver } from "../../../../network/tc-redirect/adopted.ts";

const list = { cniVersion: "1.0.0", name: "net", plugins: [{ type: "bridge" }] };
const snapshot: Snapshot = {
  podId: "abcdefghijkl" as never,
  podsDir: "/run/podnet/pods",
  disksDir: "/var/lib/podnet/disks",
  disks: [],
  networks: [
    {
      name: "default" as never,
      bridge: "hyper0" as never,
      subnets: [
        {
          cidr: "192.168.123.0/24" as never,
          gateway: "192.168.123.1/24" as never,
          nextFree: ["192.168.123.2" as never],
          asked: {},
        },
      ],
      mtu: 1500,
      isolated: false,
      vlanFiltering: false,
      ports: 0,
    },
  ],
  macHolders: {},
  freshMacs: ["52:54:00:00:00:01", "52:54:00:00:00:02"] as never,
  arch: "x86_64",
  defaultImage: { kernel: "/k", initrd: "/i", minMemoryMib: 80 },
  factory: "cold",
  files: { "/k": { kind: "file", bytes: 1 << 20 }, "/i": { kind: "file", bytes: 1 << 20 } },
  dns: { servers: ["192.0.2.1" as never], search: [], options: [] },
  cni: {
    netnsDir: "/run/podnet/netns",
    lists: { "": { file: "/l/10.conflist", list } },
    passedOver: [],
  },
  driver: { nicSlots: 31 },
};

const spec = (wire: object): PodSpec =>
  validateSpec(create(CreatePodRequestSchema, { spec: wire }).spec, {
    network: "default" as never,
  });
const pod = (wire: object): { spec: PodSpec; plan: PodPlan } => ({
  spec: spec(wire),
  plan: planPod(spec(wire), snapshot),
});
const taken: TakenOver = {
  mac: "0a:58:0a:00:00:02" as never,
  mtu: 1450,
  addresses: ["10.0.0.2/32", "fd00::2/64"] as never,
  routes: [
    { destination: "0.0.0.0/0", gateway: "169.254.1.1", onlink: true },
    { destination: "10.1.0.0/16", metric: 7 },
    { destination: "::/0", gateway: "fd00::1" },
  ] as never,
  neighbours: [{ address: "10.0.0.9", mac: "0a:58:0a:00:00:09" }] as never,
};
const refused = (t: ExecutionContext, wire: object, code: ErrorCode, field: string): void => {
  const error = t.throws(() => pod(wire));
  t.true(isPodnetError(error, code), `${String(error)} ${JSON.stringify(wire)}`);
  if (isPodnetError(error)) t.is(error.field, field);
};

test("a guest learns what a link is, and nothing of it is left when it is forgotten", (t) => {
  const begun = pod({ interfaces: [{ cni: {} }] });
  t.deepEqual(guestConfigOf(begun).routes, []);
  const dns = { servers: ["192.0.2.53" as never], search: ["cni.example"], options: [] };
  const plan = withTaken(begun, 0, taken, dns);
  const guest = guestConfigOf({ ...begun, plan });
  t.like(plan.interfaces[0], { mtu: 1450, nic: { mac: taken.mac }, addresses: taken.addresses });
  t.deepEqual(guest.interfaces, [
    { mac: taken.mac, name: "eth0" as never, mtu: 1450, addresses: taken.addresses },
  ]);
  const by = { interface: "eth0" };
  t.deepEqual(guest.routes, [
    // The way to a gateway that no address shows.
    { destination: "169.254.1.1/32", ...by },
    { destination: "10.1.0.0/16", ...by, metric: 7 },
    { destination: "0.0.0.0/0", gateway: "169.254.1.1", ...by },
    { destination: "::/0", gateway: "fd00::1", ...by },
  ] as never);
  t.deepEqual(guest.neighbours, [{ ...taken.neighbours[0], ...by }] as never);
  t.deepEqual(guest.dns, dns);
  t.deepEqual(parseStoredPlan(JSON.stringify(plan)), plan);
  // Twice is as good as once.
  t.deepEqual(withTaken({ ...begun, plan }, 0, taken, dns), plan);

  const after = withoutTaken(plan, 0);
  const { interfaces, ...sent } = guestConfigOf({ ...begun, plan: after });
  const { interfaces: _before, ...sentFirst } = guestConfigOf(begun);
  t.deepEqual(sent, sentFirst);
  t.deepEqual([after.interfaces[0]?.addresses, interfaces[0]?.addresses], [[], []]);
  t.is(withoutTaken(after, 0), after);
});

test("a link without ARP and routes' attributes are sent, but no source that the guest has not", (t) => {
  const begun = pod({ interfaces: [{ cni: {} }] });
  const rich = {
    ...taken,
    noArp: true as const,
    routes: [
      { destination: "10.1.0.0/16", source: "10.0.0.2", mtu: 1300, advmss: 1200 },
      { destination: "10.2.0.0/16", source: "10.0.0.77" },
    ] as never,
  };
  const guest = guestConfigOf({ ...begun, plan: withTaken(begun, 0, rich, undefined) });
  t.true(guest.interfaces[0]?.noArp);
  const by = { interface: "eth0" };
  t.deepEqual(guest.routes, [
    { destination: "10.1.0.0/16", ...by, source: "10.0.0.2", mtu: 1300, advmss: 1200 },
    { destination: "10.2.0.0/16", ...by },
  ] as never);
});

test("a plain hyperstart gets nothing of a link's IPv6", (t) => {
  const begun = pod({ boot: { agent: "hyperstart" }, interfaces: [{ cni: {} }] });
  const plan = withTaken(begun, 0, taken, undefined);
  const guest = guestConfigOf({ ...begun, plan });
  t.deepEqual(plan.interfaces[0]?.addresses, ["10.0.0.2/32"] as never);
  t.notRegex(JSON.stringify(guest), /fd00|::/);
});

test("two links of a pod with one MAC are refused: its agent could not tell them apart", (t) => {
  const both = pod({ interfaces: [{ cni: {} }, { cni: {} }] });
  const first = withTaken(both, 0, taken, undefined);
  t.is(withTaken({ ...both, plan: first }, 0, taken, undefined).interfaces[0]?.nic?.mac, taken.mac);
  const error = t.throws(() => withTaken({ ...both, plan: first }, 1, taken, undefined));
  t.true(isPodnetError(error, "MAC_IN_USE"), String(error));
});

test("a pod's own routes and networks come first", (t) => {
  const both = pod({ interfaces: [{ network: "default" }, { cni: { netns: "/run/netns/x" } }] });
  const dns = { servers: ["192.0.2.53" as never], search: [], options: [] };
  const plan = withTaken(both, 1, taken, dns);
  const guest = guestConfigOf({ ...both, plan });
  const defaults = guest.routes.filter(({ destination }) => destination === "0.0.0.0/0");
  t.deepEqual(
    defaults.map(({ gateway }) => gateway),
    ["192.168.123.1"] as never,
  );
  t.deepEqual(guest.dns, guestConfigOf(both).dns);
  const none = { list: () => [] } as unknown as KnownNetworks;
  const alone = pod({ interfaces: [{ cni: {} }] });
  const reported = { ...alone, plan: withTaken(alone, 0, taken, dns) };
  const followed = { ...reported, plan: followServers(reported, none) };
  t.deepEqual(guestConfigOf(followed).dns, dns, "no other servers take the place");
});

test("the namespace is made and joined alongside the machine, and before one with a seed disk", (t) => {
  const kinds = (flow: Flow): unknown =>
    "flows" in flow ? { [flow.kind]: flow.flows.map(kinds) } : flow.kind;
  const machine = { sequence: ["vm.start", "guest.ready"] };
  const joined = { sequence: ["cni.add", "netns.join"] };
  const begun = pod({ interfaces: [{ cni: {} }] });
  t.like(kinds(createSteps(begun, { fresh: true })), {
    sequence: [{ together: [joined, machine] }],
  });
  t.deepEqual(
    undoSteps(begun.plan).map(({ kind }) => kind),
    ["guest.power-off", "vm.stop", "tap.close", "netns.leave", "cni.delete"],
  );
  const others = pod({ interfaces: [{ cni: { netns: "/x" } }, {}] });
  const host = { sequence: ["port.attach", "netns.join"] };
  t.like(kinds(createSteps(others, { fresh: true })), {
    sequence: ["tap.open", { together: [host, machine] }],
  });
  t.false(undoSteps(others.plan).some(({ kind }) => kind === "cni.delete"));
  const seeded = pod({
    boot: { agent: "none", cloudInit: {} },
    interfaces: [{ cni: {} }],
  });
  t.like(kinds(createSteps(seeded, { fresh: true })), {
    sequence: [{ sequence: [joined, { sequence: ["vm.start"] }] }],
  });
  const joinedTo = { ...seeded, plan: withTaken(seeded, 0, taken, undefined) };
  const disk = seedOf(joinedTo)?.files["network-config"] ?? "";
  t.true(disk.includes(taken.mac) && disk.includes("10.0.0.2/32"), disk);
});

test("what is begun, answered and taken back stands in the plan, and is shown before", (t) => {
  const begun = pod({ interfaces: [{ cni: { args: { A: "b" }, capabilities: '{"mac":"x"}' } }] });
  const sandbox = begun.plan.interfaces[0]?.cni?.sandbox;
  t.deepEqual(sandbox, {
    containerId: "abcdefghijkl-0",
    file: "/l/10.conflist",
    list,
    args: { IgnoreUnknown: "1", A: "b" },
    capabilities: { mac: "x" },
  });
  if (sandbox === undefined) return;
  const result = {
    cniVersion: "1.0.0",
    ips: [],
    dns: {
      nameservers: ["192.0.2.53", "ns.example", "fe80::53%eth0"],
      domain: "a.example",
      search: ["a.example"],
    },
  };
  const plan = withSandbox(begun, 0, { ...sandbox, result });
  t.deepEqual(plan.interfaces[0]?.cni?.sandbox?.result, result);
  t.deepEqual(dnsOf({ ...sandbox, result }), {
    servers: ["192.0.2.53" as never],
    search: ["a.example"],
    options: [],
  });
  t.is(dnsOf(sandbox), undefined);
  t.is(dnsOf({ ...sandbox, result: { ...result, dns: {} } }), undefined);
  const host = { shared: [], networks: [] };
  const described = describePlan(begun, host, {
    command: () => [],
    fragment: () => [],
    plug: () => [],
    restore: () => [],
  });
  t.deepEqual(described.find(({ step }) => step === "cni.add")?.lines, [
    "namespace /run/podnet/netns/abcdefghijkl-0",
    "ADD loopback, bridge of /l/10.conflist for eth0 of container abcdefghijkl-0",
  ]);
});

test("what such an interface cannot be is refused with its field", (t) => {
  const at = (more: object): object => ({ interfaces: [{ cni: {}, ...more }] });
  for (const [more, field] of [
    [{ mac: "52:54:00:00:00:09" }, "mac"],
    [{ address: "10.0.0.5" }, "addresses"],
    [{ mtu: 1400 }, "mtu"],
    [{ gateway: "10.0.0.1" }, "gateway"],
    [{ port: { vlan: 7 } }, "port"],
    [{ network: "default" }, "cni"],
    [{ cni: { netns: "x" } }, "cni.netns"],
    [{ cni: { netns: "/x", list: "net" } }, "cni.list"],
    [{ cni: { netns: "/x", capabilities: "{}" } }, "cni.capabilities"],
    [{ cni: { netns: "/x", args: { A: "b" } } }, "cni.args"],
    [{ cni: { list: "../x" } }, "cni.list"],
    [{ cni: { link: "a b" } }, "cni.link"],
    [{ cni: { args: { A: "b;c" } } }, "cni.args"],
    [{ cni: { capabilities: "[]" } }, "cni.capabilities"],
    [{ cni: { capabilities: "{" } }, "cni.capabilities"],
  ] as const)
    refused(t, at(more), "INVALID_ARGUMENT", `interfaces[0].${field}`);
  refused(t, { ...at({}), boot: { agent: "none" } }, "UNSUPPORTED", "interfaces[0].cni");
  // Nothing of podnet's leads there.
  const { hostPorts: _none, ...world } = { ...snapshot, hostPorts: undefined };
  t.throws(
    () =>
      planPod(spec({ ...at({}), ports: [{ podPort: 80, hostPort: 8080 }] }), {
        ...world,
        hostPorts: {
          taken: [],
          range: { first: 1, last: 9 },
          start: 1,
          bound: [],
          hostAddresses: { "127.0.0.1": true } as never,
          firewall: true,
        },
      }),
    { message: /no address on a network of podnet's/ },
  );
  const running = pod({ name: "a", interfaces: [{}, { cni: {} }] });
  const kinds = [
    { kind: "set", name: "eth1" as never, mtu: 1400 },
    { kind: "remove", name: "eth1" as never },
    { kind: "add", spec: spec({ interfaces: [{ cni: {} }] }).interfaces[0] as never, routes: [] },
  ] as const;
  for (const change of kinds)
    t.true(
      isPodnetError(
        t.throws(() => planChange(running, change, snapshot)),
        "UNSUPPORTED",
      ),
      change.kind,
    );
});
