import test, { type ExecutionContext } from "ava";
import { labAddresses } from "../lab/lab.ts";
import { addressOf } from "./daemon-rig.ts";
import { openPortsRig, type Peer, type PortsRig, portsOf, six } from "./ports-rig.ts";

type Who = "lan" | "host" | "neighbour" | "far" | "web";

const { hostOnLan, hostUplink, lan } = labAddresses;
const [gateway4, gateway6] = ["192.168.123.1", "fd00:123::1"];

/** Who asks what where, and how the answer begins; from outside it ends with who asked. */
const reached: readonly (readonly [Who, string, string, number, string])[] = [
  ["lan", "tcp", hostOnLan, 8080, `tcp80 ${lan}`],
  ["lan", "tcp", six.hostOnLan, 8080, `tcp80 ${six.lan}`],
  ["lan", "udp", hostOnLan, 5353, `udp53 ${lan}`],
  ["lan", "udp", six.hostOnLan, 5353, `udp53 ${six.lan}`],
  ["lan", "tcp", hostUplink, 8080, `tcp80 ${lan}`],
  ["lan", "tcp", hostOnLan, 9001, `tcp91 ${lan}`],
  ["lan", "tcp", hostOnLan, 8082, `tcp82 ${lan}`],
  ["host", "tcp", hostOnLan, 8080, "tcp80 "],
  ["host", "tcp", hostUplink, 8080, "tcp80 "],
  ["host", "tcp", gateway4, 8080, "tcp80 "],
  ["host", "tcp", "127.0.0.1", 8080, "tcp80 "],
  ["host", "tcp", "127.0.0.1", 8081, "tcp81 "],
  ["host", "tcp", "::1", 8080, "tcp80 "],
  ["host", "tcp", "::1", 8081, "tcp81 "],
  ["host", "tcp", six.hostOnLan, 8080, "tcp80 "],
  ["host", "tcp", gateway6, 8080, "tcp80 "],
  ["host", "tcp", hostOnLan, 8082, "tcp82 "],
  ["host", "udp", hostOnLan, 5353, "udp53 "],
  ["host", "udp", "127.0.0.1", 5353, "udp53 "],
  ["host", "udp", "::1", 5353, "udp53 "],
  ["host", "udp", six.hostOnLan, 5353, "udp53 "],
  ["host", "tcp", "127.0.0.1", 9001, "tcp91 "],
  ...(["neighbour", "far", "web"] as const).flatMap((who) => [
    [who, "tcp", hostOnLan, 8080, "tcp80 "] as const,
    [who, "tcp", gateway4, 8080, "tcp80 "] as const,
    [who, "udp", hostOnLan, 5353, "udp53 "] as const,
    [who, "tcp", six.hostOnLan, 8080, "tcp80 "] as const,
    [who, "udp", six.hostOnLan, 5353, "udp53 "] as const,
    [who, "tcp", hostOnLan, 9001, "tcp91 "] as const,
  ]),
];

/** What stays shut, each alongside who gets through to the very same socket. */
const shut: readonly (readonly [Who, string, string, number, string, (typeof reached)[number]])[] =
  [
    [
      "lan",
      "tcp",
      hostOnLan,
      8081,
      "published on loopback alone",
      ["host", "tcp", "127.0.0.1", 8081, "tcp81 "],
    ],
    [
      "host",
      "tcp",
      hostUplink,
      8082,
      "published at another address",
      ["host", "tcp", hostOnLan, 8082, "tcp82 "],
    ],
    ["lan", "tcp", hostOnLan, 83, "not published", ["host", "tcp", "web4", 83, "tcp83 "]],
    ["lan", "tcp", hostOnLan, 80, "the pod's own port", ["host", "tcp", "web4", 80, "tcp80 "]],
    ["lan", "tcp", "web4", 80, "routed to the pod directly", ["host", "tcp", "web4", 80, "tcp80 "]],
    ["lan", "tcp", "web4", 83, "routed to the pod directly", ["host", "tcp", "web4", 83, "tcp83 "]],
    ["lan", "udp", "web4", 53, "routed to the pod directly", ["host", "udp", "web4", 53, "udp53 "]],
    ["lan", "tcp", "web6", 80, "routed to the pod directly", ["host", "tcp", "web6", 80, "tcp80 "]],
    ["lan", "tcp", "web6", 83, "routed to the pod directly", ["host", "tcp", "web6", 83, "tcp83 "]],
    ["lan", "udp", "web6", 53, "routed to the pod directly", ["host", "udp", "web6", 53, "udp53 "]],
    [
      "lan",
      "tcp",
      "web4",
      8080,
      "the host's port at the pod",
      ["lan", "tcp", hostOnLan, 8080, "tcp80 "],
    ],
  ];

