import test from "ava";
import type { Ip } from "../../core/address.ts";
import type { HostAccess } from "../../core/host-access.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  blueNetwork,
  bridgeNf,
  dualNetwork,
  blueAddresses,
  dualPod,
  podMac,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";

const twoDrivers = driversUnderTest.filter(({ name }) => name !== "iptables-legacy");

const { signal } = new AbortController();

const opening = (hostAccess: HostAccess, more: Partial<NetworkFragment> = {}): NetworkFragment =>
  dualNetwork({ hostAccess, ...more });

const tcp = (first: number, last = first) => ({ protocol: "tcp", first, last }) as const;
const udp = (first: number, last = first) => ({ protocol: "udp", first, last }) as const;

/** Refused, and not left waiting: by a reset, or by an ICMP error that forbids it. */
const refused = { tcp: /^(refused|EACCES)$/, udp: /^E(HOSTUNREACH|ACCES)$/ } as const;

/** A host that serves ports 53 and 2200 to 2202 to everybody, with two pods. */
async function openSite(
  options: (typeof driversUnderTest)[number]["options"],
  network: NetworkFragment = dualNetwork(),
): Promise<FirewallSite> {
  const site = await FirewallSite.open(options);
  await site.ensure(network);
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  for (const protocol of ["tcp", "udp"] as const)
    await site.serve("host", protocol, 53, 2200, 2201, 2202);
  return site;
}

/** The addresses of the host: of the bridge, and of its link to the outside. */
const everyAddress = ([4, 6] as const).flatMap((family) => [
  hostAddresses[family].gateway,
  hostAddresses[family].outer,
]);
const gateways = [hostAddresses[4].gateway, hostAddresses[6].gateway];
const outers = [hostAddresses[4].outer, hostAddresses[6].outer];

/**
 * The answers that a machine gets from these addresses. (By UDP the host answers pods from the
 * gateway: who asked another address does not take that for an answer.)
 */
async function reaches(
  site: FirewallSite,
  port: number,
  addresses: readonly string[],
  machine = "pod2",
): Promise<Set<string>> {
  const found = new Set<string>();
  for (const address of addresses)
    for (const protocol of ["tcp", "udp"] as const) {
      const said = await site.ask(machine, protocol, address, port);
      if (said.endsWith(` ${port}`)) found.add(`${protocol} open`);
      else found.add(`${protocol} ${refused[protocol].test(said) ? "refused" : said}`);
    }
  return found;
}

const open = new Set(["tcp open", "udp open"]);
const closed = new Set(["tcp refused", "udp refused"]);

