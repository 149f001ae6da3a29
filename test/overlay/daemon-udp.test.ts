import { once } from "node:events";
import path from "node:path";
import type { Readable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { run } from "../../linux/processes/command.ts";
import type { EtcdMember } from "../lab/etcd-member.ts";
import { type HostsLab, meet, openHosts, reaches } from "../lab/hosts.ts";
import type { Machine } from "../lab/lab.ts";
import { type Container, startContainer } from "../lab/overlay-container.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { batch } from "../lab/underlay.ts";
import { until } from "../lab/until.ts";
import { execIn } from "../vm/daemon-rig.ts";

// Two podnetd on an overlay of the backend udp, and a host that has flannel's method in C.

const full = process.env["PODNET_TEST_FULL"] === "1";
const top = path.resolve(import.meta.dirname, "../..");
const node = path.join(top, "scripts/node");
const echo = path.join(top, "test/peers/echo-stream.ts");
const overlay = { Network: "10.77.0.0/16", Backend: { Type: "udp" } };
const loopSubnet = "10.77.250";

let lab: HostsLab;
let one: OverlayLabHost;
let two: OverlayLabHost;
const containers = new Map<OverlayLabHost, Container>();
const containerOf = (host: OverlayLabHost): Container => containers.get(host) as Container;

test.serial.before(async () => {
  const both = { ...overlay, EnableIPv6: true, IPv6Network: "fd00:77::/48" };
  lab = await openHosts({
    kinds: ["podnet", "podnet", "flannel"],
    overlay: both,
    ...(full ? { podnetConfig: 'factory = "template"\n' } : {}),
  });
  [one, two] = lab.hosts as unknown as [OverlayLabHost, OverlayLabHost];
  await Promise.all([one.start(), two.start()]);
});
test.serial.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

const links = ({ machine }: OverlayLabHost): Promise<string> => machine.run("ip", "-br", "link");

/** A number that podnetd reports its tunnel. */
async function counted({ podnetd, machine }: OverlayLabHost, name: string): Promise<number> {
  const { socket } = podnetd;
  const shown = await machine.run("curl", "-s", "--unix-socket", socket, "http://podnet/metrics");
  const line = shown
    .split("\n")
    .find((each) =>
      each.startsWith(`podnet_overlay_tunnel_${name.replace("{", '{overlay="flannel",')}`),
    );
  return Number(line?.split(" ")[1]);
}

/** What one sends to the other, and gets back from it, is what it sent. */
async function passesWhole(from: Container, to: Container, mib: number): Promise<string> {
  const stdio = ["ignore", "pipe", "inherit"] as const;
  const serving = to.machine.spawn([node, echo, "serve", "5001"], { stdio: [...stdio] });
  try {
    await once(serving.stdout as Readable, "data");
    return await from.machine.run(node, echo, "ask", to.address, "5001", `${mib}`);
  } finally {
    serving.kill("SIGKILL");
  }
}

test.serial(
  "an overlay with IPv6 is refused with why, and taken when it has none any more",
  async (t) => {
    await until("it to be reported", async () =>
      /"udp" cannot be used on this host: it lacks a way for IPv6/.test(
        await one.podnetd.podnet("overlay"),
      ),
    );
    t.deepEqual([...(await lab.leases()).keys()], []);
    await lab.etcd.etcdctl("put", `${lab.prefix}/config`, JSON.stringify(overlay));
    for (const host of [one, two]) {
      t.like(await host.joined(), { network: "10.77.0.0/16", subnet6: undefined, mtu: 1472 });
      containers.set(host, await host.container());
    }
    t.notRegex(await one.podnetd.podnet("overlay"), /cannot be used/);
    // As flannel has it: no word of the backend.
    t.deepEqual(JSON.parse((await lab.leases()).get((await lab.leaseOf(one)) ?? "") ?? ""), {
      PublicIP: one.address,
      PublicIPv6: null,
    });
  },
);

test.serial(
  "pods of two podnetd reach each other both ways, with all of the MTU and in streams",
  async (t) => {
    const [a, b] = [containerOf(one), containerOf(two)];
    await meet([a, b]);
    const ping = (...words: string[]): Promise<string> =>
      a.machine.run("ping", "-n", "-c", "1", "-W", "5", "-M", "do", ...words, b.address);
    t.regex(await ping("-s", "1444"), /1452 bytes from .* ttl=60 /);
    await t.throwsAsync(ping("-s", "1445"), { message: /mtu=1472|too long/ });
    t.is(await passesWhole(a, b, 4), "same\n");
    t.is(await passesWhole(b, a, 4), "same\n");
    t.true((await counted(one, 'bytes_total{direction="sent"}')) > 8 << 20);
    t.is(await counted(one, 'dropped_total{reason="malformed"}'), 0);
    const script = `require("node:dgram").createSocket("udp4").send("x", 8285, "${one.address}", () => process.exit())`;
    await two.machine.run(node, "-e", script);
    await until(
      "the datagram that is no packet to be counted",
      async () => (await counted(one, 'dropped_total{reason="malformed"}')) === 1,
    );
    t.regex(
      await one.podnetd.podnet("overlay"),
      /flannel0 sent \d+ packets .* dropped 1 malformed/,
    );
  },
);

test.serial(
  "the tunnel ends with podnetd and is back with its next start, and what passed passes",
  async (t) => {
    const [a, b] = [containerOf(one), containerOf(two)];
    const { subnet } = await one.joined();
    await one.end("SIGKILL");
    await until("the device to go", async () => !(await links(one)).includes("flannel0"));
    t.false(await b.machine.reaches(a.address));
    await one.start();
    await meet([a, b]);
    t.is((await one.joined()).subnet, subnet);
    t.regex(await links(one), /^flannel0 /m);
    t.is(await passesWhole(b, a, 1), "same\n");
    t.deepEqual((await one.podnetd.podnet("overlay", "diff")).split("\n"), ["As planned", ""]);
  },
);

test.serial(
  "podnetd that starts again while etcd is away leads to the other hosts as it knew them, and says so",
  async (t) => {
    const [a, b] = [containerOf(one), containerOf(two)];
    const [member] = lab.etcd.members as [EtcdMember];
    // The last of what it learned has come a moment ago: a killed process writes nothing any more.
    await setTimeout(1500);
    await member.kill();
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await one.end(signal);
      t.false(await b.machine.reaches(a.address));
      await one.start();
      await until(
        "host 2 to be reached",
        () => a.machine.reaches(b.address),
        20_000,
        () => one.log(),
      );
      t.true(await b.machine.reaches(a.address));
      t.regex(
        await one.podnetd.podnet("overlay"),
        /etcd has not been heard since podnetd started: 1 other host is as it was at 20/,
      );
    }
    member.start();
    await member.ready();
    await until(
      "no such word",
      async () => !/has not been heard/.test(await one.podnetd.podnet("overlay")),
    );
    t.true(await a.machine.reaches(b.address));
  },
);

