import type { PodFragment } from "../../../../network/model/desired.ts";
import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import { portsOf } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import { create } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import {
  AddInterfaceRequestSchema,
  UpdateInterfaceRequestSchema,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type InterfaceChange,
  validateAddInterface,
  validateUpdateInterface,
} from "../../../../api/validate/interface-change.ts";
import type { IfName } from "../../../../core/names.ts";
import { staying } from "../../../../daemon/pods/store/pod-plan.ts";
import { podView } from "../../../../daemon/api/views.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

type Init = Parameters<typeof create<typeof AddInterfaceRequestSchema>>[1];

const add = (more: Init = {}): InterfaceChange =>
  validateAddInterface(
    create(AddInterfaceRequestSchema, { interface: {}, ...(more as object) }),
    "default" as never,
  );
const set = (
  guestName: string,
  more: Parameters<typeof create<typeof UpdateInterfaceRequestSchema>>[1],
): InterfaceChange =>
  validateUpdateInterface(create(UpdateInterfaceRequestSchema, { guestName, ...more }));
const remove = (name: string): InterfaceChange => ({ kind: "remove", name: name as IfName });

const names = (node: Node, id: string): string[] =>
  node.pods
    .find(id)
    .plan.interfaces.map(({ guestName, leaving, position }) =>
      [guestName, position, ...(leaving === true ? ["leaving"] : [])].join(" "),
    );
const held = (node: Node): unknown[] =>
  node
    .stored("SELECT address FROM leases WHERE freed_ms IS NULL ORDER BY address")
    .map(({ address }) => address);

/** What the host is to have of a pod. */
const ports = (node: Node, id: string): PodFragment =>
  portsOf(node.pods.find(id).plan, node.definitions);

/** Nothing may be left of a change that was not made. */
async function leavesNothing(
  t: ExecutionContext,
  node: Node,
  change: (id: string) => InterfaceChange,
  code: string,
): Promise<string[]> {
  const { id } = await node.create();
  const before = node.pods.find(id);
  const leases = held(node);
  node.calls.length = 0;
  await t.throwsAsync(node.pods.changes.changeInterface(id, change(id)), { code });
  const after = node.pods.find(id);
  t.deepEqual(after.plan.interfaces, before.plan.interfaces);
  t.deepEqual(ports(node, id), portsOf(before.plan, node.definitions));
  t.deepEqual(guestConfigOf(after), guestConfigOf(before));
  t.is(after.before, undefined);
  t.deepEqual(held(node), leases);
  t.is(after.state, "running");
  return node.calls;
}

test("an interface is added after its rows, and removed after its rows; the others are not touched", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  const seen: unknown[] = [];
  node.onCall = (call) =>
    seen.push([call, node.stored("SELECT count(*) AS n FROM interfaces")[0]?.["n"]]);
  await node.pods.changes.changeInterface(id, add());
  const tap = node.pods.find(id).plan.interfaces[1]?.nic?.tap;
  t.deepEqual(seen, [
    [`open ${tap}`, 2],
    ["ensure", 2],
    // (Of both: at either port of the bridge, the guest may answer for the address of the other.)
    ["ensure", 2],
    ["plug nic1", 2],
    [`close ${tap}`, 2],
    ["configure", 2],
  ]);
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.3"]);
  t.is(node.pods.find(id).before, undefined);
  seen.length = 0;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(seen, [
    ["ensure", 2],
    [`detach ${tap}`, 2],
    ["unplug nic1", 2],
    ["remove", 2],
  ]);
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.is(node.pods.find(id).spec.interfaces.length, 1);
  await node.pods.close(0);
});