for (const { name, options } of driversUnderTest)
  for (const nf of name === "nftables" ? (["0", "1"] as const) : (["1"] as const))
    test.serial(
      `${name}, bridge-nf ${nf}: of the host guests reach names and ping, and else are refused at once`,
      async (t) => {
        await using site = await openSite(options);
        bridgeNf(nf);
        t.deepEqual(await reaches(site, 2200, everyAddress), closed);
        t.deepEqual(await reaches(site, 2200, outers, "outside"), open, "others reach it");
        t.deepEqual(await reaches(site, 53, gateways), open, "names");
        t.deepEqual(await reaches(site, 53, outers), closed, "names of others");
        for (const address of everyAddress)
          await site.inside("pod2", "ping", "-c1", "-W2", address);
        const shown = await site.inside("host", "ip", "-o", "-6", "address", "show", "hyper0");
        const [, local = ""] = /inet6 (fe80\S+)\/64/.exec(shown) ?? [];
        const linkLocal = [`${local}%eth0`];
        t.deepEqual(await reaches(site, 2200, linkLocal), closed, "link-local");
        await site.inside("pod2", "ping", "-c1", "-W2", `${linkLocal[0]}`);
        // What the host begins is answered, and what it routes is none of its own.
        for (const protocol of ["tcp", "udp"] as const) {
          await site.serve("pod2", protocol, 2300);
          await site.serve("outside", protocol, 2300);
        }
        t.deepEqual(await reaches(site, 2300, [podAddress(2, 4), podAddress(2, 6)], "host"), open);
        t.deepEqual(await reaches(site, 2300, [outsideAddress[4], outsideAddress[6]]), open);
        t.deepEqual(await reaches(site, 2300, [podAddress(2, 4), podAddress(2, 6)], "pod3"), open);
      },
    );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: a network opens ports of the host to its guests, and closes them for connections there are`,
    async (t) => {
      await using site = await openSite(options);
      const change = async (network: NetworkFragment): Promise<void> => {
        await site.ensure(network);
        t.deepEqual(await site.host.diff(network, signal), []);
      };
      await change(opening([tcp(2200), tcp(2202, 2300), udp(2200), udp(2202, 2300)]));
      for (const port of [2200, 2202]) {
        t.deepEqual(await reaches(site, port, gateways), open);
        for (const address of outers)
          t.regex(await site.ask("pod2", "tcp", address, port), new RegExp(` ${port}$`), address);
      }
      t.deepEqual(await reaches(site, 2201, everyAddress), closed, "one between them");
      await change(opening([tcp(2201)]));
      const half = new Set(["tcp open", "udp refused"]);
      t.deepEqual(await reaches(site, 2201, gateways), half, "of one protocol");
      t.deepEqual(await reaches(site, 2200, everyAddress), closed, "what it had before");
      await change(opening("all"));
      t.deepEqual(await reaches(site, 2202, gateways), open, "all");
      t.regex(await site.talk("pod2", hostAddresses[4].gateway, 2200), / 2200$/);
      await change(opening([]));
      t.notRegex(await site.heard("pod2", 2200), / 2200$/, "a flow that there was");
      // An address of the host that guests were given to ask for names.
      await change(opening([], { dns: outers as Ip[] }));
      for (const address of outers)
        t.regex(await site.ask("pod2", "tcp", address, 53), / 53$/, "where the network has names");
      for (const address of outers)
        t.is(await site.ask("pod2", "tcp", address, 2200), "refused", address);
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: what one network opens of the host is closed to the next, and ports of others are not judged`,
    async (t) => {
      await using site = await openSite(options, opening([tcp(2200), udp(2200)]));
      await site.ensure(blueNetwork());
      await site.bluePod();
      t.deepEqual(await reaches(site, 2200, gateways), open);
      const blueGateways = ["10.88.0.1", "fd00:88::1"];
      t.deepEqual(
        await reaches(site, 2200, blueGateways, "blue"),
        open,
        "a port that is not podnet's",
      );
      await site.ensure({
        ...dualPod(9),
        ports: dualPod(9).ports.map((port) => ({
          ...port,
          tap: "tapblue" as typeof port.tap,
          bridge: blueNetwork().bridge,
          guestMac: podMac(200),
          guestAddresses: blueAddresses,
        })),
      });
      t.deepEqual(await reaches(site, 2200, everyAddress, "blue"), closed, "a pod of the other");
      t.deepEqual(await reaches(site, 2200, blueGateways, "blue"), closed, "by its own gateway");
      t.deepEqual(await reaches(site, 53, blueGateways, "blue"), open);
      t.deepEqual(await reaches(site, 53, gateways, "blue"), closed, "names of the other network");
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: published ports, and what root translates to the host, are reached from pods as before`,
    async (t) => {
      await using site = await openSite(options);
      const ports = ([4, 6] as const).map((family) =>
        published(3, family, { hostPort: 8080, podPort: 2300 }),
      );
      await site.serve("pod3", "tcp", 2300);
      await site.ensure(dualPod(3, ports));
      for (const address of everyAddress)
        t.regex(await site.ask("pod2", "tcp", address, 8080), / 2300$/, address);
      t.deepEqual(await reaches(site, 2201, everyAddress), closed);
      await site.inside(
        "host",
        "nft",
        "table inet others { chain pre { type nat hook prerouting priority -100; fib daddr type local tcp dport 9999 redirect to :2201; }; }",
      );
      for (const address of everyAddress)
        t.regex(await site.ask("pod2", "tcp", address, 9999), / 2201$/, address);
      t.deepEqual(await reaches(site, 2201, everyAddress), closed, "by its own number");
    },
  );

test.serial("what is taken away of the guard of the host is found, and comes back", async (t) => {
  const driver = driversUnderTest.find(({ name }) => name === "nftables");
  if (driver === undefined) throw new Error("There is no such driver");
  await using site = await openSite(driver.options, opening([tcp(2200), udp(2200)]));
  const network = opening([tcp(2200), udp(2200)]);
  for (const harm of [
    ["flush", "chain", "inet", "podnet_guard", "host"],
    ["flush", "chain", "inet", "podnet_guard", "input"],
    ["flush", "set", "inet", "podnet_guard", "host_closed"],
    ["flush", "set", "inet", "podnet_guard", "host_ports"],
    ["flush", "set", "inet", "podnet_guard", "dns4"],
    ["flush", "chain", "bridge", "podnet", "port"],
  ]) {
    await site.inside("host", "nft", ...harm);
    t.not((await site.host.diff(network, signal)).length, 0, harm.join(" "));
    await site.ensure(network);
    t.deepEqual(await site.host.diff(network, signal), [], harm.join(" "));
    t.deepEqual(await reaches(site, 2200, gateways), open, harm.join(" "));
    t.deepEqual(await reaches(site, 2201, gateways), closed, harm.join(" "));
    t.deepEqual(await reaches(site, 53, gateways), open, harm.join(" "));
  }
});