/**
 * That published ports are reached from everywhere they should be, and nothing else is, with one
 * firewall driver.
 */
export function testReach(driver: "iptables" | "nftables"): void {
  let rig: PortsRig;
  const peers = new Map<Who, Peer>();
  const addresses = new Map<string, string>();
  const peer = (who: Who): Peer => peers.get(who) as Peer;
  const ask = ([who, protocol, at, port]: readonly [Who, string, string, number, ...unknown[]]) =>
    peer(who).ask(protocol, addresses.get(at) ?? at, port);

  test.serial.before(async () => {
    rig = await openPortsRig(`firewall = "${driver}"\n[network]\ncidr6 = "fd00:123::/64"\n`);
    const { client, lab } = rig;
    await client.networks.create({
      spec: { name: "blue", subnets: [{ cidr: "10.88.0.0/24" }, { cidr: "fd00:88::/64" }] },
    });
    const ports = portsOf(
      "*:8080:80",
      "*:5353:53/udp",
      "8081:81",
      `${hostOnLan}:8082:82`,
      "*:9000-9002:90-92",
    );
    const { pod } = await client.pods.create({ spec: { name: "web", ports } });
    addresses.set("web4", addressOf(pod));
    addresses.set("web6", pod?.interfaces[0]?.addresses[1]?.replace(/\/.*/, "") ?? "");
    await client.pods.create({ spec: { name: "neighbour" } });
    await client.pods.create({ spec: { name: "far", interfaces: [{ network: "blue" }] } });
    for (const name of ["web", "neighbour", "far"] as const) peers.set(name, await rig.pod(name));
    peers.set("lan", rig.machine(lab.lan));
    peers.set("host", rig.machine(lab.host));
    for (const port of [80, 81, 82, 83, 91]) await peer("web").serve("tcp", port, `tcp${port}`);
    await peer("web").serve("udp", 53, "udp53");
  });

  test.serial.after.always(async () => {
    await rig?.[Symbol.asyncDispose]();
  });

  for (const row of reached) {
    const [who, protocol, at, port, begins] = row;
    test.serial(`${driver}: ${who} reaches ${at} port ${port}/${protocol}`, async (t) => {
      const said = await ask(row);
      if (who === "lan") t.is(said, begins);
      else t.is(said.slice(0, begins.length), begins, said);
    });
  }

  for (const row of shut) {
    const [who, protocol, at, port, why, control] = row;
    test.serial(
      `${driver}: ${who} does not reach ${at} port ${port}/${protocol}: ${why}`,
      async (t) => {
        t.regex(await ask(row), /refused|timed out|[Nn]o route|unreachable|reset/);
        await holds(t, control);
      },
    );
  }

  async function holds(t: ExecutionContext, control: (typeof reached)[number]): Promise<void> {
    const said = await ask(control);
    t.true(said.startsWith(control[4].trim()), said);
  }

  test.serial(
    `${driver}: a port is published and unpublished while the pod runs, and the others go on`,
    async (t) => {
      const at = ["lan", "tcp", hostOnLan, 8083] as const;
      t.regex(await ask(at), /refused/);
      const { ports } = await rig.client.pods.publishPorts({
        idOrName: "web",
        ports: portsOf("*:8083:83", "83"),
      });
      t.is(await ask(at), `tcp83 ${lan}`);
      const chosen = ports[1]?.hostPort ?? 0;
      t.true(chosen > 0);
      t.regex(await ask(["host", "tcp", "::1", chosen]), /^tcp83 /);
      await rig.client.pods.unpublishPorts({ idOrName: "web", ports: portsOf("*:8083:83") });
      t.regex(await ask(at), /refused/);
      t.regex(await ask(["host", "tcp", "127.0.0.1", 8083]), /refused/);
      t.regex(await ask(["host", "tcp", "::1", chosen]), /^tcp83 /);
      t.is(await ask(["lan", "tcp", hostOnLan, 8080]), `tcp80 ${lan}`);
    },
  );

  test.serial(
    `${driver}: after a restart of podnetd all is as before, chosen ports too`,
    async (t) => {
      const portsNow = async (): Promise<unknown> =>
        (await rig.client.pods.get({ idOrName: "web" })).pod?.ports.map(
          ({ hostIp, hostPort }) => `${hostIp} ${hostPort}`,
        );
      const before = await portsNow();
      for (const how of ["stop", "kill"] as const) {
        await rig.restart(how);
        t.deepEqual(await portsNow(), before);
        t.is(await ask(["lan", "tcp", hostOnLan, 8080]), `tcp80 ${lan}`);
        t.regex(await ask(["host", "tcp", "::1", 8081]), /^tcp81 /);
        t.regex(await ask(["lan", "tcp", hostOnLan, 8081]), /refused/);
      }
    },
  );
}
