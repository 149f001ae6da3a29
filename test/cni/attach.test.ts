import path from "node:path";
import test from "ava";
import { WatchPodsResponse_Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { End } from "../lab/firewall-site.ts";
import { addressOf } from "../vm/daemon-rig.ts";
import { create, eventually } from "../vm/standin-rig.ts";
import { bodyOf, type CniRig, joinCniRig, post } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async (t) => {
  await cni.gone(t);
});

const bare = (prefix: string): string => prefix.slice(0, prefix.indexOf("/"));
const hex = (byte: string): string => Number(byte).toString(16).padStart(2, "0");

test.serial(
  "a container reaches its gateway, another one, a pod, and the world; after DEL nothing",
  async (t) => {
    const [one, other] = [await cni.container(), await cni.container()];
    const added = await cni.done({ container: one });
    const address = bare(added.ips[0].address);
    const [bridge, link, guest] = added.interfaces;
    t.is(added.ips[0].gateway, "192.168.123.1");
    t.deepEqual([bridge.name, guest.name, guest.sandbox], ["hyper0", "eth0", one.path]);
    t.is(guest.mac, `0a:58:${address.split(".").map(hex).join(":")}`);
    t.deepEqual(await cni.links(), [link.name]);
    t.deepEqual(added.routes[0], { dst: "0.0.0.0/0", gw: "192.168.123.1" });
    const second = await cni.done({ container: other });
    const pod = await create(cni.rig.client, "web");
    for (const to of ["192.168.123.1", bare(second.ips[0].address), addressOf(pod), "203.0.113.10"])
      await one.ping(to);
    await other.ping(address);
    await cni.rig.client.pods.delete({ idOrName: "web" });
    for (const container of [one, other]) {
      t.is(await cni.done({ command: "DEL", container }), undefined);
      t.false(await container.reaches("192.168.123.1"));
    }
  },
);

test.serial(
  "ADD twice is refused and spoils nothing; another interface of the same container is another",
  async (t) => {
    const container = await cni.container();
    await cni.done({ container });
    const again = await cni.ask({ container });
    t.is(again.exit, 1);
    t.is(again.json.code, 105);
    t.regex(again.json.msg, /has "eth0" already/);
    await container.ping("192.168.123.1");
    const more = await cni
      .done({ container, ifName: "net1", config: { args: {} } })
      .catch(() => {});
    t.not(more, undefined);
    await cni.done({ command: "DEL", container });
    await cni.done({ command: "DEL", container, ifName: "net1" });
  },
);

test.serial(
  "DEL is repeatable: without a namespace, with one that is gone, of what never was, and of another configuration's",
  async (t) => {
    const container = await cni.container();
    await cni.done({ container });
    // What another configuration of the runtime made is not its to take.
    await cni.done({ command: "DEL", container, config: { name: "other" } });
    await container.ping("192.168.123.1");
    await cni.done({ command: "DEL", container, netns: "" });
    t.false(await container.reaches("192.168.123.1"));
    await cni.done({ command: "DEL", container, netns: "" });
    const lost = await cni.container();
    await cni.done({ container: lost });
    await cni.lose(lost);
    await cni.done({ command: "DEL", container: lost });
    await cni.done({ command: "DEL", container: lost, id: "never-was" });
  },
);

test.serial("an ADD that fails leaves nothing, and its DEL succeeds", async (t) => {
  const container = await cni.container();
  const refused = await cni.ask({ container, netns: "/run/netns/not-there" });
  t.is(refused.exit, 1);
  t.is(refused.json.code, 8);
  for (const [config, code] of [
    [{ network: "nowhere" }, 109],
    [{ runtimeConfig: { ips: ["10.1.2.3"] } }, 100],
    [{ runtimeConfig: { ips: ["192.168.123.1"] } }, 101],
    [{ runtimeConfig: { ipRanges: [[{ subnet: "10.9.0.0/24" }]] } }, 100],
    [{ mtu: 9000 }, 7],
  ] as const)
    t.is((await cni.ask({ container, config })).json.code, code, JSON.stringify(config));
  await cni.done({ command: "DEL", container });
  t.deepEqual(await cni.links(), []);
});

