import { create, type MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import { NetworkSpecSchema } from "../../../../api/gen/podnet/v1/network_service_pb.ts";
import type { NetworkSpec } from "../../../../api/network-spec.ts";
import { validateNetwork } from "../../../../api/validate/network.ts";
import { systemClock } from "../../../../core/clock.ts";
import { isPodnetError } from "../../../../core/errors.ts";
import { ipRangeText, parseIpRange } from "../../../../core/ip-range.ts";
import { unusedFamilies } from "../../../../daemon/config/network-definition.ts";
import { networkFragment } from "../../../../daemon/networks/network-fragment.ts";
import {
  overlapsOfNetworks,
  planNetwork,
  refuseOverlaps,
} from "../../../../daemon/networks/plan-network.ts";
import { Addresses } from "../../../../daemon/ipam/addresses.ts";
import type { PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import { portsOf } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import { deleteQuarantinedOutside, listLeases } from "../../../../daemon/ipam/store.ts";
import * as rows from "../../../../daemon/networks/store.ts";
import { definition, readyRow } from "../../../lab/network-definition.ts";
import { podIdOf } from "../../../lab/network.ts";
import { onHost } from "../fixtures/networks.ts";
import { configuration, openNode } from "../fixtures/node.ts";

type Asked = MessageInitShape<typeof NetworkSpecSchema>;

const validated = (asked: Asked = {}): NetworkSpec =>
  validateNetwork(
    create(NetworkSpecSchema, { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }], ...asked }),
  );

test("a network of a name and a subnet has what is usual", (t) => {
  const spec = validated();
  t.deepEqual(spec, {
    name: "blue",
    subnets: [{ cidr: "10.20.0.0/24", ranges: [], reserved: [] }],
    mtu: 1500,
    dns: [],
    dnsSearch: [],
    masquerade: true,
    isolated: false,
    vlanFiltering: false,
  } as never);
  t.like(planNetwork(spec, [], undefined, false), {
    bridge: "pn-blue",
    subnets: [{ cidr: "10.20.0.0/24", gateway: "10.20.0.1/24" }],
    mayOverlap: false,
  } as never);
});

for (const [code, field, asked] of [
  ["INVALID_ARGUMENT", "name", { name: "Blue" }],
  ["INVALID_ARGUMENT", "name", { name: "" }],
  ["INVALID_ARGUMENT", "bridge", { bridge: "a bridge" }],
  ["INVALID_ARGUMENT", "bridge", { bridge: "b".repeat(16) }],
  ["INVALID_ARGUMENT", "subnets", { subnets: [] }],
  ["INVALID_ARGUMENT", "subnets", { subnets: [{}, {}, {}] }],
  ["ADDRESS_INVALID", "subnets[0].cidr", { subnets: [{ cidr: "10.20.0.0" }] }],
  [
    "INVALID_ARGUMENT",
    "subnets[1].cidr",
    { subnets: [{ cidr: "10.1.0.0/24" }, { cidr: "10.2.0.0/24" }] },
  ],
  [
    "ADDRESS_INVALID",
    "subnets[0].ranges[1]",
    { subnets: [{ cidr: "10.1.0.0/24", ranges: ["10.1.0.5", "x"] }] },
  ],
  [
    "ADDRESS_INVALID",
    "subnets[0].reserved[0]",
    { subnets: [{ cidr: "10.1.0.0/24", reserved: ["10.1.0.9-10.1.0.5"] }] },
  ],
  [
    "ADDRESS_INVALID",
    "subnets[0].ranges[0]",
    { subnets: [{ cidr: "10.1.0.0/24", ranges: ["10.1.0.9-fd00::1"] }] },
  ],
  [
    "INVALID_ARGUMENT",
    "subnets[0].ranges",
    { subnets: [{ cidr: "10.1.0.0/24", ranges: Array.from({ length: 65 }, () => "10.1.0.2") }] },
  ],
  ["MTU_OUT_OF_RANGE", "mtu", { mtu: 575 }],
  ["MTU_OUT_OF_RANGE", "mtu", { mtu: 65_522 }],
  ["MTU_OUT_OF_RANGE", "mtu", { mtu: 1279, subnets: [{ cidr: "fd00:1::/64" }] }],
  ["ADDRESS_INVALID", "dns[0]", { dns: ["127.0.0.1"] }],
  ["INVALID_ARGUMENT", "dns", { dns: ["9.9.9.9", "8.8.8.8", "1.1.1.1", "4.4.4.4"] }],
  ["INVALID_ARGUMENT", "dns_search[0]", { dnsSearch: ["no domain"] }],
] as const)
  test(`${JSON.stringify(asked).slice(0, 90)} is refused with ${code} at ${field}`, (t) => {
    const error = t.throws(() => validated(asked as Asked));
    t.true(isPodnetError(error, code), String(error));
    t.is(isPodnetError(error) ? error.field : undefined, field);
    t.true(isPodnetError(error) && error.hint !== undefined);
  });

