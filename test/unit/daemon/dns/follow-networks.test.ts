import { create } from "@bufbuild/protobuf";
import test from "ava";
import { AddInterfaceRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type InterfaceChange,
  validateAddInterface,
} from "../../../../api/validate/interface-change.ts";
import type { IfName, NetworkName } from "../../../../core/names.ts";
import type { PortLease } from "../../../../daemon/dhcp/lease.ts";
import { SentServers } from "../../../../daemon/networks/sent-servers.ts";
import { answerAgain, answerOtherwise } from "../../../../daemon/pods/interfaces/answer-guest.ts";
import { describeChange } from "../../../../daemon/pods/plan/change-text.ts";
import type { Host } from "../../../../daemon/pods/lifecycle/host.ts";
import { livePod } from "../../../../daemon/pods/lifecycle/live-pod.ts";
import type { PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import type { Supervision } from "../../../../daemon/pods/lifecycle/supervision.ts";
import { putNetwork } from "../../../../daemon/networks/store.ts";
import { definition } from "../../../lab/network-definition.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";

const blue = definition("blue", ["10.20.0.1/24"], { dns: ["192.0.2.53" as never] });
const settings = { "network.dns": "192.0.2.1", "network.dns_search": "one.example" };

const add = (network: string): InterfaceChange =>
  validateAddInterface(
    create(AddInterfaceRequestSchema, { interface: { network } }),
    "default" as never,
  );
const remove = (name: string): InterfaceChange => ({ kind: "remove", name: name as IfName });

/** A node with a second network, and state of its own that a second one may be opened on. */
function opened(config = configuration(settings)): Node {
  const node = openNode(config);
  if (!node.definitions.some(({ name }) => name === blue.name)) {
    putNetwork(node.db, blue, { state: "ready", configured: false, createdMs: 0 });
    node.definitions.push(blue);
    node.addresses.prepare(blue)();
  }
  return node;
}

/** The network as it is from now on. */
function redefine(node: Node, name: string, change: Partial<typeof blue>): NetworkName {
  const at = node.definitions.findIndex((each) => each.name === name);
  const now = node.definitions[at];
  if (now === undefined) throw new Error(name);
  node.definitions[at] = { ...now, ...change };
  return now.name;
}

const planned = (node: Node, id: string): readonly string[] | undefined =>
  node.pods.find(id).plan.dns?.servers;
const reported = (node: Node): readonly string[] | undefined => node.reported.at(-1)?.dns?.servers;

/** Waits for what has no waiter in podnetd. */
async function until(isSo: () => boolean): Promise<void> {
  for (let nth = 0; nth < 500 && !isSo(); nth++)
    await new Promise((resolve) => setTimeout(resolve, 10));
}

test("a guest's name servers follow its interfaces, there and back", async (t) => {
  using node = opened();
  const { id } = await node.create();
  t.deepEqual(reported(node), ["192.0.2.1"]);
  await node.pods.changes.changeInterface(id, add("blue"));
  t.deepEqual(reported(node), ["192.0.2.1", "192.0.2.53"]);
  node.resolving.add(blue.name);
  await node.pods.changes.changeInterface(id, add("blue"));
  t.deepEqual(reported(node), ["192.0.2.1", "10.20.0.1"]);
  t.deepEqual(node.reported.at(-1)?.dns?.search, ["podnet", "one.example"]);
  await node.pods.changes.changeInterface(id, remove("eth1"));
  const configured = node.reported.length;
  t.deepEqual(planned(node, id), ["192.0.2.1", "10.20.0.1"], "the other one is there still");
  const { before, after } = await node.pods.changes.planInterface(id, remove("eth2"));
  const plan = describeChange(before, after, [], { fragment: () => [], plug: () => [] });
  t.regex(JSON.stringify(plan), /"guest\.configure"/, "the plan says so");
  await node.pods.changes.changeInterface(id, remove("eth2"));
  t.deepEqual(reported(node), ["192.0.2.1"]);
  t.is(node.reported.length, configured + 1);
  await node.pods.close(0);
});

test("what is removed, and leaves no server behind, is not reported", async (t) => {
  using node = opened();
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add("default"));
  const configured = node.reported.length;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.is(node.reported.length, configured);
  await node.pods.close(0);
});

test("a guest that keeps the NIC asks no server of its network any more", async (t) => {
  using node = opened();
  const { id } = await node.create();
  await node.pods.changes.changeInterface(id, add("blue"));
  node.keeps = true;
  await node.pods.changes.changeInterface(id, remove("eth1"));
  t.deepEqual(reported(node), ["192.0.2.1"]);
  t.is(node.pods.find(id).plan.interfaces[1]?.leaving, true);
  await node.pods.close(0);
});

test("an add that fails behind its guest is taken back from the servers too", async (t) => {
  using node = opened();
  const { id } = await node.create();
  let once = true;
  node.onCall = (call) => {
    if (call !== "configure" || !once) return;
    once = false;
    node.failing.add("configure");
    setImmediate(() => node.failing.clear());
  };
  await t.throwsAsync(node.pods.changes.changeInterface(id, add("blue")), {
    code: "SYSCALL_FAILED",
  });
  t.deepEqual(planned(node, id), ["192.0.2.1"]);
  t.deepEqual(reported(node), ["192.0.2.1"]);
  t.is(node.reported.length, 2, "it may have heard of the other");
  await node.pods.close(0);
});

test("who names servers of its own keeps them, whatever its networks say", async (t) => {
  using node = opened();
  const { id } = await node.create({ spec: { dns: { servers: ["192.0.2.77"] } } });
  await node.pods.changes.changeInterface(id, add("blue"));
  redefine(node, "blue", { dns: ["192.0.2.54" as never] });
  await node.pods.follow(blue.name);
  t.deepEqual(planned(node, id), ["192.0.2.77"]);
  await node.pods.close(0);
});

