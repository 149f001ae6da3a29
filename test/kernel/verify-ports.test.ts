import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";
import test from "ava";
import type { Cidr, Ip, IpPrefix } from "../../core/address.ts";
import { systemClock } from "../../core/clock.ts";
import type { PodPlan } from "../../daemon/pods/store/pod-plan.ts";
import type { PublishedPlan } from "../../daemon/published/published-plan.ts";
import type { Check } from "../../daemon/verify/check.ts";
import { compareRules } from "../../daemon/verify/compare-ports.ts";
import { hearPorts, hearRules } from "../../daemon/verify/query-port-sources.ts";
import { run } from "../../linux/processes/command.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import { ownNetns } from "../lab/netns.ts";
import { networkFragment, podFragment, publishedPort } from "../lab/network.ts";

// Rules are podnet's, written by each driver; what is said of them is said by programs that know
// nothing of podnet.

test.before(ownNetns);

const { signal } = new AbortController();
const words = (command: string): [string, ...string[]] =>
  command.split(" ") as [string, ...string[]];
const differing = (checks: readonly Check[]): string[] =>
  checks.filter(({ ok }) => !ok).map((c) => `${c.subject}: ${c.found} instead of ${c.wanted}`);

const network = networkFragment({
  gateways: ["192.168.123.1/24" as IpPrefix, "fd00:123::1/64" as IpPrefix],
  masquerade: ["192.168.123.0/24" as Cidr],
});
const six = {
  podIp: "fd00:123::2" as Ip,
  subnet: "fd00:123::/64" as Cidr,
  hostIp: "2001:db8::1" as Ip,
};
const published = [
  publishedPort(),
  publishedPort({ protocol: "udp", hostPort: 9000, podPort: 53, count: 3 }),
  publishedPort({ ...six, hostPort: 8443, podPort: 443 }),
  publishedPort({ ...six, protocol: "sctp", hostPort: 99, podPort: 99 }),
];
const pod = { ...podFragment(2), ports: [], published };

/** A change of the rules by another program, and what is seen of it. */
const inTable = (table: string) =>
  [
    [`nft delete element inet ${table} everywhere4 { 6 . 8080 }`, 0],
    [`nft flush chain inet ${table} prerouting`, 1],
    [`nft flush chain inet ${table} arriving`, 2],
    [`nft flush set inet ${table} own4`, 3],
  ] as const;
const harms = {
  iptables: [...inTable("podnet_published"), ["IPTABLES -t filter -F FORWARD", 2]],
  nftables: inTable("podnet"),
} as const;
const first = "every IPv4 address port 8080/tcp leads to: absent instead of 192.168.123.2 port 80";
const seen: readonly (readonly string[])[] = [
  [first],
  [
    first,
    "every IPv4 address port 9000-9002/udp leads to: absent instead of 192.168.123.2 port 53-55",
  ],
  [
    "192.168.123.2 port 80/tcp let in: no instead of yes",
    "192.168.123.2 port 53-55/udp let in: no instead of yes",
  ],
  [
    "192.168.123.2 port 80/tcp answers 192.168.123.0/24 by the host: no instead of yes",
    "192.168.123.2 port 53-55/udp answers 192.168.123.0/24 by the host: no instead of yes",
  ],
];

for (const { name, options } of driversUnderTest)
  test.serial(
    `what is published is found in the rules, and missed where it is not: ${name}`,
    async (t) => {
      const nft = options.firewall === "nftables";
      const table = nft ? "podnet" : "podnet_published";
      let gone = false;
      await using host = openHostNetwork({ ...options, chain: "HYPER", hostSeed: "test" });
      const look = async (): Promise<string[]> => {
        const { firewall } = await host.observe.facts(signal);
        const heard = await hearRules(firewall, signal, { four: true, six: true });
        if (heard === undefined) throw new Error("Nothing was heard of rules");
        // Where there is no table any more, the chains are all that is left to read.
        t.is(heard.source, nft || !gone ? "nft" : "iptables-save");
        return differing(compareRules(published, heard.source, heard.report));
      };
      const made = async (): Promise<void> => {
        await host.apply(network, signal);
        await host.apply(pod, signal);
      };
      await made();
      t.deepEqual(await look(), []);
      for (const [command, expected] of nft ? harms.nftables : harms.iptables) {
        await run(words(command.replace("IPTABLES", `iptables-${options.iptables}`)));
        const found = await look();
        for (const line of seen[expected] ?? [])
          t.true(found.includes(line), `${command}: ${found.join("\n")}`);
        await made();
        t.deepEqual(await look(), [], command);
      }
      await run(["nft", `delete element inet ${table} published6 { 6 . 2001:db8::1 . 8443 }`]);
      await run([
        "nft",
        `add element inet ${table} published6 { 6 . 2001:db8::1 . 8443 : fd00:123::9 . 443 }`,
      ]);
      t.deepEqual(
        (await look()).filter((line) => line.includes("8443")),
        [
          "2001:db8::1 port 8443/tcp leads to: fd00:123::9 port 443 instead of fd00:123::2 port 443",
        ],
      );
      await host.remove({ kind: "everything" }, signal);
      gone = true;
      t.is((await look()).length, 3 * published.length, "all of it is gone");
    },
  );

test.serial("a socket that holds a port is known by whose it is", async (t) => {
  const podIp = "192.168.123.2" as Ip;
  const entry = (
    protocol: "tcp" | "udp",
    hostPort: number,
    ...hostIps: string[]
  ): PublishedPlan => ({
    protocol,
    hostPort,
    podPort: 80,
    count: 1,
    at: hostIps.map((hostIp) => ({ hostIp: hostIp as Ip, podIp })),
  });
  const plan = {
    interfaces: [],
    published: [entry("tcp", 7001, "127.0.0.1", "::1"), entry("udp", 7002, "0.0.0.0")],
  } as unknown as PodPlan;
  const look = async (): Promise<string[]> => differing(await hearPorts(plan, "off", signal));
  const lines = [
    "127.0.0.1 port 7001/tcp forwarded by: absent instead of podnetd",
    "::1 port 7001/tcp forwarded by: absent instead of podnetd",
    "0.0.0.0 port 7002/udp held by: absent instead of podnetd",
  ];
  t.deepEqual(await look(), lines);
  const servers = ["127.0.0.1", "::1"].map((host) => createServer().listen(7001, host));
  const udp = createSocket("udp4").bind(7002, "0.0.0.0");
  await Promise.all([...servers, udp].map((each) => once(each, "listening")));
  t.deepEqual(await look(), []);
  for (const server of servers) server.close();
  udp.close();
  t.deepEqual(await look(), lines);
  const code = 'require("node:dgram").createSocket("udp4").bind(7002, () => console.log("there"))';
  const controller = new AbortController();
  const other = run(["timeout", "20", process.execPath, "-e", code], { signal: controller.signal });
  const other2 = other.catch(() => {});
  const deadline = systemClock.monotonic() + 10_000;
  let found: string[] = [];
  while (systemClock.monotonic() < deadline && !found.some((line) => line.includes("another")))
    found = await look();
  t.is(found.at(-1), "0.0.0.0 port 7002/udp held by: another instead of podnetd");
  controller.abort();
  await other2;
});
