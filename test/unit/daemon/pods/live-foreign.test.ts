import test from "ava";
import type { InterfaceChange } from "../../../../api/validate/interface-change.ts";
import { configuration, openNode } from "../fixtures/node.ts";
import { add, held, ports, remove, set } from "./fixtures/live-changes.ts";

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