for (const [code, field, asked] of [
  ["ADDRESS_INVALID", "subnets[0].cidr", { subnets: [{ cidr: "10.20.0.0/31" }] }],
  ["ADDRESS_INVALID", "subnets[0].cidr", { subnets: [{ cidr: "127.0.0.0/24" }] }],
  ["ADDRESS_INVALID", "subnets[0].cidr", { subnets: [{ cidr: "fe80::/64" }] }],
  ["ADDRESS_RESERVED", "subnets[0].cidr", { subnets: [{ cidr: "10.20.0.255/24" }] }],
  [
    "ADDRESS_INVALID",
    "subnets[0].ranges",
    { subnets: [{ cidr: "10.20.0.0/24", ranges: ["10.20.1.1"] }] },
  ],
  [
    "ADDRESS_INVALID",
    "subnets[0].reserved",
    { subnets: [{ cidr: "10.20.0.0/24", reserved: ["10.20.0.0/16"] }] },
  ],
] as const)
  test(`${JSON.stringify(asked)} cannot be planned: ${code}`, (t) => {
    const error = t.throws(() => planNetwork(validated(asked as never), [], undefined, false));
    t.true(isPodnetError(error, code), String(error));
    t.is(isPodnetError(error) ? error.field : undefined, field);
  });

test("IPv4 comes first, whatever was said first; host bits are the gateway", (t) => {
  const spec = validated({ subnets: [{ cidr: "fd00:20::5/64" }, { cidr: "10.20.0.254/24" }] });
  t.deepEqual(
    planNetwork(spec, [], undefined, false).subnets.map(({ cidr, gateway }) => [cidr, gateway]),
    [
      ["10.20.0.0/24", "10.20.0.254/24"],
      ["fd00:20::/64", "fd00:20::5/64"],
    ] as never,
  );
});

test("a bridge is made of the name, cut to what the kernel takes, and one network's alone", (t) => {
  const long = "a-network-with-a-long-name";
  t.is(
    planNetwork(validated({ name: long }), [], undefined, false).bridge,
    "pn-a-network-wi" as never,
  );
  const other = definition("other", ["10.9.0.1/24"], { bridge: "pn-a-network-wi" as never });
  const error = t.throws(() => planNetwork(validated({ name: long }), [other], undefined, false));
  t.true(isPodnetError(error, "NAME_IN_USE") && error.details["holder"] === "other");
});

test("an update keeps the bridge, and that overlaps were allowed", (t) => {
  const before = definition("blue", ["10.20.0.1/24"], { bridge: "br9" as never, mayOverlap: true });
  t.like(planNetwork(validated(), [], before, false), { bridge: "br9", mayOverlap: true } as never);
  t.throws(() => planNetwork(validated({ bridge: "br8" }), [], before, false), {
    code: "INVALID_ARGUMENT",
  });
});

test("an overlap is named by what it is with", (t) => {
  const others = [
    definition("a", ["10.0.0.1/8"]),
    definition("b", ["fd00::1/64", "10.20.0.129/25"]),
  ];
  const subnets = ["10.20.0.0/24", "fd00:20::/64"] as never[];
  const found = overlapsOfNetworks(subnets, others);
  t.deepEqual(
    found.map((each) => `${each.subnet} ${each.with}`),
    ['10.20.0.0/24 network "a" (10.0.0.0/8)', '10.20.0.0/24 network "b" (10.20.0.128/25)'],
  );
  const error = t.throws(() => refuseOverlaps(subnets, found), { code: "NETWORK_OVERLAP" });
  t.true(isPodnetError(error) && error.field === "subnets[0].cidr");
  t.notThrows(() => refuseOverlaps(subnets, []));
});

test("what the host is to have: NAT of each subnet or of none, isolation, no forwarding of families there are none of", (t) => {
  const config = { disableIptables: false, iptablesChain: "HYPER" };
  const both = definition("blue", ["10.20.0.1/24", "fd00:20::1/64"]);
  t.deepEqual(networkFragment(both, config).masquerade, ["10.20.0.0/24", "fd00:20::/64"] as never);
  const closed = networkFragment({ ...both, masquerade: false, isolated: true }, config);
  t.deepEqual([closed.masquerade, closed.isolated], [[], true]);
  t.deepEqual(unusedFamilies([both]), []);
  t.deepEqual(unusedFamilies([definition("four", ["10.20.0.1/24"])]), [6]);
  t.deepEqual(unusedFamilies([definition("six", ["fd00:20::1/64"])]), [4]);
});

