import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { overlayChangeText } from "../../network/overlay/change.ts";
import type { OverlayDesired, OverlaySide } from "../../network/model/overlay.ts";
import {
  noRules,
  openOverlayHosts,
  type OverlayHost,
  overlayOf,
  podAddress,
  podAddress6,
  vxlan,
} from "../lab/overlay.ts";

const { signal } = new AbortController();

const changesOf = async (host: OverlayHost, desired: OverlayDesired): Promise<readonly string[]> =>
  (await host.overlays.ensure(desired, signal)).changes.map(overlayChangeText);

const hostGw = { kind: "host-gw" } as const;

test.serial(
  "no peer has a route before the rules are written, however long that takes",
  async (t) => {
    const seen = { routes: "not asked" };
    const hosts: OverlayHost[] = [];
    await using lab = await openOverlayHosts(1, {
      ...noRules,
      ensure: async () => {
        // What is done at once would be there by then.
        await delay(500);
        seen.routes = (await hosts[0]?.run("ip route show proto 73")) ?? "";
        return [];
      },
    });
    const [host] = lab.hosts as [OverlayHost];
    hosts.push(host);
    const changes = await changesOf(
      host,
      overlayOf(1, { backend: hostGw, families: [4], peers: [2] }),
    );
    t.deepEqual(changes, ["route + 10.77.2.0/24 via 192.0.2.2 dev eth0"]);
    t.is(seen.routes, "");
  },
);

test.serial(
  "host-gw: routes alone, healed, swept, and refused for a foreign address",
  async (t) => {
    await using lab = await openOverlayHosts(2);
    const [host, other] = lab.hosts as [OverlayHost, OverlayHost];
    const families = [4, 6] as const;
    const desired = overlayOf(1, { backend: hostGw, families, peers: [2] });
    t.deepEqual(await changesOf(host, desired), [
      "route + 10.77.2.0/24 via 192.0.2.2 dev eth0",
      "route + fd00:77:0:2::/64 via 2001:db8:2::2 dev eth0",
    ]);
    await other.overlays.ensure(overlayOf(2, { backend: hostGw, families, peers: [1] }), signal);
    t.true(await host.reaches(podAddress(2)));
    t.true(await other.reaches(podAddress6(1)));
    await host.run("ip route del 10.77.2.0/24");
    t.false(await host.reaches(podAddress(2)));
    t.deepEqual(await changesOf(host, desired), ["route + 10.77.2.0/24 via 192.0.2.2 dev eth0"]);
    t.deepEqual(await changesOf(host, desired), []);
    t.true(await host.reaches(podAddress(2)));
    // A peer behind no link of ours holds up no other, and is reported.
    const far = {
      ...desired,
      sides: desired.sides.map((side) => ({
        ...side,
        peers: side.peers.flatMap((peer) => [
          {
            subnet: peer.subnet.replace(":2::", ":9::").replace("77.2.", "77.9.") as never,
            publicIp: (peer.publicIp.includes(":") ? "2001:db8:9::9" : "198.51.100.9") as never,
          },
          peer,
        ]),
      })),
    };
    await host.run("ip route flush proto 73");
    await host.run("ip -6 route flush proto 73");
    const outcome = await host.overlays.ensure(far, signal);
    t.deepEqual(
      outcome.failures.map(({ code, message }) => [code, message.split(":")[0]?.slice(0, 21)]),
      [
        ["NETLINK_FAILED", "Cannot replace route "],
        ["NETLINK_FAILED", "Cannot replace route "],
      ],
    );
    t.true(await host.reaches(podAddress(2)));
    t.true(await host.reaches(podAddress6(2)));
    // The network has another range, and one family less: what is of the former one goes.
    const side = desired.sides[0] as OverlaySide;
    const renumbered: OverlayDesired = {
      ...desired,
      sides: [
        { ...side, network: "10.78.0.0/16" as never, subnet: "10.78.1.0/24" as never, peers: [] },
      ],
    };
    const former = [
      "route - 10.77.2.0/24 via 192.0.2.2 dev eth0",
      "route - fd00:77:0:2::/64 via 2001:db8:2::2 dev eth0",
    ];
    const planned = await host.overlays.diff(renumbered, signal);
    t.deepEqual(planned.changes.map(overlayChangeText).toSorted(), former);
    t.deepEqual([...(await changesOf(host, renumbered))].toSorted(), former);
    t.deepEqual((await host.overlays.diff(renumbered, signal)).changes, []);
    await host.run("ip route add 10.79.2.0/24 via 192.0.2.2 proto 73");
    await host.run("ip route add 10.80.2.0/24 via 192.0.2.2 proto 74");
    const swept = await host.overlays.sweep([renumbered], signal);
    t.deepEqual(swept.map(overlayChangeText), ["route - 10.79.2.0/24 via 192.0.2.2 dev eth0"]);
    await host.run("ip addr add 192.0.2.77/24 dev lo");
    const foreign = { ...desired, sides: [{ ...side, publicIp: "192.0.2.77" as never }] };
    await t.throwsAsync(host.overlays.ensure(foreign, signal), {
      code: "OVERLAY_CONFLICT",
      message: /192\.0\.2\.77 to be an address of "eth0"/,
    });
    await t.throwsAsync(host.overlays.ensure({ ...desired, parent: "eth9" as never }, signal), {
      code: "NETLINK_FAILED",
      message: /"eth9"/,
    });
  },
);