test.serial("a host with flannel's method in C is one of them", async (t) => {
  const [, , { machine, address }] = lab.hosts as [OverlayLabHost, OverlayLabHost, OverlayLabHost];
  const a = containerOf(one);
  const routes = await Promise.all(
    [one, two].map(async (host) => {
      const { subnet } = await host.joined();
      return [subnet.replace(/\.1\/24$/, ".0"), "24", host.address];
    }),
  );
  const program = path.join(lab.hosts[0]?.directory ?? "", "udp-loop");
  await run(["gcc", "-O2", path.join(top, "test/peers/udp-loop.c"), "-o", program]);
  const loop = machine.spawn(
    [program, "flannel0", address, "8285", `${loopSubnet}.0`, ...routes.flat()],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  try {
    await once(loop.stdout as Readable, "data");
    await using c = await loopContainer(machine);
    t.false(await c.machine.reaches(a.address), "no host has been notified of it");
    const key = `${lab.prefix}/subnets/${loopSubnet}.0-24`;
    await lab.etcd.etcdctl("put", key, JSON.stringify({ PublicIP: address, PublicIPv6: null }));
    for (const each of containers.values()) {
      await reaches(c, each.address);
      await reaches(each, c.address);
    }
    t.is(await passesWhole(a, c, 1), "same\n");
    t.is(await passesWhole(c, a, 1), "same\n");
  } finally {
    loop.kill("SIGKILL");
  }
});

/** A pod's stand-in on the host that has the loop, and the host's part of it. */
async function loopContainer(host: Machine): Promise<Container> {
  const gateway = `${loopSubnet}.1/24`;
  await batch(host, [
    "link add cni0 type bridge forward_delay 0",
    "link set cni0 up",
    `addr add ${gateway} dev cni0`,
    `addr add ${loopSubnet}.0/32 dev flannel0`,
    "link set flannel0 mtu 1472 up",
    "route add 10.77.0.0/16 dev flannel0",
  ]);
  await host.run("sysctl", "-qw", "net.ipv4.ip_forward=1");
  return await startContainer({ host, bridge: "cni0", gateway, gateway6: undefined, mtu: 1472 }, 0);
}

/** The tests above do it with a stand-in for a pod, in each run. */
const inFull = full ? test.serial : test.serial.skip;

inFull("a real pod has the tunnel's MTU and reaches the other host's", async (t) => {
  t.timeout(180_000);
  const client = connectPodnet({ socket: one.podnetd.socket });
  try {
    await client.pods.create({ spec: { name: "web" } });
    const inside = async (...words: string[]): Promise<string> =>
      (await execIn(client, "web", ...words)).output;
    t.regex(await inside("ip", "link", "show", "eth0"), /mtu 1472/);
    const { address } = containerOf(two);
    t.regex(await inside("ping", "-c", "1", "-W", "9", "-s", "1444", address), /ttl=60/);
    await client.node.down({});
  } finally {
    client.close();
  }
});