test("a range is read as it is written", (t) => {
  for (const text of ["10.0.0.5", "10.0.0.5-10.0.0.9", "fd00::1-fd00::ff"])
    t.is(ipRangeText(parseIpRange(text)), text);
  t.is(ipRangeText(parseIpRange("10.0.0.0/30")), "10.0.0.0-10.0.0.3");
});

test("rows: as written, changed and gone back, with what rests outside forgotten", (t) => {
  using node = openNode(configuration({}));
  const { db } = node;
  const before = definition("blue", ["10.20.0.1/24"]);
  const after = definition("blue", ["10.30.0.1/24", "fd00::1/64"], { isolated: true });
  rows.putNetwork(db, before, { ...readyRow, configured: false });
  const first = definition("blue", ["10.25.0.1/24"]);
  rows.beginNetworkUpdate(db, first);
  t.like(rows.getNetwork(db, before.name), { definition: first, before, state: "updating" });
  rows.beginNetworkUpdate(db, after);
  t.like(
    rows.getNetwork(db, before.name),
    { definition: after, before, state: "updating" },
    "what there was is from before a change that could not be taken back",
  );
  rows.revertNetwork(db, before.name);
  t.like(rows.getNetwork(db, before.name), {
    definition: before,
    before: undefined,
    state: "ready",
  });
  rows.revertNetwork(db, before.name);
  t.like(
    rows.getNetwork(db, before.name),
    { definition: before },
    "there is nothing to go back to",
  );
  rows.beginNetworkUpdate(db, after);
  rows.completeNetwork(db, before.name);
  t.like(rows.getNetwork(db, before.name), {
    definition: after,
    before: undefined,
    configured: false,
  });
  db.run(
    "INSERT INTO leases VALUES ('blue', '10.20.0.5', 'pod', 'p/0', 1, 2), ('blue', 'fd00::5', 'pod', 'p/0', 1, 2)",
  );
  deleteQuarantinedOutside(
    db,
    before.name,
    after.subnets.map(({ cidr }) => cidr),
  );
  t.deepEqual(
    listLeases(db, before.name).map(({ address }) => address),
    ["fd00::5" as never],
  );
});

test("a change that can be neither made nor taken back is looked for until it has gone", async (t) => {
  using node = openNode(configuration({}));
  const blue = definition("blue", ["10.20.0.1/24"]);
  rows.putNetwork(node.db, blue, { ...readyRow, configured: false });
  const { host, networks } = onHost(node, [blue]);
  const to = (cidr: string): NetworkSpec => validated({ subnets: [{ cidr }] });
  await t.throwsAsync(networks.update(to("10.30.0.0/24"), { force: true }), {
    code: "NETLINK_FAILED",
  });
  t.deepEqual(networks.list(), [blue]);
  const [found] = networks.fragments();
  t.like(found, { gateways: ["10.20.0.1/24"], retired: ["10.30.0.1/24"] } as never);
  t.deepEqual(found, host.ensured.at(-1) as never, "repair asks for what the way back would have");
  host.refusing = false;
  await networks.update(to("10.40.0.0/24"), { force: true });
  t.like(host.ensured.at(-1), { retired: ["10.20.0.1/24", "10.30.0.1/24"] } as never);
  t.false("retired" in (networks.fragments()[0] ?? {}));
  t.like(rows.getNetwork(node.db, blue.name), { state: "ready", before: undefined });
});

test("a network that is being made another one is no outside change of the host", async (t) => {
  using node = openNode(configuration({}));
  const blue = definition("blue", ["10.20.0.1/24"]);
  rows.putNetwork(node.db, blue, { ...readyRow, configured: false });
  const { host, networks } = onHost(node, [blue]);
  host.refusing = false;
  t.like(networks.stableFragment("blue"), { gateways: ["10.20.0.1/24"] } as never);
  let meanwhile: unknown = "not asked";
  host.onEnsure = () => void (meanwhile = networks.stableFragment("blue"));
  await networks.update(validated({ subnets: [{ cidr: "10.40.0.0/24" }] }), { force: true });
  t.is(meanwhile, undefined, "what is looked at before the host has it would not be as wanted");
  t.like(networks.stableFragment("blue"), { gateways: ["10.40.0.1/24"] } as never);
});

test("a create that can be neither done nor undone is undone by a delete, its bridge named", async (t) => {
  using node = openNode(configuration({}));
  const { host, networks } = onHost(node, []);
  await t.throwsAsync(networks.create(validated(), { force: true }), { code: "NETLINK_FAILED" });
  t.like(rows.getNetwork(node.db, "blue" as never), { state: "creating" });
  host.refusing = false;
  t.true(await networks.delete("blue" as never));
  t.like(host.removed.at(-1), { key: "blue", bridge: "pn-blue" } as never);
  t.is(host.removed.length, 2);
  t.is(rows.getNetwork(node.db, "blue" as never), undefined);
});