test.serial(
  "what a runtime asks for is honoured: address, MAC, MTU, ranges, names, rates",
  async (t) => {
    const container = await cni.container();
    const mac = "02:00:00:00:00:09";
    const asked = {
      mtu: 1400,
      runtimeConfig: {
        ips: ["192.168.123.77/24"],
        Mac: mac,
        DNS: { Servers: ["9.9.9.9"], Searches: ["example.org"] },
        bandwidth: { IngressRate: 8_000_000, IngressBurst: 4_294_967_295 },
      },
    };
    const added = await cni.done({ container, config: asked });
    t.is(added.ips[0].address, "192.168.123.77/24");
    t.deepEqual([added.interfaces[2].mac, added.interfaces[2].mtu], [mac, 1400]);
    t.deepEqual(added.dns, { nameservers: ["9.9.9.9"], search: ["example.org"] });
    t.regex(await container.run("ip", "link", "show", "eth0"), /mtu 1400.*\n.*02:00:00:00:00:09/);
    t.regex(
      await cni.rig.lab.host.run("tc", "qdisc", "show", "dev", added.interfaces[1].name),
      /tbf/,
    );
    const other = await cni.container();
    const taken = await cni.ask({
      container: other,
      config: { runtimeConfig: { ips: ["192.168.123.77"] } },
    });
    t.is(taken.json.code, 102);
    t.true(taken.json.msg.includes(container.name));
    t.is((await cni.ask({ container: other, config: { runtimeConfig: { mac } } })).json.code, 108);
    const ranges = [
      [{ subnet: "192.168.123.0/24", rangeStart: "192.168.123.90", rangeEnd: "192.168.123.91" }],
    ];
    const ranged = await cni.done({
      container: other,
      config: { runtimeConfig: { ipRanges: ranges } },
    });
    t.is(ranged.ips[0].address, "192.168.123.90/24");
    await cni.done({ command: "DEL", container });
    await cni.done({ command: "DEL", container: other });
  },
);

test.serial(
  "containers that wait at once for the last addresses to be free again get one each",
  async (t) => {
    const subnet = "192.168.123.0/24";
    const range = { subnet, rangeStart: "192.168.123.200", rangeEnd: "192.168.123.201" };
    const config = { runtimeConfig: { ipRanges: [[range]] } };
    const containers = await Promise.all([1, 2, 3, 4].map(() => cni.container()));
    const [first, second] = [containers.slice(0, 2), containers.slice(2)];
    const all = (command: string, of: typeof containers) =>
      Promise.all(of.map((container) => cni.done({ command, container, config })));
    await all("ADD", first);
    await all("DEL", first);
    const added = await all("ADD", second);
    const addresses: string[] = added.map(({ ips }) => ips[0].address);
    t.deepEqual(addresses.sort(), ["192.168.123.200/24", "192.168.123.201/24"]);
    await all("DEL", second);
  },
);