test("the smallest position that is free is taken, and names stay what they are", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  await node.pods.changes.changeInterface(id, add());
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2"]);
  await node.pods.changes.changeInterface(id, add({ interface: { guestName: "lan" } }));
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2", "lan 1"]);
  t.deepEqual(
    node.pods.find(id).spec.interfaces.map(({ guestName }) => guestName),
    ["eth0", "eth2", "lan"] as never,
  );
  await t.throwsAsync(
    node.pods.changes.changeInterface(id, add({ interface: { guestName: "lan" } })),
    {
      code: "INVALID_ARGUMENT",
    },
  );
  await node.pods.close(0);
});

for (const [call, code] of [
  ["open", "SYSCALL_FAILED"],
  ["ensure", "SYSCALL_FAILED"],
  ["plug", "SYSCALL_FAILED"],
  ["configure", "SYSCALL_FAILED"],
] as const)
  test(`an add whose ${call} fails leaves nothing`, async (t) => {
    using node = openNode(configuration({}));
    const calls = await leavesNothing(
      t,
      node,
      () => {
        node.failing.add(call);
        return add();
      },
      code,
    );
    t.true(calls.includes("unplug nic1"), calls.join(", "));
    node.failing.clear();
    const id = node.pods.list()[0]?.id ?? "";
    await node.pods.changes.changeInterface(id, add());
    t.deepEqual(names(node, id), ["eth0 0", "eth1 1"]);
    await node.pods.close(0);
  });

test("a guest that does not let go: the slot is taken until it does, and the address rests from then on", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  node.keeps = true;
  const row = await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.3"]);
  t.is(ports(node, id).ports.length, 1, "it is off its bridge");
  t.is(guestConfigOf(row).interfaces.length, 1);
  await t.throwsAsync(node.pods.changes.changeInterface(id, remove("eth1")), {
    code: "INTERFACE_NOT_FOUND",
  });
  node.keeps = false;
  await node.pods.changes.changeInterface(id, add());
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving", "eth2 2"]);
  node.letGo("nic1");
  for (let waited = 0; waited < 100 && names(node, id).length > 2; waited++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2"]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.4"]);
  await node.pods.changes.changeInterface(id, add());
  t.deepEqual(names(node, id), ["eth0 0", "eth2 2", "eth1 1"]);
  await node.pods.close(0);
});

test("an add that fails on a guest that does not let go stays to be removed, and the slot is kept", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.keeps = true;
  node.failing.add("configure");
  await t.throwsAsync(node.pods.changes.changeInterface(id, add()), { code: "SYSCALL_FAILED" });
  t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving"]);
  node.letGo("nic1");
  for (let waited = 0; waited < 100 && names(node, id).length > 1; waited++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  await node.pods.close(0);
});