const planOf = (n: number, network: string, addresses: readonly string[]): PodPlan =>
  ({ podId: podIdOf(n), interfaces: [{ position: 0, network, addresses }] }) as unknown as PodPlan;

test("each subnet has a pool of its own; a pod holds addresses of both and gives both back", (t) => {
  using node = openNode(configuration({}));
  const dual = definition("dual", ["10.20.0.1/29", "fd00:20::1/125"]);
  rows.putNetwork(node.db, dual, readyRow);
  const addresses = new Addresses(node.db, [dual], 0, systemClock);
  const plan = planOf(1, "dual", ["10.20.0.2/29", "fd00:20::2/125"]);
  const used = (): bigint[] => addresses.subnets(dual.name).map((each) => each.used);
  addresses.insert(plan);
  addresses.taken(plan);
  t.deepEqual(used(), [1n, 1n]);
  t.is(addresses.stats(dual.name).used, 2n);
  t.like(addresses.status(dual.name, "fd00:20::2" as never), { kind: "held" });
  t.is(addresses.nextFree(dual.name, "fd00:20::/125" as never, 1)[0], "fd00:20::3" as never);
  t.deepEqual(
    new Addresses(node.db, [dual], 0, systemClock).subnets(dual.name).map((each) => each.used),
    [1n, 1n],
  );
  addresses.free([plan]);
  addresses.freed([plan]);
  t.deepEqual(used(), [0n, 0n]);
});

test("automatic addresses come from the ranges alone, in turn; others are there for who asks", (t) => {
  using node = openNode(configuration({}));
  const ranges = ["10.20.0.8-10.20.0.9", "10.20.0.4", "10.20.0.9-10.20.0.10"].map((text) =>
    parseIpRange(text),
  );
  const reserved = [parseIpRange("10.20.0.8")];
  const network = definition("blue", ["10.20.0.1/28"], {}, { ranges, reserved });
  rows.putNetwork(node.db, network, readyRow);
  const addresses = new Addresses(node.db, [network], 60_000, systemClock);
  const next = (): string[] => [...addresses.nextFree(network.name, "10.20.0.0/28" as never, 9)];
  t.deepEqual(next(), ["10.20.0.4", "10.20.0.9", "10.20.0.10"]);
  const first = planOf(1, "blue", ["10.20.0.4/28"]);
  addresses.insert(first);
  addresses.taken(first);
  t.deepEqual(next(), ["10.20.0.9", "10.20.0.10"]);
  const outside = planOf(2, "blue", ["10.20.0.2/28"]);
  t.is(addresses.status(network.name, "10.20.0.2" as never).kind, "free");
  addresses.insert(outside);
  addresses.taken(outside);
  for (const plan of [first, outside]) {
    addresses.free([plan]);
    addresses.freed([plan]);
  }
  t.deepEqual(
    next(),
    ["10.20.0.9", "10.20.0.10", "10.20.0.4"],
    "what rested outside is not given unasked",
  );
  t.throws(() => addresses.prepare(definition("red", ["10.21.0.1/28"], {}, { ranges })), {
    code: "ADDRESS_OUT_OF_RANGE",
  });
});

test("what is held cannot be reserved, and then everything stays as it was", (t) => {
  using node = openNode(configuration({}));
  const network = definition("blue", ["10.20.0.1/28"]);
  rows.putNetwork(node.db, network, readyRow);
  const addresses = new Addresses(node.db, [network], 0, systemClock);
  const plan = planOf(1, "blue", ["10.20.0.4/28"]);
  addresses.insert(plan);
  addresses.taken(plan);
  const reserved = [parseIpRange("10.20.0.3-10.20.0.5")];
  const wanted = definition("blue", ["10.20.0.1/28"], {}, { reserved });
  t.throws(() => addresses.prepare(wanted), { code: "ADDRESS_IN_USE" });
  t.is(addresses.status(network.name, "10.20.0.3" as never).kind, "free");
});

test("ports follow their network, but for what their interface asked for itself", (t) => {
  const on = (position: number, network: string, more = {}) => ({
    position,
    network,
    bridge: network,
    addresses: [],
    mtu: 1500,
    nic: { tap: `t${position}` },
    ...more,
  });
  const plan = {
    podId: "abcdefghijkl",
    interfaces: [on(0, "blue"), on(1, "blue", { port: { isolated: false } }), on(2, "red")],
  } as unknown as PodPlan;
  const blue = definition("blue", ["10.20.0.1/24"], { isolated: true, mtu: 1600 });
  t.deepEqual(
    portsOf(plan, [blue]).ports.map(({ tap, mtu, isolated }) => [tap, mtu, isolated]),
    [
      ["t0", 1600, true],
      ["t1", 1600, false],
      ["t2", 1500, false],
    ] as never,
  );
});