test.serial(
  "direct routing: hosts on the link without the tunnel, others by it, as they move",
  async (t) => {
    await using lab = await openOverlayHosts(3);
    const [host, second, third] = lab.hosts as [OverlayHost, OverlayHost, OverlayHost];
    const direct = { ...vxlan, directRouting: true };
    // Host 3 is seen by way of host 2 alone.
    await host.run("ip route add 192.0.2.3/32 via 192.0.2.2");
    await host.overlays.ensure(overlayOf(1, { backend: direct }), signal);
    for (const each of [second, third])
      await each.overlays.ensure(overlayOf(each.n, { backend: direct }), signal);
    const routes = (): Promise<string> => host.run("ip -4 route show proto 73");
    t.regex(await routes(), /^10\.77\.2\.0\/24 via 192\.0\.2\.2 dev eth0/m);
    t.regex(await routes(), /^10\.77\.3\.0\/24 via 10\.77\.3\.0 dev flannel\.1 onlink/m);
    t.notRegex(await host.run("bridge fdb show dev flannel.1"), /192\.0\.2\.2 /);
    t.true(await host.reaches(podAddress(2)));
    t.true(await host.reaches(podAddress(3)));
    await host.run("ip route del 192.0.2.3/32");
    t.deepEqual(await changesOf(host, overlayOf(1, { backend: direct })), [
      "route + 10.77.3.0/24 via 192.0.2.3 dev eth0",
      "fdb - 02:00:00:00:04:03 dst 192.0.2.3 on flannel.1",
      "neighbour - 10.77.3.0 on flannel.1",
    ]);
    t.true(await host.reaches(podAddress(3)));
    // A backend that does nothing leaves nothing.
    await host.overlays.ensure(overlayOf(1, { backend: { kind: "none" } }), signal);
    t.is(await routes(), "");
    t.false(await host.reaches(podAddress(2)));
  },
);

test.serial(
  "what the host has of an overlay's addresses is reported; what is the overlay's own is not",
  async (t) => {
    await using lab = await openOverlayHosts(2);
    const [host] = lab.hosts as [OverlayHost];
    await host.overlays.ensure(overlayOf(1, { peers: [2] }), signal);
    await host.run("ip route add 10.66.0.0/16 via 192.0.2.2");
    const reported = async (network: string): Promise<string[]> => {
      const found = await host.overlays.overlaps("one", [network as never], "pod0" as never);
      return found.map((each) => each.with);
    };
    t.deepEqual(await reported("10.77.0.0/16"), []);
    t.deepEqual(await reported("192.0.0.0/16"), ['address 192.0.2.1/24 of "eth0"']);
    t.deepEqual(await reported("10.66.7.0/24"), ['route 10.66.0.0/16 by "eth0"']);
    t.deepEqual(await reported("10.0.0.0/8"), ['route 10.66.0.0/16 by "eth0"']);
  },
);