test.serial(
  "a published port leads into the container, from outside and from the host, until DEL; no other container can take it meanwhile",
  async (t) => {
    const [one, other] = [await cni.container(), await cni.container()];
    const portMappings = [{ HostPort: 8081, ContainerPort: 80, Protocol: "TCP", HostIP: "" }];
    const added = await cni.done({ container: one, config: { runtimeConfig: { portMappings } } });
    const { lab, client } = cni.rig;
    const serve = (): ReturnType<typeof one.spawn> =>
      one.spawn(["python3", "-c", server], { stdio: ["ignore", "pipe", "inherit"] });
    const served = serve();
    t.teardown(() => served.kill("SIGKILL"));
    await new Promise((resolve) => served.stdout?.once("data", resolve));
    const ask = (of: typeof lab.lan, at: string): Promise<string> =>
      of.run("python3", "-c", asker, at, "8081").then(
        (text) => text.trim(),
        () => "nothing",
      );
    t.is(await ask(lab.lan, "192.0.2.1"), "here");
    t.is(await ask(lab.host, "127.0.0.1"), "here");
    const taken = await cni.ask({ container: other, config: { runtimeConfig: { portMappings } } });
    t.is(taken.json.code, 106);
    t.true(taken.json.msg.includes(`container "${one.name}"`));
    const pod = client.pods.create({
      spec: { name: "p", ports: [{ hostIp: "*", hostPort: 8081, podPort: 1 }] },
    });
    await t.throwsAsync(pod, { message: /container "cn/ });
    await cni.done({ command: "DEL", container: one });
    t.is(await ask(lab.lan, "192.0.2.1"), "nothing");
    // The next one may have it at once.
    const next = await cni.done({ container: other, config: { runtimeConfig: { portMappings } } });
    t.not(next.ips[0].address, "");
    t.not(added.ips[0].address, "");
    await cni.done({ command: "DEL", container: other });
  },
);

const server = `
import socket, sys
s = socket.create_server(("", 80))
print("ready", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"here"); c.close()`;
const asker = `
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
print(s.recv(9).decode())`;

test.serial("CHECK knows a container that is as it was added from one that is not", async (t) => {
  const container = await cni.container();
  const prevResult = await cni.done({ container });
  const check = { command: "CHECK", container, config: { prevResult } };
  await cni.done(check);
  await container.run("ip", "addr", "flush", "dev", "eth0");
  const found = await cni.ask(check);
  t.is(found.json.code, 130);
  t.regex(found.json.details, /^VERIFY_MISMATCH: podnetd puts it right/);
  t.regex(found.json.msg, /address of eth0 is absent, should be 192\.168\.123/);
  t.is((await cni.ask({ ...check, id: "never-was" })).json.code, 3);
  await cni.done({ command: "DEL", container });
});

test.serial(
  "GC takes away what its runtime does not name, and leaves what others made",
  async (t) => {
    const [kept, stale, others] = [
      await cni.container(),
      await cni.container(),
      await cni.container(),
    ];
    await cni.done({ container: kept });
    await cni.done({ container: stale });
    await cni.done({ container: others, config: { name: "others" } });
    const valid = [{ containerID: kept.name, ifname: "eth0" }];
    await cni.done({
      command: "GC",
      container: kept,
      config: { "cni.dev/valid-attachments": valid },
    });
    await kept.ping("192.168.123.1");
    await others.ping("192.168.123.1");
    t.false(await stale.reaches("192.168.123.1"));
    await cni.done({ command: "DEL", container: kept });
    await cni.done({ command: "DEL", container: others, config: { name: "others" } });
  },
);

test.serial("STATUS says whether an ADD could be served, and VERSION what is spoken", async (t) => {
  const container = await cni.container();
  await cni.done({ command: "STATUS", container });
  t.is((await cni.ask({ command: "STATUS", container, config: { network: "no" } })).json.code, 50);
  const version = await cni.done({ command: "VERSION", container });
  t.true(version.supportedVersions.includes("0.4.0"));
});

test.serial(
  "OpenShift SDN's form is answered as its server answers, with the veth that its plugin made",
  async (t) => {
    const { lab } = cni.rig;
    const container = await cni.container();
    await lab.host.run(
      "ip",
      "link",
      "add",
      "vethab",
      "type",
      "veth",
      "peer",
      "name",
      "eth0",
      "netns",
      container.name,
    );
    const body = (command: string, more: object): string =>
      JSON.stringify({
        ...JSON.parse(bodyOf({ command, container, config: { cniVersion: "0.3.1" } })),
        ...more,
      });
    const added = await post(cni.socket, "/", body("ADD", { hostVeth: "vethab" }));
    t.is(added.status, 200);
    const { ips } = JSON.parse(added.text);
    await container.run("ip", "addr", "add", ips[0].address, "dev", "eth0");
    await container.run("ip", "link", "set", "eth0", "up");
    await container.ping("192.168.123.1");
    const again = await post(cni.socket, "/", body("ADD", { hostVeth: "vethab" }));
    t.is(again.status, 400);
    t.regex(again.text, /^Container .* already/);
    const ended = await post(cni.socket, "/", body("DEL", {}));
    t.deepEqual([ended.status, ended.text], [200, ""]);
    t.false(await container.reaches("192.168.123.1"));
  },
);

test.serial("what others change of a container's port is put back, and reported", async (t) => {
  const { lab, client, daemon } = cni.rig;
  const container = await cni.container();
  const added = await cni.done({ container });
  const link = added.interfaces[1].name;
  await lab.host.run("ip", "link", "set", link, "nomaster");
  const reported = await eventually(client, ({ text }) => text.includes(`container port ${link}`));
  t.regex(reported.text, /healed$/);
  await container.ping("192.168.123.1");
  t.is((await daemon.tryPodnet("diff")).exitCode, 0);
  await cni.done({ command: "DEL", container });
});

test.serial(
  "a container reaches on the host what its network opens, and is refused the rest",
  async (t) => {
    const { client, lab } = cni.rig;
    const subnets = [{ cidr: "10.77.0.0/24" }];
    await client.networks.create({ spec: { name: "blue", subnets } });
    const container = await cni.container();
    const { cursor } = await client.pods.list({});
    const added = await cni.done({ container, config: { network: "blue" } });
    const [host, inside] = [new End(lab.host.name), new End(container.name)];
    t.teardown(() => [host, inside].forEach((end) => end.end()));
    for (const protocol of ["tcp", "udp"] as const)
      await host.order({ do: "serve", protocol, port: 2222 });
    const ask = (protocol: "tcp" | "udp"): Promise<string> =>
      inside.order({ do: "ask", protocol, address: "10.77.0.1", port: 2222, waitMs: 1000 });
    t.is(await ask("tcp"), "refused");
    t.is(await ask("udp"), "EHOSTUNREACH");
    await container.ping("10.77.0.1");
    const { counts } = await client.cni.guard({ container: container.name });
    t.deepEqual(
      counts.map(({ interface: name, kind }) => `${name} ${kind}`),
      ["eth0 host"],
    );
    for (const id of ["", "never-was"])
      await t.throwsAsync(client.cni.guard({ container: id }), { code: "INVALID_ARGUMENT" });
    const asked = { container: container.name, destination: "10.77.0.1", port: 2222 };
    const path = await client.cni.trace(asked);
    t.is(`${path.verdict} ${path.steps.at(-1)?.rule}`, "deny host");
    let sent: Promise<string> | undefined;
    for await (const { event } of client.cni.traceLive(asked)) {
      if (event.case === "started") sent = ask("tcp");
      if (event.case === "packet") t.is(event.value.rules.at(-1)?.standsFor, "host");
    }
    t.is(await sent, "refused", "a packet came");
    for await (const { kind, text } of client.pods.watch({ after: cursor })) {
      if (kind !== WatchPodsResponse_Kind.GUARD) continue;
      t.regex(
        text,
        new RegExp(`^container ${container.name}, eth0 on blue: \\d+ packets to the host`),
      );
      break;
    }
    await client.networks.update({ spec: { name: "blue", subnets, hostAccess: ["tcp/2222"] } });
    t.is(await ask("tcp"), `${bare(added.ips[0].address)} 2222`);
    t.is(await ask("udp"), "EHOSTUNREACH");
    await cni.done({ command: "DEL", container });
    await cni.converged();
    await client.networks.delete({ name: "blue" });
  },
);

test.serial(
  "a container has no more connections than its share, and others have theirs",
  async (t) => {
    const { client, daemon } = cni.rig;
    const subnets = [{ cidr: "10.77.0.0/24" }];
    await client.networks.create({ spec: { name: "blue", subnets, connections: 512 } });
    const [one, other] = [await cni.container(), await cni.container()];
    for (const container of [one, other])
      await cni.done({ container, config: { network: "blue" } });
    await other.ping("10.77.0.1");
    const flows = path.join(import.meta.dirname, "../lab/flows.py");
    await one.run("python3", flows, "203.0.113.10", "700", "10000");
    t.false(await one.reaches("10.77.0.1"));
    t.true(await other.reaches("10.77.0.1"));
    await daemon.podnet("network", "update", "blue", "--connections", "2048");
    t.true(await one.reaches("10.77.0.1"));
    for (const container of [one, other]) await cni.done({ command: "DEL", container });
    await cni.converged();
    await client.networks.delete({ name: "blue" });
  },
);

test.serial("a network that containers are on is not deleted", async (t) => {
  const { networks } = cni.rig.client;
  await networks.create({ spec: { name: "blue", subnets: [{ cidr: "10.77.0.0/24" }] } });
  const container = await cni.container();
  const config = { network: "blue" };
  const added = await cni.done({ container, config });
  t.is(added.ips[0].gateway, "10.77.0.1");
  await t.throwsAsync(networks.delete({ name: "blue" }), { message: /is used by container cn/ });
  await cni.done({ command: "DEL", container });
  await cni.converged();
  await networks.delete({ name: "blue" });
});
