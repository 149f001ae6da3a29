import test from "ava";
import { portsOf } from "../../../../daemon/pods/interfaces/pod-ports.ts";
import { systemClock } from "../../../../core/clock.ts";
import type { IfName, NetworkName } from "../../../../core/names.ts";
import {
  type AttachmentPlan,
  attachmentPlanVersion,
} from "../../../../daemon/containers/attachment-plan.ts";
import type { NetworkDefinition } from "../../../../daemon/config/network-definition.ts";
import type { Networks } from "../../../../daemon/networks/networks.ts";
import { withLeasedNetwork } from "../../../../daemon/overlays/lease/configured-network.ts";
import { LeasedNetwork } from "../../../../daemon/overlays/lease/leased-network.ts";
import { insertAttachment } from "../../../../daemon/containers/store.ts";
import { getNetwork } from "../../../../daemon/networks/store.ts";
import { writeOverlay } from "../../../../daemon/overlays/store.ts";
import type { LogFields } from "../../../../linux/log.ts";
import { onHost } from "../fixtures/networks.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

// An overlay that carries less than the MTU of its pods: they keep theirs, and later pods get the
// smaller one.

const name = "default" as NetworkName;

function stage() {
  const config = configuration({});
  const node = openNode(config);
  const { host, networks } = onHost(node, node.definitions);
  host.refusing = false;
  const warned: (readonly [string, LogFields])[] = [];
  const leased = new LeasedNetwork(
    {
      network: name,
      overlay: "flannel",
      networks,
      db: node.db,
      // So that every look is a new one.
      clock: { monotonic: systemTicks() },
      log: { warn: (fields: LogFields, msg: string) => void warned.push([msg, fields]) } as never,
      remember: () => {},
      takeBack: () => {},
    },
    "held",
  );
  const { cidr } = networks.find(name).subnets[0] as NetworkDefinition["subnets"][0];
  return {
    config,
    node,
    host,
    networks,
    leased,
    warned,
    /** The overlay carries so much from now on; the planner knows what the networks are. */
    async carries(mtu: number): Promise<void> {
      await leased.become({ subnets: [cidr], mtu }, "held");
      node.definitions.splice(0, node.definitions.length, ...networks.list());
    },
  };
}

/** A minute later at each look. */
function systemTicks(): () => number {
  let now = systemClock.monotonic();
  return () => (now += 60_000);
}

const shown = (node: Node, id: string): readonly (number | undefined)[] => {
  const { plan } = node.pods.find(id);
  return [plan.interfaces[0]?.mtu, portsOf(plan, node.definitions).ports[0]?.mtu];
};
const bridgeOf = (networks: Networks): unknown =>
  networks.fragments().map((each) => [each.key, each.mtu]);

test("pods that come to a network whose overlay carries less get the smaller MTU; those that were there keep what they have", async (t) => {
  const { config, node, networks, leased, warned, carries } = stage();
  using _node = node;
  await using _leased = leased;
  const { id: old } = await node.create({ spec: { name: "old" } });
  t.deepEqual(leased.troubles, []);
  await carries(1400);
  t.like(networks.find(name), { mtu: 1400, bridgeMtu: 1500 });
  t.like(getNetwork(node.db, name)?.definition, { mtu: 1400, bridgeMtu: 1500 });
  t.deepEqual(bridgeOf(networks), [["default", 1500]], "what they send to each other passes");
  const { id: later } = await node.create({ spec: { name: "later" } });
  t.deepEqual(shown(node, old), [1500, 1500]);
  t.deepEqual(shown(node, later), [1400, 1500]);
  await t.throwsAsync(node.create({ spec: { name: "more", interfaces: [{ mtu: 1401 }] } }), {
    code: "MTU_OUT_OF_RANGE",
  });
  const trouble =
    "the overlay carries packets of 1400 bytes; these have a larger MTU: pod old (1500); podnet interface set POD eth0 --mtu 1400, or create them again";
  t.deepEqual(leased.troubles, [trouble]);
  t.deepEqual(warned, [[trouble, { network: name, mtu: 1400, before: 1500 }]]);

  // A start knows of it, too: what is written down of the overlay is the smaller one alone.
  writeOverlay(node.db, "flannel", { network: { subnets: [], mtu: 1400 } });
  const overlay = { names: [], discover: false } as never;
  t.like(withLeasedNetwork({ ...config, overlay }, node.db).network, {
    mtu: 1400,
    bridgeMtu: 1500,
  });

  // Something else of the old one is changed, and then its MTU; with that none has more any
  // longer.
  const eth0 = { kind: "set", name: "eth0" as IfName } as const;
  await node.pods.changes.changeInterface(old, { ...eth0, metric: 7 });
  t.deepEqual(shown(node, old), [1500, 1500]);
  await node.pods.changes.changeInterface(old, { ...eth0, mtu: 1400 });
  t.deepEqual(leased.troubles, []);
  await t.throwsAsync(node.pods.changes.changeInterface(old, { ...eth0, mtu: 1500 }), {
    code: "MTU_OUT_OF_RANGE",
  });
  await carries(1399);
  await carries(1400);
  t.like(networks.find(name), { mtu: 1400 });
  t.false("bridgeMtu" in withLeasedNetwork({ ...config, overlay }, node.db).network);
  await carries(1500);
  t.deepEqual(bridgeOf(networks), [["default", 1500]]);
  t.false("bridgeMtu" in networks.find(name));
});

test("a container that named an MTU keeps it and is named; one that named none follows its network, and is not", async (t) => {
  const { node, networks, leased, carries } = stage();
  using _node = node;
  await using _leased = leased;
  const container = (id: string, more: Partial<AttachmentPlan>): void => {
    const { mtu = 1500 } = more;
    const shared = { netns: "/run/netns/c", mac: "0a:58:0a:00:00:02", mtu, addresses: [] };
    const plan = {
      ...shared,
      version: attachmentPlanVersion,
      id,
      containerId: `c-${id}`,
      ifName: "eth0",
      config: "list",
      network: name,
      bridge: "br0",
      gateways: [],
      dns: { nameservers: [], search: [], options: [] },
      ...more,
    };
    insertAttachment(node.db, plan as unknown as AttachmentPlan, 1);
  };
  container("aaaaaaaaaaaa", { mtu: 1500, mtuOfNetwork: true });
  await carries(1400);
  t.false("bridgeMtu" in networks.find(name));
  t.deepEqual(leased.troubles, []);
  await carries(1500);
  container("bbbbbbbbbbbb", { mtu: 1450 });
  await carries(1400);
  t.is(networks.find(name).bridgeMtu, 1450);
  t.regex(leased.troubles.join(), /have a larger MTU: container c-bbbbbbbbbbbb \(1450\); /);
});

test("a pod that is made while its network is becoming narrower loses nothing by it", async (t) => {
  const { node, host, networks, leased, carries } = stage();
  using _node = node;
  await using _leased = leased;
  let made: Promise<unknown> | undefined;
  host.onEnsure = () => (made ??= node.create({ spec: { name: "between" } }));
  await carries(1400);
  t.deepEqual(shown(node, "between"), [1500, 1500]);
  t.is(networks.find(name).bridgeMtu, 1500);
  t.deepEqual(bridgeOf(networks), [["default", 1500]]);
});
