import test from "ava";
import type { Machine } from "../lab/lab.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { dualOverlay, hostGwOverlay, openHosts } from "../lab/hosts.ts";
import { batch, underlayAddress, underlayAddress6 } from "../lab/underlay.ts";
import { until } from "../lab/until.ts";

type Three = [OverlayLabHost, OverlayLabHost, OverlayLabHost];

const dualHostGw = { ...dualOverlay, Backend: { Type: "host-gw" } };
const dualDirect = { ...dualOverlay, Backend: { Type: "vxlan", DirectRouting: true } };

/**
 * Host 1 runs podnetd, host 2 flannel's stand-in, and host 3 is a machine on the link that has no
 * lease.
 */
const openSite = (overlay: Readonly<Record<string, unknown>>, firewall: string) =>
  openHosts({
    kinds: ["podnet", "flannel", "flannel"],
    overlay,
    podnetConfig: `firewall = "${firewall}"\ndrift_s = 1`,
  });

/** The machine's routes to host 1's subnets, as flannel's host-gw has them. */
const routeTo = (foreign: Machine, subnet: string, subnet6: string | undefined): Promise<void> =>
  batch(foreign, [
    `route replace ${networkOf(subnet)} via ${underlayAddress(1)}`,
    ...(subnet6 === undefined
      ? []
      : [`route replace ${networkOf(subnet6)} via ${underlayAddress6(1)}`]),
  ]);

const networkOf = (gateway: string): string =>
  gateway.replace(/\.1\/24$/, ".0/24").replace(/::1\/64$/, "::/64");

for (const firewall of ["iptables", "nftables"] as const)
  for (const [name, overlay] of [
    ["host-gw", dualHostGw],
    ["vxlan with DirectRouting", dualDirect],
  ] as const)
    test.serial(
      `${firewall}, ${name}: another host reaches containers from its own address, a machine without a lease does not`,
      async (t) => {
        await using lab = await openSite(overlay, firewall);
        const [podnet, peer, foreign] = lab.hosts as Three;
        await Promise.all([podnet.start(), peer.start()]);
        const { subnet, subnet6 } = await podnet.joined();
        const inside = await podnet.container();
        const peers = await peer.container();
        await routeTo(foreign.machine, subnet, subnet6);
        for (const to of [inside.address, inside.address6 ?? ""]) {
          await until(
            `host 2 to reach ${to}`,
            () => peer.machine.reaches(to),
            20_000,
            () => podnet.log(),
          );
          t.false(await foreign.machine.reaches(to), `a machine without a lease, to ${to}`);
        }
        // The other direction: this host's own packets to the peer's containers, and pods' as
        // before.
        t.true(await podnet.machine.reaches(peers.address));
        t.true(await inside.machine.reaches(peers.address));
        t.true(await peers.machine.reaches(inside.address));
      },
    );

test.serial(
  "alloc: another host of the network reaches containers from its own address",
  async (t) => {
    await using lab = await openHosts({
      kinds: ["podnet", "podnet", "flannel"],
      overlay: { Network: "10.77.0.0/16", Backend: { Type: "alloc" } },
    });
    const [podnet, peer, foreign] = lab.hosts as Three;
    await Promise.all([podnet.start(), peer.start()]);
    const { subnet } = await podnet.joined();
    await peer.joined();
    const { address } = await podnet.container();
    // What a cloud's router would do.
    await routeTo(peer.machine, subnet, undefined);
    await routeTo(foreign.machine, subnet, undefined);
    await until("host 2 to reach it", () => peer.machine.reaches(address), 20_000);
    t.false(await foreign.machine.reaches(address));
  },
);

test.serial(
  "hosts that come and go may send and may not, and what others take out comes back",
  async (t) => {
    await using lab = await openSite(hostGwOverlay, "iptables");
    const [podnet, peer, third] = lab.hosts as Three;
    await Promise.all([podnet.start(), peer.start()]);
    const { subnet } = await podnet.joined();
    const { address } = await podnet.container();
    await routeTo(third.machine, subnet, undefined);
    await until("host 2 to reach it", () => peer.machine.reaches(address), 20_000);
    t.false(await third.machine.reaches(address));
    await third.start();
    await until("host 3 to reach it", () => third.machine.reaches(address), 20_000);
    // Another program empties the set, then takes the whole table away.
    for (const command of [
      "flush set inet podnet_hosts hosts4",
      "delete table inet podnet_hosts",
    ]) {
      await podnet.machine.run("nft", command);
      await until(
        `host 3 to reach it after "${command}"`,
        () => third.machine.reaches(address),
        20_000,
      );
    }
    // Its lease ends: it is a machine without one again, its address and routes are as before.
    await third.end();
    await lab.etcd.etcdctl("del", `${lab.prefix}/subnets/${(await lab.leaseOf(third)) ?? ""}`);
    await until(
      "host 3 not to reach it any more",
      async () => !(await third.machine.reaches(address)),
      20_000,
    );
    t.true(await peer.machine.reaches(address));
  },
);