test("addresses, MTU, gateway, metric and routes are changed, and what is not named stays", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create({
    spec: { interfaces: [{}, { address: "10.0.0.5" }] },
  });
  const [first] = node.pods.find(id).plan.interfaces;
  const change = async (more: Parameters<typeof set>[1]): Promise<unknown> => {
    const row = await node.pods.changes.changeInterface(id, set("eth1", more));
    const { addresses, mtu, gateways } = row.plan.interfaces[1] ?? {};
    t.deepEqual(row.plan.interfaces[0], first);
    t.deepEqual(guestConfigOf(row).interfaces[1]?.addresses, addresses);
    t.deepEqual(ports(node, id).ports[1]?.guestAddresses, addresses);
    const routes = guestConfigOf(row).routes.filter((route) => route.interface === "eth1");
    return [
      addresses?.join(),
      mtu,
      gateways?.map((each) => Object.values(each).join("/")),
      routes.length,
    ];
  };
  t.deepEqual(await change({ mtu: 1400 }), ["10.0.0.5/29", 1400, [], 0]);
  t.deepEqual(await change({ addresses: { addresses: ["10.0.0.6"] } }), [
    "10.0.0.6/29",
    1400,
    [],
    0,
  ]);
  t.deepEqual(held(node), ["10.0.0.2", "10.0.0.6"]);
  await t.throwsAsync(node.pods.changes.changeInterface(id, set("eth1", { gateway: "10.0.0.1" })), {
    code: "GATEWAY_CONFLICT",
  });
  t.deepEqual(await change({ gateway: "10.0.0.1", metric: 50 }), [
    "10.0.0.6/29",
    1400,
    ["10.0.0.1/50"],
    1,
  ]);
  t.deepEqual(await change({ metric: 60 }), ["10.0.0.6/29", 1400, ["10.0.0.1/60"], 1]);
  t.deepEqual(
    await change({ routes: { routes: [{ destination: "172.16.0.0/12", gateway: "10.0.0.1" }] } }),
    ["10.0.0.6/29", 1400, ["10.0.0.1/60"], 2],
  );
  const accelerators = { x86_64: "tcg", arm64: "tcg" } as const;
  const shown = podView(node.pods.find(id), {
    run: undefined,
    live: undefined,
    accelerators,
    networks: [],
  });
  t.deepEqual(
    shown.interfaces[1]?.routes.map(({ destination, gateway, metric }) => [
      destination,
      gateway,
      metric,
    ]),
    [
      ["0.0.0.0/0", "10.0.0.1", 60],
      ["172.16.0.0/12", "10.0.0.1", 0],
    ],
  );
  await t.throwsAsync(
    node.pods.changes.changeInterface(id, set("eth1", { addresses: { addresses: ["none"] } })),
    { code: "ADDRESS_OUT_OF_RANGE" },
    "its gateway would be out of reach",
  );
  t.deepEqual(await change({ gateway: "" }), ["10.0.0.6/29", 1400, [], 1]);
  t.deepEqual(await change({ routes: {} }), ["10.0.0.6/29", 1400, [], 0]);
  t.deepEqual(await change({ addresses: { addresses: ["none"] } }), ["", 1400, [], 0]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  await node.pods.close(0);
});

test("a default route that no caller asked for goes with the last address of its family", async (t) => {
  using node = openNode(configuration({ "network.cidr6": "fd00:9::/64" }));
  const { id } = await node.create();
  const gateways = () =>
    node.pods.find(id).plan.interfaces[0]?.gateways.map<string>(({ gateway }) => gateway);
  t.deepEqual(gateways(), ["10.0.0.1", "fd00:9::1"]);
  await node.pods.changes.changeInterface(
    id,
    set("eth0", { addresses: { addresses: ["10.0.0.5"] } }),
  );
  t.deepEqual(gateways(), ["10.0.0.1"]);
  t.deepEqual(
    guestConfigOf(node.pods.find(id)).routes.map<string>(({ destination }) => destination),
    ["0.0.0.0/0"],
  );
  await node.pods.close(0);
});

test("an update that the guest refuses goes back to what was, for guest and rows", async (t) => {
  using node = openNode(configuration({}));
  const calls = await leavesNothing(
    t,
    node,
    () => {
      node.failing.add("configure");
      node.onCall = (call) => {
        // It gets its former configuration, which works.
        if (call === "configure") setImmediate(() => node.failing.clear());
      };
      return set("eth0", { addresses: { addresses: ["10.0.0.5"] } });
    },
    "SYSCALL_FAILED",
  );
  t.is(calls.filter((call) => call === "configure").length, 2);
  await node.pods.close(0);
});