test("another server of a network reaches guests that run, once, and those that do not at their start", async (t) => {
  using node = opened();
  const { id } = await node.create();
  const stopped = await node.create();
  await node.pods.stop(stopped.id, { force: true });
  const configured = node.reported.length;
  const name = redefine(node, "default", { dns: ["192.0.2.2" as never] });
  await node.pods.follow(name);
  await until(() => node.reported.length > configured);
  t.deepEqual(reported(node), ["192.0.2.2"]);
  await node.pods.follow(name);
  await node.pods.follow(blue.name);
  await node.pods.changes.changeInterface(id, add("blue"));
  t.is(node.reported.length, configured + 2, "nothing new is not reported");
  t.deepEqual(planned(node, stopped.id), ["192.0.2.2"]);
  await node.pods.close(0);
});

test("a guest that does not answer holds no network up, and neither does one that is paused", async (t) => {
  using node = opened();
  const { id } = await node.create();
  await node.pods.pause(id);
  const configured = node.reported.length;
  const name = redefine(node, "default", { dns: ["192.0.2.2" as never] });
  await node.pods.follow(name);
  t.is(node.reported.length, configured);
  await node.pods.resume(id);
  t.deepEqual(reported(node), ["192.0.2.2"]);
  node.mute = true;
  redefine(node, "default", { dns: ["192.0.2.3" as never] });
  await node.pods.follow(name);
  t.deepEqual(planned(node, id), ["192.0.2.3"]);
  await node.pods.close(0);
});

test("a podnetd that ends before it has notified a guest leaves it to the next", async (t) => {
  const config = configuration(settings);
  /** The agent of before is still there: nothing else calls for another message. */
  const begin = (node: Node): Node => Object.assign(node, { epoch: "e" });
  {
    using first = begin(opened(config));
    const { id } = await first.create();
    first.records.started(id, first.vm.record);
    first.mute = true;
    await first.pods.follow(redefine(first, "default", { dns: ["192.0.2.2" as never] }));
    await first.pods.close(0);
  }
  {
    using next = begin(opened(config));
    await next.pods.recover("b");
    await until(() => next.reported.length > 0);
    t.deepEqual(reported(next), ["192.0.2.2"]);
    await until(() => next.pods.list()[0]?.observed?.dns.servers[0] === "192.0.2.2");
    await next.pods.close(0);
  }
  using third = begin(opened(config));
  await third.pods.recover("b");
  await until(() => third.calls.includes("ready"));
  await third.pods.close(0);
  t.deepEqual(third.reported, [], "which has sent it");
});

test("networks whose guests got another domain are known after a start, and new ones are none", (t) => {
  using node = opened();
  const servers = new SentServers(node.db);
  const on = (): string => "podnet";
  t.deepEqual(servers.outdated([blue], on), [], "no guest was notified of it");
  servers.note([blue], on);
  t.deepEqual(new SentServers(node.db).outdated([blue], on), []);
  for (const change of [
    { dns: [] },
    { dnsSearch: ["blue.example"] },
    { subnets: definition("blue", ["10.21.0.1/24"]).subnets },
  ])
    t.deepEqual(servers.outdated([{ ...blue, ...change }], on), [blue.name]);
  t.deepEqual(
    servers.outdated([blue], () => undefined),
    [blue.name],
    "there is no resolver any more",
  );
  t.deepEqual(servers.outdated([{ ...blue, name: "blu" as never, dns: [] }], on), []);
});

test("a guest without an agent is notified of other servers at the ports that say so, when it asks", (t) => {
  const nic = (nth: number) => ({ tap: `tap${nth}`, mac: `02:00:00:00:00:0${nth}` });
  const plan = {
    podId: "webwebwebweb",
    agent: "none",
    vm: {},
    routes: [],
    dns: { servers: ["192.0.2.1"], search: [], options: [] },
    interfaces: [
      {
        position: 0,
        network: "hyper",
        bridge: "hyper0",
        guestName: "eth0",
        addresses: ["10.0.0.2/29"],
        gateways: [],
        mtu: 1500,
        nic: nic(0),
      },
      // Nothing answers there.
      { position: 1, bridge: "br0", guestName: "eth1", addresses: [], gateways: [], nic: nic(1) },
    ],
  } as unknown as PodPlan;
  const spec = { hostname: "web", boot: {}, interfaces: [{}, {}] } as never;
  const answered: (PortLease | string)[] = [];
  const host = {
    networks: { list: () => [definition("hyper", ["10.0.0.1/29"])] },
    openAnswers: ({ link, lease }: { link: string; lease: PortLease }) => {
      answered.push(lease);
      return { [Symbol.dispose]: () => answered.push(`${link} no more`) };
    },
  } as unknown as Host;
  const watch = { host } as unknown as Supervision;
  const live = livePod({ plan, spec });
  for (const position of [0, 1]) live.plugged.add(position);
  answerAgain(live, watch);
  answerOtherwise(live, { plan, spec }, watch);
  t.is(answered.length, 1, "nothing is said otherwise");
  const dns = { servers: ["192.0.2.2"], search: [], options: [] } as never;
  live.plan = { ...plan, dns };
  answerOtherwise(live, { plan, spec }, watch);
  t.is(answered[1], "tap0 no more");
  t.like(answered[2], { v4: { address: "10.0.0.2/29", dns: ["192.0.2.2"] } } as never);
  t.is(answered.length, 3);
  live.plan = { ...live.plan, interfaces: [] };
  answerOtherwise(live, { plan, spec }, watch);
  t.is(answered.length, 3);
});
