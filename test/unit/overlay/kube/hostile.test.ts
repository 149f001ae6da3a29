import test from "ava";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "../../../lab/until.ts";
import { KubeApiServer } from "../../../peers/kube-api/server.ts";
import { annotationsOf } from "./fixtures.ts";
import { annotated, conditionOf, HostOf, spec } from "./host-of.ts";

// What other controllers, administrators and clusters do to a Node.

const flannels = {
  ...annotationsOf(1),
  "backend-data": JSON.stringify({ VNI: 1, VtepMAC: "02:00:00:00:f1:f1" }),
};
const condition = (status: string, reason: string) => ({
  status: { conditions: [{ type: "NetworkUnavailable", status, reason }] },
});

test("a host that has left leaves the Node to the flanneld that comes after it", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  host.lease.ready();
  await until("the condition", () => conditionOf(server, "node-1")?.status === "False");
  host.lease.leave();
  await host.is("draining");
  host.drained[0]?.();
  await host.is("left");
  t.is(conditionOf(server, "node-1")?.status, "True");
  server.nodes.annotate("node-1", flannels);
  server.nodes.patch("node-1", condition("False", "FlannelIsUp"), "status");
  // A later change shows that the ones before were seen.
  server.nodes.create("node-2", spec(2));
  server.nodes.annotate("node-2", annotationsOf(2));
  await until("the other host", () => host.lease.registry.get("nodes/node-2/10.244.2.0-24"));
  const writes = () => server.asked.filter((asked) => asked.startsWith("PATCH")).length;
  const before = writes();
  // Longer than the writer's first pauses.
  await delay(1500);
  t.is(writes(), before);
  t.deepEqual(server.nodes.annotations("node-1"), flannels);
  t.is(conditionOf(server, "node-1")?.status, "False");
  t.is(host.view.phase, "left");
  // Whoever joins again means it.
  host.lease.join();
  await until(
    "its own annotations",
    () => server.nodes.annotations("node-1")["backend-data"]?.includes("f1:f1") === false,
  );
});

test("a podnetd that starts after a leave does not take flanneld's annotations away", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.annotate("node-1", flannels);
  server.nodes.patch("node-1", condition("False", "FlannelIsUp"), "status");
  await using host = new HostOf(server);
  host.lease.leave();
  await host.is("left");
  await delay(500);
  t.deepEqual(host.drained, []);
  t.deepEqual(server.nodes.annotations("node-1"), flannels);
  t.is(conditionOf(server, "node-1")?.status, "False");
});

test("a leave says that there is no network although another program took the annotations", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  host.lease.ready();
  await until("the condition", () => conditionOf(server, "node-1")?.status === "False");
  host.lease.leave();
  await host.is("draining");
  const none = Object.keys(annotationsOf(1)).map((name) => [name, null]);
  server.nodes.annotate("node-1", Object.fromEntries(none) as never);
  await until("it to be seen", () => !host.lease.registry.get("nodes/node-1/10.244.1.0-24"));
  host.drained[0]?.();
  await until("the condition", () => conditionOf(server, "node-1")?.status === "True");
  t.deepEqual(server.nodes.annotations("node-1"), {});
});

test("a host that never joined says nothing of the network of another plugin", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.patch("node-1", condition("False", "CalicoIsUp"), "status");
  await using host = new HostOf(server);
  host.lease.leave();
  await host.is("left");
  await delay(500);
  t.is(conditionOf(server, "node-1")?.status, "False");
  t.false(server.asked.some((asked) => asked.startsWith("PATCH")));
});

test("an empty overwrite means none, and one that is no address is reported", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  server.nodes.annotate("node-1", {
    "public-ip-overwrite": "",
    "node-public-ip": "203.0.113.7",
  });
  await using host = new HostOf(server);
  const address = (ip: string) =>
    until(ip, () => server.nodes.annotations("node-1")["public-ip"] === ip);
  await address("203.0.113.7");
  t.deepEqual(host.troubles, []);
  server.nodes.annotate("node-1", { "public-ip-overwrite": "203.0.113.300" });
  const trouble = await until("the trouble", () =>
    host.troubles.find((text) => text.includes("203.0.113.300")),
  );
  t.regex(trouble, /annotation public-ip-overwrite of node node-1/);
  // The next source is taken meanwhile.
  await address("203.0.113.7");
  server.nodes.annotate("node-1", { "public-ip-overwrite": "203.0.113.8" });
  await address("203.0.113.8");
  await until("no trouble", () => host.troubles.length === 0);
  // Of the other family, or with what a terminal obeys.
  server.nodes.annotate("node-1", { "public-ip-overwrite": "2001:db8::1\u001b[2J" });
  await until("the trouble", () => host.troubles.length === 1);
  t.false(host.troubles.join("").includes("\u001b"));
});

test("a Node that is given this host's podCIDR while its pods still run is sent nothing of theirs", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("node-1", spec(1));
  await using host = new HostOf(server);
  await annotated(server, "node-1");
  server.nodes.delete("node-1");
  await host.is("lost");
  // Kubernetes gives a free podCIDR to whoever comes next.
  server.nodes.create("node-2", spec(1));
  server.nodes.annotate("node-2", annotationsOf(2));
  server.nodes.create("node-3", spec(3));
  server.nodes.annotate("node-3", annotationsOf(3));
  await until("the third", () => host.lease.registry.get("nodes/node-3/10.244.3.0-24"));
  t.is(host.lease.registry.get("nodes/node-2/10.244.1.0-24"), undefined);
  t.true(
    host.troubles.some((text) => /node-2/.test(text)),
    host.troubles.join("; "),
  );
  server.nodes.create("node-1", spec(7));
  await host.is("draining");
  t.is(host.lease.registry.get("nodes/node-2/10.244.1.0-24"), undefined);
  host.drained[0]?.();
  await host.is("held");
  await until("the second", () => host.lease.registry.get("nodes/node-2/10.244.1.0-24"));
  t.is(host.subnet, "10.244.7.0-24");
});