test("lo gets addresses and loses them without a NIC", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.calls.length = 0;
  await node.pods.changes.changeInterface(
    id,
    add({ interface: { loopback: true, addresses: ["10.9.0.1/32"] } }),
  );
  // The host lets them pass before the guest has them.
  t.deepEqual(node.calls, ["ensure", "configure"]);
  t.deepEqual(guestConfigOf(node.pods.find(id)).loopback, ["10.9.0.1/32"] as never);
  const sources = (): unknown[] | undefined =>
    ports(node, id).sources?.map(({ tap, address }) => `${tap} ${address}`);
  const tap = node.pods.find(id).plan.interfaces[0]?.nic?.tap;
  t.deepEqual(sources(), [`${tap} 10.9.0.1`]);
  await node.pods.changes.changeInterface(
    id,
    set("lo", { addresses: { addresses: ["10.9.0.2/32"] } }),
  );
  t.deepEqual(guestConfigOf(node.pods.find(id)).loopback, ["10.9.0.2/32"] as never);
  t.deepEqual(sources(), [`${tap} 10.9.0.2`]);
  // By another NIC of the pod they pass as well.
  await node.pods.changes.changeInterface(id, add());
  t.is(sources()?.length, 2);
  await node.pods.changes.changeInterface(id, remove("eth2"));
  t.deepEqual(sources(), [`${tap} 10.9.0.2`]);
  // The guest would answer for it on its other links, where it is another pod's or may become so.
  for (const address of ["10.0.0.5/32", "10.0.0.1/32"])
    await t.throwsAsync(
      node.pods.changes.changeInterface(id, set("lo", { addresses: { addresses: [address] } })),
      { code: "ADDRESS_INVALID", message: /of network "default"/ },
    );
  await t.throwsAsync(node.pods.changes.changeInterface(id, set("lo", { mtu: 1400 })), {
    code: "INVALID_ARGUMENT",
  });
  node.calls.length = 0;
  await node.pods.changes.changeInterface(id, remove("lo"));
  t.deepEqual(node.calls, ["ensure", "configure"]);
  t.deepEqual(sources(), []);
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  await node.pods.close(0);
});

test("a pod that has had lo says so after a start: its host and guest are to have none of its addresses", async (t) => {
  const config = configuration({});
  const loopback = { loopback: true, addresses: ["10.9.0.1/32"] };
  let id: string;
  {
    using node = openNode(config);
    ({ id } = await node.create());
    t.is(ports(node, id).sources, undefined, "control: what it never had is not looked for");
    await node.pods.changes.changeInterface(id, add({ interface: loopback }));
    await node.pods.changes.changeInterface(id, remove("lo"));
    await node.pods.close(0);
  }
  using node = openNode(config);
  const { sources, published } = ports(node, id);
  t.deepEqual([sources, published], [[], []]);
  t.deepEqual(guestConfigOf(node.pods.find(id)).loopback, []);
});

test("what was cut short is undone or completed by the next start", async (t) => {
  const config = configuration({});
  let id: string;
  {
    using node = openNode(config);
    ({ id } = await node.create());
    await node.pods.changes.changeInterface(id, add());
    // As a kill after the first commit leaves them: one being added, one being removed.
    await node.pods.change(id, async (live, row) => {
      const [first, second] = row.plan.interfaces;
      if (first === undefined || second?.nic === undefined) throw new Error("Two interfaces");
      node.records.replan(live, {
        ...row,
        plan: { ...row.plan, interfaces: [first, { ...second, leaving: true }] },
        text: "being removed",
      });
      const third = {
        ...second,
        position: 2,
        guestName: "eth2" as IfName,
        addresses: ["10.0.0.6/29" as never],
        nic: {
          ...second.nic,
          nicId: "nic2",
          mac: "52:54:00:00:00:99" as never,
          tap: "t2" as IfName,
        },
      };
      node.records.replan(live, {
        spec: node.pods.find(id).spec,
        plan: { ...live.plan, interfaces: [...live.plan.interfaces, third] },
        text: "being added",
        reverting: true,
      });
    });
    t.deepEqual(names(node, id), ["eth0 0", "eth1 1 leaving", "eth2 2"]);
    node.records.started(id as never, node.vm.record);
  }
  using node = openNode(config);
  await node.pods.recover("b");
  for (let waited = 0; waited < 100 && names(node, id).length > 1; waited++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.is(node.pods.find(id).state, "running");
  t.is(node.pods.find(id).before, undefined);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.deepEqual(
    node.calls.filter((call) => call.startsWith("unplug")),
    ["unplug nic2", "unplug nic1"],
  );
  t.true(node.calls.includes("configure"), "the guest may have been notified");
  await node.pods.close(0);
});

test("a pod whose machine has gone is what it was before a change, without what was leaving", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add());
  node.keeps = true;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  await node.pods.stop(id, { force: true });
  t.deepEqual(names(node, id), ["eth0 0"]);
  t.deepEqual(held(node), ["10.0.0.2"]);
  t.deepEqual(staying(node.pods.find(id).plan.interfaces).length, 1);
  await node.pods.delete(id, { force: true });
  t.deepEqual(held(node), []);
  await node.pods.close(0);
});

