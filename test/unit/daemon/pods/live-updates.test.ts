import { guestConfigOf } from "../../../../daemon/pods/guest/guest-config.ts";
import test from "ava";
import { podView } from "../../../../daemon/api/views.ts";
import { configuration, openNode } from "../fixtures/node.ts";
import { add, held, leavesNothing, names, ports, remove, set } from "./fixtures/live-changes.ts";

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
    process: undefined,
    expiresMs: undefined,
    nowMs: 0,
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
