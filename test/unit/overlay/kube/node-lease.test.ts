import test, { type ExecutionContext } from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { KubeNodes } from "../../../../overlay/kube/node-store.ts";
import { until } from "../../../lab/until.ts";
import { allRights, KubeApiServer } from "../../../peers/kube-api/server.ts";
import { clientOf } from "../../kubernetes/fixtures.ts";
import { annotationsOf, dualConf, hostOf, macOf, netConf } from "./fixtures.ts";
import { annotated, conditionOf, HostOf, spec } from "./host-of.ts";

test("a host has its Node's podCIDR, and says in flannel's annotations how it is reached", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  await host.is("held");
  await annotated(server, "node-1");
  t.is(host.subnet, "10.244.1.0-24");
  t.deepEqual(server.nodes.annotations("node-1"), annotationsOf(1));
  t.deepEqual(host.troubles, []);
  // Kubernetes is notified once the kernel is as wanted, and not before.
  t.is(conditionOf(server, "node-1"), undefined);
  host.lease.ready();
  const condition = await until("the condition", () => conditionOf(server, "node-1"));
  t.is(condition.status, "False");
  t.deepEqual(host.states, ["waiting", "held"]);
});

test("hosts know each other, and what becomes of each other", async (t) => {
  await using server = await KubeApiServer.open({ chunk: () => 7 });
  for (const n of [1, 2, 3]) server.nodes.create(`node-${n}`, spec(n));
  await using a = new HostOf(server, 1);
  await using b = new HostOf(server, 2);
  await Promise.all([annotated(server, "node-1"), annotated(server, "node-2")]);
  await until("both to know each other", () => a.peers.size === 1 && b.peers.size === 1);
  server.nodes.annotate("node-3", annotationsOf(3));
  await until("the third", () => a.peers.size === 2);
  server.nodes.delete("node-3");
  await until("it to be gone", () => a.peers.size === 1);
  const [peer] = a.peers;
  t.is(peer?.subnets.v4, "10.244.2.0/24" as never);
  t.deepEqual(peer?.attributes, {
    type: "vxlan",
    v4: { vni: 1, mac: macOf(2) },
    v6: undefined,
  } as never);
});

test("both families have annotations of their own", async (t) => {
  await using server = await KubeApiServer.open();
  const podCIDRs = ["10.244.1.0/24", "fd00:10:244:1::/64"];
  server.nodes.create("node-1", { spec: { podCIDR: podCIDRs[0], podCIDRs } });
  await using host = new HostOf(server);
  host.conf = dualConf;
  const { attributes } = hostOf(1);
  const v6 = { vni: 1, mac: macOf(61) };
  host.lease.become({
    ...hostOf(1),
    publicIp6: "2001:db8::1",
    attributes: { ...attributes, v6 },
  } as never);
  await annotated(server, "node-1");
  t.is(host.subnet, "10.244.1.0-24&fd00:10:244:1::-64");
  t.deepEqual(server.nodes.annotations("node-1"), {
    ...annotationsOf(1),
    "backend-v6-data": JSON.stringify({ VNI: 1, VtepMAC: macOf(61) }),
    "public-ipv6": "2001:db8::1",
  });
});

test("an administrator's address replaces the host's own, also later", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.annotate("node-1", { "public-ip-overwrite": "203.0.113.1" });
  await using host = new HostOf(server);
  await annotated(server, "node-1");
  const address = (ip: string) =>
    until(ip, () => server.nodes.annotations("node-1")["public-ip"] === ip);
  await address("203.0.113.1");
  server.nodes.annotate("node-1", { "public-ip-overwrite": "203.0.113.2" });
  await address("203.0.113.2");
  server.nodes.annotate("node-1", { "public-ip-overwrite": "no address" });
  await address("192.0.2.1");
  t.is(host.view.phase, "held");
});