test("two pods never have one address on one bridge of others, nor one kept tap", async (t) => {
  using node = openNode(configuration({}));
  const link = (name: string, more: object) =>
    ({
      name,
      kind: "bridge",
      ours: false,
      mtu: 1500,
      carrier: true,
      vlanFiltering: true,
      ...more,
    }) as never;
  const vpn = { name: "vpn0", kind: "tap", ours: false, mtu: 1500, persistent: true };
  node.links.push(link("br1", {}), link("br2", {}), { ...vpn, carrier: false } as never);
  const first = await node.create();
  const { id } = await node.create();
  const { changes } = node.pods;
  const on = (bridge: string, address: string, more = {}): InterfaceChange =>
    add({ interface: { bridge, address, ...more } });
  await changes.changeInterface(first.id, on("br1", "10.8.0.2/24"));
  await changes.changeInterface(
    first.id,
    add({ interface: { tap: "vpn0", tapKept: true, address: "none" } }),
  );
  const holder = `pod "${first.name}"`;
  t.like(
    await t.throwsAsync(changes.changeInterface(id, on("br1", "10.8.0.2/25")), {
      code: "ADDRESS_IN_USE",
    }),
    {
      message: `Address 10.8.0.2 is held by ${holder}`,
      field: "interface.address",
      details: { holder },
    },
  );
  await t.throwsAsync(
    node.create({ spec: { interfaces: [{ bridge: "br1", address: "10.8.0.2/24" }] } }),
    {
      code: "ADDRESS_IN_USE",
    },
  );
  await t.throwsAsync(changes.changeInterface(first.id, on("br1", "10.8.0.2/24")), {
    message: /another interface of this pod/,
  });
  node.links[2] = { ...vpn, carrier: true } as never;
  await t.throwsAsync(
    changes.changeInterface(
      id,
      add({ interface: { tap: "vpn0", tapKept: true, address: "none" } }),
    ),
    { code: "NAME_IN_USE", message: `Tap name "vpn0" is taken by ${holder}` },
  );
  // Elsewhere it is another address, and it is free when the pod has gone.
  await changes.changeInterface(id, on("br2", "10.8.0.2/24"));
  await changes.changeInterface(id, on("br1", "10.8.0.2/24", { port: { vlan: 7 } }));
  await changes.changeInterface(id, on("br1", "10.8.0.3/24"));
  await changes.changeInterface(
    id,
    set("eth3", { addresses: { addresses: ["10.8.0.3/24", "10.8.0.4/24"] } }),
  );
  await t.throwsAsync(
    changes.changeInterface(id, set("eth3", { addresses: { addresses: ["10.8.0.2/24"] } })),
    { code: "ADDRESS_IN_USE" },
  );
  await node.pods.delete(first.id, { force: true });
  await changes.changeInterface(id, set("eth3", { addresses: { addresses: ["10.8.0.2/24"] } }));
  await node.pods.close(0);
});

