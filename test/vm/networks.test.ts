import test, { type ExecutionContext } from "ava";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { labAddresses } from "../lab/lab.ts";
import { execIn } from "./daemon-rig.ts";
import { openPortsRig, type PortsRig } from "./ports-rig.ts";

let rig: PortsRig;
/** Everything there was before the networks. */
let atFirst: string;

/** Addresses of IPv6 on the way to the lab's internet, alongside those of the lab (RFC 3849). */
const six = {
  hostUplink: "2001:db8:1::2",
  uplinkGateway: "2001:db8:1::1",
  internet: "2001:db8:3::10",
} as const;

const dual = {
  name: "dual",
  subnets: [{ cidr: "10.20.0.0/24" }, { cidr: "fd00:20::/64" }],
  // What they are where guests are to ask the gateway: test/vm/names.test.ts.
  resolver: false,
  dns: ["192.0.2.53"],
  dnsSearch: ["dual.example"],
};
const iso = {
  name: "iso",
  subnets: [{ cidr: "10.21.0.0/24" }, { cidr: "fd00:21::/64" }],
  isolated: true,
};

// One daemon serves this whole file, and its networks and pods live from test to test.
test.serial.before(async () => {
  rig = await openPortsRig("quarantine_s = 0\n");
  const { host, internet } = rig.lab;
  await host.run("ip", "address", "add", `${six.hostUplink}/64`, "dev", "wan0", "nodad");
  await internet.run("ip", "address", "add", `${six.uplinkGateway}/64`, "dev", "eth0", "nodad");
  await internet.run("ip", "address", "add", `${six.internet}/128`, "dev", "lo");
  await host.run("ip", "route", "add", "default", "via", six.uplinkGateway);
  atFirst = await rig.inventory();
  await rig.client.networks.create({ spec: dual });
  await rig.client.networks.create({ spec: iso });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function podOn(name: string, ...networks: readonly string[]): Promise<Pod> {
  const interfaces = networks.map((network) => ({ network }));
  const { pod } = await rig.client.pods.create({ spec: { name, interfaces } });
  if (pod === undefined) throw new Error("No pod");
  return pod;
}

/** Addresses of each interface, without lengths. */
const addresses = (pod: Pod): string[][] =>
  pod.interfaces.map((each) => each.addresses.map((prefix) => prefix.replace(/\/.*/, "")));

/** Whether one ping out of a pod is answered. */
async function reaches(from: string, to: string): Promise<boolean> {
  const program = to.includes(":") ? "ping6" : "ping";
  return (await execIn(rig.client, from, program, "-c", "1", "-W", "2", to)).code === 0;
}

const refusal = async (t: ExecutionContext, work: Promise<unknown>): Promise<PodnetError> => {
  const error = await t.throwsAsync(work);
  if (!(error instanceof PodnetError)) throw error;
  return error;
};

test.serial(
  "pods of a network of both families have an address of each, and both work everywhere",
  async (t) => {
    const [a, b] = await Promise.all([podOn("a", "dual"), podOn("b", "dual")]);
    const found = [a, b].map((pod) => addresses(pod)[0] as [string, string]);
    for (const [four, six] of found) {
      t.regex(four, /^10\.20\.0\.[23]$/);
      t.regex(six, /^fd00:20::[23]$/);
      await rig.lab.host.ping(four);
      await rig.lab.host.ping(six);
    }
    for (const [pod, other] of [
      ["a", found[1]],
      ["b", found[0]],
    ] as const)
      for (const to of ["10.20.0.1", "fd00:20::1", ...(other ?? [])])
        t.true(await reaches(pod, to), `${pod} to ${to}`);
    const { ok, checks } = await rig.client.pods.verify({ idOrName: "a" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  },
);

test.serial(
  "what leaves a network comes from the host by NAT, and from the pod without, by both families",
  async (t) => {
    const { internet } = rig.lab;
    await rig.machine(internet).serve("tcp", 80, "outside");
    const asker = await rig.pod("a");
    const { pod } = await rig.client.pods.get({ idOrName: "a" });
    const own = addresses(pod as Pod)[0];
    /** What the internet takes the pod for, by each family. */
    const seen = (): Promise<string[]> =>
      Promise.all(
        [labAddresses.internet, six.internet].map(async (to) =>
          (await asker.ask("tcp", to, 80)).replace(/^outside /, ""),
        ),
      );
    const host = [labAddresses.hostUplink, six.hostUplink];
    t.deepEqual(await seen(), host, "the internet knows no way back to a pod");
    await rig.client.networks.update({ spec: { ...dual, masquerade: false } });
    for (const silence of await seen()) t.regex(silence, /timed out/);
    const back = [
      ["10.20.0.0/24", labAddresses.hostUplink],
      ["fd00:20::/64", six.hostUplink],
    ] as const;
    for (const [subnet, via] of back) await internet.run("ip", "route", "add", subnet, "via", via);
    t.deepEqual(await seen(), own, "now it knows one");
    t.false((await rig.client.node.diff({})).drift);
    await rig.client.networks.update({ spec: dual });
    t.deepEqual(await seen(), host, "NAT does not go by the way back");
    for (const [subnet] of back) await internet.run("ip", "route", "del", subnet);
  },
);

test.serial(
  "a guest reaches on the host what its network opens, and is refused everything else at once",
  async (t) => {
    const host = rig.machine(rig.lab.host);
    for (const protocol of ["tcp", "udp"]) await host.serve(protocol, 2222, "host");
    const [asker, neighbour] = [await rig.pod("a"), await rig.pod("b")];
    const gateways = ["10.20.0.1", "fd00:20::1"];
    const answers = (protocol: string, from = asker): Promise<string[]> =>
      Promise.all(gateways.map((to) => from.ask(protocol, to, 2222)));
    const closed = async (): Promise<void> => {
      t.deepEqual(await answers("tcp"), Array(2).fill("connect: Connection refused"));
      const why = /^(answer|send): (Host is unreachable|Permission denied)$/;
      for (const said of await answers("udp")) t.regex(said, why);
      t.is(await asker.ask("tcp", labAddresses.hostUplink, 2222), "connect: Connection refused");
      t.true(await reaches("a", labAddresses.hostUplink));
    };
    await closed();
    const metrics = await rig.lab.host.run(
      "curl",
      "-s",
      "--unix-socket",
      rig.daemon.socket,
      "http://podnet/metrics",
    );
    const refused =
      /^podnet_pod_refused_packets_total\{pod="a",interface="eth0",kind="host"\} [1-9]/m;
    t.regex(metrics, refused);
    const opened = { ...dual, hostAccess: ["udp/2222", "tcp/2220-2225"] };
    const { plan } = await rig.client.networks.update({ spec: opened, planOnly: true });
    t.is(plan.filter((line) => line.includes("host_ports")).length, 1, plan.join("\n"));
    await closed();
    const { network } = await rig.client.networks.update({ spec: opened });
    t.deepEqual(network?.hostAccess, ["tcp/2220-2225", "udp/2222"]);
    for (const from of [asker, neighbour])
      for (const protocol of ["tcp", "udp"])
        for (const said of await answers(protocol, from)) t.regex(said, /^host /, protocol);
    t.regex(await asker.ask("tcp", labAddresses.hostUplink, 2222), /^host /);
    t.false((await rig.client.node.diff({})).drift);
    await rig.restart("kill");
    for (const said of await answers("tcp")) t.regex(said, /^host /, "after a restart");
    await rig.client.networks.update({ spec: dual });
    await closed();
  },
);

test.serial("the name servers and search domains of a network arrive in its guests", async (t) => {
  const { output } = await execIn(rig.client, "a", "cat", "/etc/resolv.conf");
  t.is(output, "nameserver 192.0.2.53\nsearch dual.example\n");
});

test.serial(
  "pods of an isolated network reach its gateway and not each other, until it is isolated no more",
  async (t) => {
    const [c, d] = await Promise.all([podOn("c", "iso"), podOn("d", "iso")]);
    const [toC = [], toD = []] = [c, d].map((pod) => addresses(pod)[0]);
    const ways = [...toD.map((to) => ["c", to]), ...toC.map((to) => ["d", to])] as [
      string,
      string,
    ][];
    t.is(ways.length, 4, "both ways, by both families");
    const oneWay = async (from: string, to: string, tries: number): Promise<boolean> => {
      for (let nth = 1; nth <= tries; nth++) if (await reaches(from, to)) return true;
      return false;
    };
    const between = (tries = 1): Promise<boolean[]> =>
      Promise.all(ways.map(([from, to]) => oneWay(from, to, tries)));
    const [none, all] = [false, true].map((each) => ways.map(() => each));
    for (const gateway of ["10.21.0.1", "fd00:21::1"]) t.true(await reaches("c", gateway));
    for (const [, to] of ways) await rig.lab.host.ping(to);
    t.deepEqual(await between(), none);
    // Equal pods, equal addresses: only the isolation was in the way.
    await rig.client.networks.update({ spec: { ...iso, isolated: false } });
    // A guest that has just asked in vain for a neighbour gives up only seconds later, and asks
    // anew.
    t.deepEqual(await between(4), all);
    const { plan } = await rig.client.networks.update({ spec: iso, planOnly: true });
    t.is(plan.filter((line) => /^port .* isolated/.test(line)).length, 2, plan.join("\n"));
    t.deepEqual(await between(), all, "a plan changes nothing");
    await rig.client.networks.update({ spec: iso });
    t.deepEqual(await between(), none);
    t.false((await rig.client.node.diff({})).drift);
  },
);

test.serial(
  "a pod on two networks works on both, with one default route of each family",
  async (t) => {
    const e = await podOn("e", "iso", "dual");
    const [[onIso = ""] = [], [onDual = "", onDual6 = ""] = []] = addresses(e);
    for (const address of [onIso, onDual, onDual6]) await rig.lab.host.ping(address);
    t.true(await reaches("b", onDual));
    t.true(await reaches("e", "10.21.0.1"));
    t.true(await reaches("e", "fd00:20::1"));
    t.false(await reaches("c", onIso), "isolated on that side");
    const routes = async (family: string): Promise<string[]> => {
      const { output } = await execIn(rig.client, "e", "ip", family, "route", "show", "default");
      return output.split("\n").filter((line) => line.startsWith("default"));
    };
    t.regex((await routes("-4")).join("|"), /^default via 10\.21\.0\.1 dev eth0[^|]*$/);
    t.regex((await routes("-6")).join("|"), /^default via fd00:21::1 dev eth0[^|]*$/);
  },
);

test.serial(
  "an MTU below that of an interface is refused, a larger one is the ports' at once",
  async (t) => {
    const smaller = await refusal(t, rig.client.networks.update({ spec: { ...iso, mtu: 1400 } }));
    t.is(smaller.code, "MTU_OUT_OF_RANGE");
    await rig.client.networks.update({ spec: { ...iso, mtu: 1600 } });
    const links = await rig.lab.host.run("ip", "-o", "link", "show", "master", "pn-iso");
    t.is(links.match(/ mtu 1600 /g)?.length, 3, links);
    t.true(await reaches("c", "10.21.0.1"));
    await rig.client.networks.update({ spec: iso });
  },
);

test.serial("a restart of podnetd keeps networks, pods and what separates them", async (t) => {
  const shown = await rig.client.networks.list({});
  await rig.restart("kill");
  t.deepEqual(await rig.client.networks.list({}), shown);
  t.false((await rig.client.node.diff({})).drift);
  const { pods } = await rig.client.pods.list({});
  const address = (name: string): string =>
    addresses(pods.find((pod) => pod.name === name) as Pod)[0]?.[0] ?? "";
  for (const name of ["a", "b", "c", "d", "e"]) await rig.lab.host.ping(address(name));
  t.true(await reaches("a", address("b")));
  t.false(await reaches("c", address("d")));
});

test.serial(
  "a network in use is not deleted nor given other subnets, and says who uses it",
  async (t) => {
    const used = await refusal(t, rig.client.networks.delete({ name: "iso" }));
    t.is(used.code, "NETWORK_IN_USE");
    t.regex(used.message, /pods c, d, e$/);
    const moved = { ...dual, subnets: [{ cidr: "10.30.0.0/24" }, { cidr: "fd00:20::/64" }] };
    const held = await refusal(t, rig.client.networks.update({ spec: moved }));
    t.is(held.code, "NETWORK_IN_USE");
    t.regex(held.message, /10\.20\.0\.0\/24/);
    t.true(await reaches("a", "10.20.0.1"));
    // What is held may not be reserved either.
    const reserved = {
      ...dual,
      subnets: [{ ...dual.subnets[0], reserved: ["10.20.0.2-10.20.0.9"] }, dual.subnets[1]],
    };
    const taken = await refusal(t, rig.client.networks.update({ spec: reserved as typeof dual }));
    t.is(taken.code, "ADDRESS_IN_USE");
  },
);

test.serial(
  "automatic addresses come from the ranges, never from what is reserved; others can be asked for",
  async (t) => {
    const [four, six] = dual.subnets;
    const subnets = [
      { ...four, ranges: ["10.20.0.100-10.20.0.101", "10.20.0.200"], reserved: ["10.20.0.100"] },
      { ...six, ranges: ["fd00:20::ff00/120"] },
    ];
    await rig.client.networks.update({ spec: { ...dual, subnets } as typeof dual });
    const spec = (name: string) => ({ name, interfaces: [{ network: "dual" }] });
    const planned = async (name: string): Promise<string> => {
      const { plan } = await rig.client.pods.create({ spec: spec(name), planOnly: true });
      return plan?.sections.flatMap(({ lines }) => lines).join("\n") ?? "";
    };
    t.regex(await planned("f"), /10\.20\.0\.101\/24 fd00:20::ff/);
    const f = await podOn("f", "dual");
    t.is(addresses(f)[0]?.[0], "10.20.0.101");
    await rig.lab.host.ping("10.20.0.101");
    t.regex(await planned("g"), /10\.20\.0\.200\/24/);
    await rig.client.pods.delete({ idOrName: "f" });
  },
);

test.serial("without their pods the networks go, and nothing is left of either", async (t) => {
  for (const idOrName of ["a", "b", "c", "d", "e"]) await rig.client.pods.delete({ idOrName });
  for (const name of ["iso", "dual"]) t.true((await rig.client.networks.delete({ name })).existed);
  // But for the empty chains that the kernel keeps once rules of IPv6 were in them.
  const left = (await rig.changes(atFirst)).filter((line) => !/^\+ ip6tables-nft [*:C]/.test(line));
  t.deepEqual(left, []);
});