test("another program's change of this host's annotations is put right, ever less often", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  const begun = performance.now();
  await using host = new HostOf(server);
  await annotated(server, "node-1");
  for (let round = 0; round < 3; round++) {
    server.nodes.annotate("node-1", { "public-ip": "198.51.100.1" });
    const isRight = (): boolean => server.nodes.annotations("node-1")["public-ip"] === "192.0.2.1";
    await until("the address to be put right", isRight);
  }
  // However slow the machine: 250 ms after the first write, then 500, then 1000.
  t.true(performance.now() - begun >= 1750);
  t.is(host.view.phase, "held");
});

test("a write that another one overtakes is decided anew", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  let beats = 3;
  server.onAnswered = (asked) => {
    // The kubelet's heartbeat comes between each reading of the Node and the write.
    if (asked.startsWith("PATCH") || beats-- <= 0) return;
    server.nodes.patch("node-1", { metadata: { annotations: { "example.org/beat": `${beats}` } } });
  };
  await using host = new HostOf(server);
  await annotated(server, "node-1");
  t.deepEqual(host.troubles, []);
});

test("a write names the version and the uid of the Node that it was decided for", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  const known = server.nodes.get("node-1")?.metadata;
  const sent: string[] = [];
  const store = new KubeNodes(clientOf(server), systemClock);
  await using host = new HostOf(
    server,
    1,
    {},
    {
      follow: (signal) => store.follow(signal),
      read: (name, signal) => store.read(name, signal),
      patch: (name, patch, signal) => {
        sent.push(JSON.stringify(patch));
        return store.patch(name, patch, signal);
      },
    },
  );
  await annotated(server, "node-1");
  t.is(host.view.phase, "held");
  const { metadata } = JSON.parse(sent[0] ?? "") as { metadata: typeof known };
  t.is(metadata?.resourceVersion, known?.resourceVersion);
  t.is(metadata?.uid, known?.uid);
});

for (const [what, create, trouble] of [
  ["has no Node", undefined, /no node node-1/],
  ["has no podCIDR", {}, /no podCIDR of the overlay's families/],
  ["has a podCIDR elsewhere", { spec: { podCIDR: "10.9.9.0/24" } }, /10\.9\.9\.0\/24 is not in/],
] as const)
  test(`a host that ${what} says so, and joins when it has one`, async (t) => {
    await using server = await KubeApiServer.open();
    if (create !== undefined) server.nodes.create("node-1", create);
    await using host = new HostOf(server);
    await host.is("acquiring");
    await until("the trouble", () => host.troubles.some((text) => trouble.test(text)));
    server.nodes.delete("node-1");
    server.nodes.create("node-1", spec(1));
    await host.is("held");
    await until("no trouble", () => host.troubles.length === 0);
    t.is(host.subnet, "10.244.1.0-24");
  });

test("a configuration that is missing, broken or refused is said, and the last good one stays", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  const says = (text: RegExp) => until(String(text), () => host.troubles.some((x) => text.test(x)));
  host.conf = undefined;
  await says(/net-conf\.json, the overlay's configuration, is not there/);
  host.conf = netConf;
  await host.is("held");
  host.conf = "{";
  await says(/is no JSON object/);
  t.is(host.view.phase, "held");
  host.refusal = new PodnetError("OVERLAY_CONFLICT", "It overlaps");
  host.conf = dualConf;
  await says(/It overlaps/);
  t.is(host.view.config?.v6, undefined);
});

test("a missing right is said with the API server's words, and the host keeps its podCIDR", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  const account = { user: "podnetd" };
  const rights = allRights.filter((right) => !right.startsWith("patch"));
  server.accounts.set("token-1", { ...account, rights });
  await using host = new HostOf(server);
  await host.is("held");
  const text = await until("the trouble", () =>
    host.troubles.find((each) => each.includes("cannot patch resource")),
  );
  t.regex(text, /RBAC/);
  server.accounts.set("token-1", { ...account, rights: allRights });
  await annotated(server, "node-1");
  await until("no trouble", () => host.troubles.length === 0);
});