test("bridges and taps of others are what they have to be, or it is said what is wrong", async (t) => {
  using node = openNode(configuration({}));
  const link = (name: string, more: object) =>
    ({ name, kind: "other", ours: false, mtu: 1500, carrier: false, ...more }) as never;
  node.links.push(
    link("br1", { kind: "bridge", mtu: 1400 }),
    link("br2", { kind: "bridge", vlanFiltering: true }),
    link("hers", { kind: "bridge", ours: true }),
    link("eth9", {}),
    link("tap1", { kind: "tap", persistent: true, mtu: 1300 }),
    link("tap2", { kind: "tap", persistent: false }),
    link("tap3", { kind: "tap", persistent: true, carrier: true }),
    link("tap4", { kind: "tap", persistent: true, multiQueue: true }),
  );
  const { id } = await node.create();
  const address = "10.8.0.2/24";
  for (const [spec, code, field] of [
    [{ bridge: "br9", address }, "BRIDGE_CONFLICT", "interface.bridge"],
    [{ bridge: "eth9", address }, "BRIDGE_CONFLICT", "interface.bridge"],
    [{ bridge: "hers", address }, "BRIDGE_CONFLICT", "interface.bridge"],
    [{ bridge: "hyper0", address }, "BRIDGE_CONFLICT", "interface.bridge"],
    [{ bridge: "br1", address, port: { vlan: 7 } }, "BRIDGE_CONFLICT", "interface.port.vlan"],
    [{ port: { vlan: 7 } }, "BRIDGE_CONFLICT", "interface.port.vlan"],
    [{ bridge: "br1", address, mtu: 1500 }, "MTU_OUT_OF_RANGE", "interface.mtu"],
    [{ tap: "tap9", tapKept: true, address }, "TAP_CONFLICT", "interface.tap"],
    [{ tap: "eth9", tapKept: true, address }, "TAP_CONFLICT", "interface.tap"],
    [{ tap: "tap2", tapKept: true, address }, "TAP_CONFLICT", "interface.tap"],
    [{ tap: "tap3", tapKept: true, address }, "TAP_CONFLICT", "interface.tap"],
    [{ tap: "tap4", tapKept: true, address }, "TAP_CONFLICT", "interface.tap"],
    [{ tap: "eth9" }, "NAME_IN_USE", "interface.tap"],
  ] as const) {
    const error = await t.throwsAsync(
      node.pods.changes.changeInterface(id, add({ interface: spec })),
      {
        code,
      },
    );
    t.like(error, { field }, JSON.stringify(spec));
  }
  await node.pods.changes.changeInterface(id, add({ interface: { bridge: "br1", address } }));
  await node.pods.changes.changeInterface(
    id,
    add({ interface: { bridge: "br2", address: "none", port: { vlan: 7, learning: false } } }),
  );
  await node.pods.changes.changeInterface(
    id,
    add({ interface: { tap: "tap1", tapKept: true, address: "10.7.0.2/24" } }),
  );
  const { plan } = node.pods.find(id);
  t.like(plan.interfaces[1], { bridge: "br1", addresses: [address], mtu: 1400 });
  t.like(ports(node, id).ports[1], { bridge: "br1", mtu: 1400, foreign: true, isolated: false });
  t.like(ports(node, id).ports[2], { bridge: "br2", vlan: 7, learning: false });
  t.is(ports(node, id).ports.length, 3, "a kept tap is no port of podnet's");
  t.like(plan.interfaces[3], { tapKept: true, mtu: 1300 });
  t.deepEqual(held(node), ["10.0.0.2"], "no address of theirs is podnet's to hand out");
  await t.throwsAsync(
    node.pods.changes.changeInterface(
      id,
      add({ interface: { tap: "tap1", tapKept: true, address: "none" } }),
    ),
    { code: "NAME_IN_USE" },
  );
  node.calls.length = 0;
  const tap = "tap1";
  await node.pods.changes.changeInterface(id, remove("eth3"));
  t.false(
    node.calls.some((call) => call.startsWith("detach")),
    `${tap} stays where it is`,
  );
  await node.pods.close(0);
});