test("a Node that is gone, or has another podCIDR, takes nothing from pods that run", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  await host.is("held");
  server.nodes.delete("node-1");
  await host.is("lost");
  t.is(host.subnet, "10.244.1.0-24");
  server.nodes.create("node-1", spec(7));
  await host.is("draining");
  // Whatever else happens meanwhile.
  server.nodes.create("node-2", spec(2));
  server.nodes.annotate("node-2", annotationsOf(2));
  await until("the other host", () => host.peers.size === 1);
  t.is(host.view.phase, "draining");
  t.is(host.subnet, "10.244.1.0-24");
  host.drained[0]?.();
  await host.is("held");
  t.is(host.subnet, "10.244.7.0-24");
  await annotated(server, "node-1");
});

test("a host that leaves is drained first, and takes its annotations away", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.annotate("node-1", { "public-ip-overwrite": "203.0.113.1" });
  await using host = new HostOf(server);
  host.lease.ready();
  await until("the condition", () => conditionOf(server, "node-1")?.status === "False");
  host.lease.leave();
  await host.is("draining");
  t.is(server.nodes.annotations("node-1")["kube-subnet-manager"], "true");
  host.drained[0]?.();
  await host.is("left");
  // What an administrator wrote stays.
  t.deepEqual(server.nodes.annotations("node-1"), { "public-ip-overwrite": "203.0.113.1" });
  await until("the condition", () => conditionOf(server, "node-1")?.status === "True");
  host.lease.join();
  await annotated(server, "node-1");
  t.is(conditionOf(server, "node-1")?.status, "True");
  host.lease.ready();
  await until("the condition", () => conditionOf(server, "node-1")?.status === "False");
});

test("a leave takes away what was on its way to the Node, too", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  const [begun, goes] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const store = new (class extends KubeNodes {
    override async patch(...args: Parameters<KubeNodes["patch"]>) {
      begun.resolve();
      await goes.promise;
      return super.patch(...args);
    }
  })(clientOf(server), systemClock);
  await using host = new HostOf(server, 1, {}, store);
  await begun.promise;
  host.lease.leave();
  await until("the drain", () => host.drained.length === 1);
  host.drained[0]?.();
  await new Promise((resolve) => setTimeout(resolve, 50));
  const { phase } = host.view;
  goes.resolve();
  t.is(phase, "draining");
  await host.is("left");
  t.deepEqual(server.nodes.annotations("node-1"), {});
});

test("a leave that is called off keeps the subnet", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  await annotated(server, "node-1");
  host.lease.leave();
  await host.is("draining");
  host.lease.join();
  await host.is("held");
  t.is(host.subnet, "10.244.1.0-24");
  t.is(server.nodes.annotations("node-1")["kube-subnet-manager"], "true");
});

test("a podnetd that starts while it leaves drains what an earlier one had", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.annotate("node-1", annotationsOf(1));
  await using host = new HostOf(server);
  host.lease.leave();
  await host.is("draining");
  await until("the drain", () => host.drained.length === 1);
  host.drained[0]?.();
  await host.is("left");
  t.deepEqual(server.nodes.annotations("node-1"), {});
});

test("without the condition, a Node's status is left alone", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server, 1, { writesCondition: false });
  host.lease.ready();
  await annotated(server, "node-1");
  t.is(conditionOf(server, "node-1"), undefined);
  t.is(host.view.phase, "held");
});

test("while the API server is away, the hosts are as they were", async (t: ExecutionContext) => {
  const server = await KubeApiServer.open();
  for (const n of [1, 2]) server.nodes.create(`node-${n}`, spec(n));
  server.nodes.annotate("node-2", annotationsOf(2));
  await using host = new HostOf(server);
  await until("the peer", () => host.peers.size === 1);
  await annotated(server, "node-1");
  await server[Symbol.asyncDispose]();
  await until("it to be missed", () => host.view.staleSince !== undefined);
  t.is(host.view.phase, "held");
  t.is(host.peers.size, 1);
});
