import test from "ava";
import { parseMac } from "../../core/address.ts";
import { overlayChangeText } from "../../network/overlay/change.ts";
import type { OverlayDesired, OverlayPeer } from "../../network/model/overlay.ts";
import {
  deltaOf,
  hostAddress,
  openOverlayHosts,
  type OverlayHost,
  overlayOf,
  peerOf,
  podAddress,
  podAddress6,
  vtepMac,
  vxlan,
} from "../lab/overlay.ts";

const { signal } = new AbortController();

const withPeers = (n: number, ...peers: OverlayPeer[]): OverlayDesired => {
  const desired = overlayOf(n);
  return { ...desired, sides: desired.sides.map((side) => ({ ...side, peers })) };
};

const withMac = (desired: OverlayDesired, mac: string): OverlayDesired => ({
  ...desired,
  sides: desired.sides.map((side) => ({
    ...side,
    ...(side.vtep === undefined ? {} : { vtep: { ...side.vtep, mac: parseMac(mac) } }),
  })),
});

const changesOf = async (host: OverlayHost, desired: OverlayDesired): Promise<readonly string[]> =>
  (await host.overlays.ensure(desired, signal)).changes.map(overlayChangeText);

test.serial(
  "pods of three hosts reach each other over both families, from data alone",
  async (t) => {
    await using lab = await openOverlayHosts(3);
    const families = [4, 6] as const;
    const [first, second, third] = lab.hosts as [OverlayHost, OverlayHost, OverlayHost];
    t.false(await first.reaches(podAddress(2)), "nothing leads there yet");
    for (const host of lab.hosts) {
      const made = await host.overlays.ensure(overlayOf(host.n, { families }), signal);
      t.deepEqual([made.failures, made.refused], [[], []]);
      // What fits: 1500 less the longer headers of IPv6.
      t.is(made.mtu, 1430);
      t.deepEqual(
        [...made.macs],
        [
          [4, parseMac(vtepMac(host.n, 4))],
          [6, parseMac(vtepMac(host.n, 6))],
        ],
      );
      t.deepEqual(await changesOf(host, overlayOf(host.n, { families })), [], "twice is once");
    }
    for (const [from, to] of [
      [first, 2],
      [second, 1],
      [third, 2],
      [first, 3],
    ] as const) {
      t.true(await from.reaches(podAddress(to)), `${from.n} to ${to}`);
      t.true(await from.reaches(podAddress6(to)), `${from.n} to ${to}, IPv6`);
    }
    // The host itself sends from its own end, and the whole of a large packet fits.
    await first.run(`ping -n -c 1 -W 1 ${podAddress(2)}`);
    await first.pod(`ping -n -c 1 -W 1 -M do -s 1422 ${podAddress(2)}`).catch(() => t.fail("1450"));
    await first
      .pod(`ping -n -c 1 -W 1 -M do -s 1382 ${podAddress6(2)}`)
      .catch(() => t.fail("1430"));
    const shown = await first.run("ip -d link show flannel.1");
    t.regex(
      shown,
      /vxlan id 1 local 192\.0\.2\.1 dev eth0 srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum/,
    );
    t.regex(shown, /alias podnet:overlay:default/);
    t.regex(
      await first.run("ip -o -4 address show dev flannel.1"),
      / 10\.77\.1\.0\/32 scope global/,
    );
    t.regex(
      await first.run("ip route show 10.77.2.0/24"),
      /^10\.77\.2\.0\/24 via 10\.77\.2\.0 dev flannel\.1 proto 73 onlink/,
    );
    t.regex(
      await first.run("ip neigh show 10.77.2.0"),
      /10\.77\.2\.0 dev flannel\.1 lladdr 02:00:00:00:04:02 PERMANENT proto 73/,
    );
    t.regex(
      await first.run("bridge fdb show dev flannel.1"),
      /02:00:00:00:04:02 dst 192\.0\.2\.2 self permanent/,
    );
    t.regex(await first.run("ip -o link show flannel-v6.1"), / mtu 1430 /);
    t.is((await first.run("cat /proc/sys/net/ipv6/conf/flannel.1/accept_ra")).trim(), "0");
  },
);

test.serial(
  "each kind of drift is healed by another look, and the device has its MAC again",
  async (t) => {
    await using lab = await openOverlayHosts(2);
    const [host, other] = lab.hosts as [OverlayHost, OverlayHost];
    const desired = overlayOf(1, { peers: [2], families: [4, 6] });
    await host.overlays.ensure(desired, signal);
    await other.overlays.ensure(overlayOf(2, { peers: [1], families: [4, 6] }), signal);
    const route = "10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink";
    const drifts: readonly (readonly [command: string, healed: readonly string[]])[] = [
      ["ip route del 10.77.2.0/24", [`route + ${route}`]],
      ["ip route replace 10.77.2.0/24 via 192.0.2.9 proto 73", [`route + ${route}`]],
      [
        "ip route add 10.77.9.0/24 via 192.0.2.9 proto 73",
        ["route - 10.77.9.0/24 via 192.0.2.9 dev eth0"],
      ],
      [
        "ip route add 10.77.2.0/24 via 192.0.2.9 proto 73 metric 7",
        ["route - 10.77.2.0/24 via 192.0.2.9 dev eth0"],
      ],
      [
        "ip neigh del 10.77.2.0 dev flannel.1",
        ["neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1"],
      ],
      [
        "ip neigh replace 10.77.2.0 lladdr 02:00:00:00:04:99 dev flannel.1",
        ["neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1"],
      ],
      [
        "ip neigh add 10.77.8.0 lladdr 02:00:00:00:04:08 dev flannel.1",
        ["neighbour - 10.77.8.0 on flannel.1"],
      ],
      [
        "bridge fdb del 02:00:00:00:04:02 dev flannel.1",
        ["fdb + 02:00:00:00:04:02 dst 192.0.2.2 on flannel.1"],
      ],
      [
        "bridge fdb replace 02:00:00:00:04:02 dev flannel.1 dst 192.0.2.9 self permanent",
        ["fdb + 02:00:00:00:04:02 dst 192.0.2.2 on flannel.1"],
      ],
      [
        "bridge fdb add 02:00:00:00:04:08 dev flannel.1 dst 192.0.2.8 self permanent",
        ["fdb - 02:00:00:00:04:08 dst 192.0.2.8 on flannel.1"],
      ],
      ["ip link set flannel.1 mtu 1300", ["link ~ flannel.1 mtu 1450"]],
      [
        "ip link set flannel.1 address 02:00:00:00:04:77",
        [
          // With the MAC of a device the kernel forgets its neighbours.
          "link ~ flannel.1 mac 02:00:00:00:04:01",
          "neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1",
        ],
      ],
      [
        // With the last address of a device the kernel forgets its neighbours and routes.
        "ip addr del 10.77.1.0/32 dev flannel.1",
        [
          "address + 10.77.1.0/32 on flannel.1",
          "neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1",
          `route + ${route}`,
        ],
      ],
      ["ip addr add 10.77.5.0/32 dev flannel.1", ["address - 10.77.5.0/32 on flannel.1"]],
      ["ip link set flannel.1 type vxlan learning", ["link ~ flannel.1 nolearning"]],
      ["ip link set flannel.1 alias mine", ["link ~ flannel.1 alias podnet:overlay:default"]],
    ];
    for (const [command, healed] of drifts) {
      await host.run(command);
      const { changes } = await host.overlays.diff(desired, signal);
      t.deepEqual(changes.map(overlayChangeText), healed, command);
      t.deepEqual(await changesOf(host, desired), healed, command);
      t.deepEqual(await changesOf(host, desired), [], command);
    }
    t.true(await host.reaches(podAddress(2)));
    const wholes = [
      ["ip link del flannel.1", false],
      ["ip link set flannel.1 down", false],
      ["ip link del flannel-v6.1", false],
    ] as const;
    for (const [command] of wholes) {
      await host.run(command);
      const six = command.includes("v6");
      t.false(await host.reaches(six ? podAddress6(2) : podAddress(2)), command);
      t.true((await changesOf(host, desired)).length > 0, command);
      t.true(await host.reaches(podAddress(2)), command);
      t.true(await host.reaches(podAddress6(2)), command);
      t.deepEqual(await changesOf(host, desired), [], command);
    }
    t.regex(await host.run("ip link show flannel.1"), /link\/ether 02:00:00:00:04:01/);
  },
);

test.serial("changes of peers: one comes, changes its MAC, its address, and goes", async (t) => {
  await using lab = await openOverlayHosts(3);
  const [host, second, third] = lab.hosts as [OverlayHost, OverlayHost, OverlayHost];
  for (const each of [second, third]) await each.overlays.ensure(overlayOf(each.n), signal);
  await host.overlays.ensure(overlayOf(1, { peers: [] }), signal);
  t.false(await host.reaches(podAddress(2)));
  let before = overlayOf(1, { peers: [] });
  const follow = async (desired: OverlayDesired): Promise<readonly string[]> => {
    const delta = deltaOf(before, desired);
    before = desired;
    const outcome = await host.overlays.follow(desired.name, delta, signal);
    const reported = outcome?.changes.map(overlayChangeText) ?? ["a look"];
    t.deepEqual(await changesOf(host, desired), [], "it is as if it had been looked at");
    return reported;
  };
  t.deepEqual(await follow(overlayOf(1, { peers: [2] })), [
    "neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1",
    "fdb + 02:00:00:00:04:02 dst 192.0.2.2 on flannel.1",
    "route + 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
  ]);
  t.true(await host.reaches(podAddress(2)));
  // Reborn with another MAC: the old entry does not stay.
  const reborn = { ...peerOf(2), vtepMac: parseMac("02:00:00:00:04:22") };
  t.deepEqual(await follow(withPeers(1, reborn)), [
    "neighbour + 10.77.2.0 lladdr 02:00:00:00:04:22 on flannel.1",
    "fdb + 02:00:00:00:04:22 dst 192.0.2.2 on flannel.1",
    "fdb - 02:00:00:00:04:02 dst 192.0.2.2 on flannel.1",
  ]);
  t.false(await host.reaches(podAddress(2)), "that host has its old MAC yet");
  await second.overlays.ensure(withMac(overlayOf(2), "02:00:00:00:04:22"), signal);
  t.true(await host.reaches(podAddress(2)));
  const moved = { ...reborn, publicIp: peerOf(3).publicIp };
  t.deepEqual(await follow(withPeers(1, moved)), [
    `fdb + 02:00:00:00:04:22 dst ${hostAddress(3)} on flannel.1`,
  ]);
  t.deepEqual(await follow(withPeers(1, peerOf(3))), [
    "route - 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
    "neighbour + 10.77.3.0 lladdr 02:00:00:00:04:03 on flannel.1",
    "fdb + 02:00:00:00:04:03 dst 192.0.2.3 on flannel.1",
    "route + 10.77.3.0/24 via 10.77.3.0 dev flannel.1 onlink",
    `fdb - 02:00:00:00:04:22 dst ${hostAddress(3)} on flannel.1`,
    "neighbour - 10.77.2.0 on flannel.1",
  ]);
  t.true(await host.reaches(podAddress(3)));
  // The device has gone meanwhile: what follows looks.
  await host.run("ip link del flannel.1");
  t.is(await host.overlays.follow("default", deltaOf(before, overlayOf(1)), signal), undefined);
  const healed = await host.overlays.ensure(overlayOf(1), signal);
  t.deepEqual(healed.failures, []);
  t.true(healed.changes.some(({ kind }) => kind === "create-device"));
  t.true(await host.reaches(podAddress(3)));
});

test.serial(
  "what is not ours stays: routes, neighbours, entries and a device of others",
  async (t) => {
    await using lab = await openOverlayHosts(2);
    const [host] = lab.hosts as [OverlayHost];
    const desired = overlayOf(1, { peers: [2] });
    await host.overlays.ensure(desired, signal);
    for (const command of [
      "ip link add other type vxlan id 9 local 192.0.2.1 dev eth0 dstport 4789 nolearning",
      "ip link set other up",
      "bridge fdb add 02:00:00:00:04:55 dev other dst 192.0.2.5 self permanent",
      "ip neigh add 10.77.55.0 lladdr 02:00:00:00:04:55 dev other",
      "ip route add 10.77.55.0/24 dev other",
      "ip route add 10.88.0.0/16 via 192.0.2.2",
      "ip route add 10.77.66.0/24 via 192.0.2.2 proto 4",
      "ip route add 10.99.0.0/16 via 192.0.2.2 proto 73",
      "bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 192.0.2.7 self permanent",
      "bridge fdb add 02:00:00:00:04:66 dev flannel.1 dst 192.0.2.6 self dynamic",
      "bridge fdb add 02:00:00:00:04:67 dev flannel.1 dst 192.0.2.6 port 4789 self permanent",
      "ip neigh add 172.16.0.9 lladdr 02:00:00:00:04:67 dev flannel.1",
      "ip neigh add 10.77.67.0 lladdr 02:00:00:00:04:67 nud stale dev flannel.1",
    ])
      await host.run(command);
    const look = async (): Promise<string> =>
      [
        await host.run("ip route show"),
        // (The kernel looks for 192.0.2.7 whenever it has something for the whole tunnel.)
        (await host.run("ip neigh show nud all")).replace(/^192\.0\.2\.7 .*\n/m, ""),
        await host.run("bridge fdb show"),
        await host.run("ip -o -d link show"),
      ].join("\n");
    const before = await look();
    // A route with our number that is in no overlay's network is of a former one.
    t.deepEqual(await changesOf(host, desired), ["route - 10.99.0.0/16 via 192.0.2.2 dev eth0"]);
    t.deepEqual(await host.overlays.sweep([desired], signal), []);
    t.is(await look(), before.replace(/^10\.99\.0\.0\/16 .*\n/m, ""));
    // And with it goes all that is ours, and nothing else.
    await host.overlays.sweep([], signal);
    t.regex(await host.run("ip -o link show"), /: other: /);
    t.notRegex(await host.run("ip -o link show"), /flannel/);
    t.regex(await host.run("ip route show"), /10\.77\.66\.0\/24/);
    t.notRegex(await host.run("ip route show"), /proto 73/);
  },
);

test.serial(
  "flannel's device is adopted with its MAC, its stale peers go, and a strange one is refused",
  async (t) => {
    await using lab = await openOverlayHosts(2);
    const [host, other] = lab.hosts as [OverlayHost, OverlayHost];
    // As flanneld makes it, and a peer of its that has gone meanwhile.
    for (const command of [
      "ip link add flannel.1 address 9e:02:54:f5:a5:79 mtu 1450 type vxlan id 1 local 192.0.2.1 dev eth0 dstport 8472 nolearning ttl auto ageing 300 udpcsum",
      "ip addr add 10.77.1.0/32 dev flannel.1",
      "ip link set flannel.1 up",
      "ip neigh add 10.77.4.0 lladdr 02:00:00:00:04:04 dev flannel.1",
      "bridge fdb add 02:00:00:00:04:04 dev flannel.1 dst 192.0.2.4 self permanent",
      "ip route add 10.77.4.0/24 via 10.77.4.0 dev flannel.1 onlink",
      "ip route add 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
    ])
      await host.run(command);
    const desired = overlayOf(1, { peers: [2] });
    const adopting = {
      ...desired,
      sides: desired.sides.map((side) => ({
        ...side,
        vtep: { device: side.vtep?.device as never },
      })),
    };
    t.deepEqual(await changesOf(host, adopting), [
      "link ~ flannel.1 group 73 alias podnet:overlay:default",
      "route - 10.77.4.0/24 via 10.77.4.0 dev flannel.1 onlink",
      "neighbour + 10.77.2.0 lladdr 02:00:00:00:04:02 on flannel.1",
      "fdb + 02:00:00:00:04:02 dst 192.0.2.2 on flannel.1",
      "route + 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
      "fdb - 02:00:00:00:04:04 dst 192.0.2.4 on flannel.1",
      "neighbour - 10.77.4.0 on flannel.1",
    ]);
    const again = await host.overlays.ensure(adopting, signal);
    t.deepEqual(again.changes, []);
    t.is(again.macs.get(4), parseMac("9e:02:54:f5:a5:79"));
    const known = { ...peerOf(1), vtepMac: parseMac("9e:02:54:f5:a5:79") };
    await other.overlays.ensure(withPeers(2, known), signal);
    t.true(await host.reaches(podAddress(2)));
    // Ours with another port: made anew, and the MAC stays.
    const ported = { ...adopting, backend: { ...vxlan, port: 4789 } };
    t.true((await changesOf(host, ported)).includes("link - flannel.1"));
    t.regex(await host.run("ip -d link show flannel.1"), /9e:02:54:f5:a5:79[^]*dstport 4789/);
    // Another backend: the device has no owner any more.
    await host.overlays.ensure(
      { ...overlayOf(1, { peers: [2], backend: { kind: "host-gw" } }) },
      signal,
    );
    await t.throwsAsync(host.run("ip link show flannel.1"));
    // A device without a mark and with another network is foreign.
    await host.run("ip link add flannel.1 type vxlan id 7 local 192.0.2.1 dev eth0 dstport 8472");
    const error = await t.throwsAsync(host.overlays.ensure(desired, signal), {
      code: "OVERLAY_CONFLICT",
    });
    t.regex(error.message, /its VNI is 7, not 1/);
    await host.run("ip link del flannel.1");
    await host.run("ip link add mine type vxlan id 1 local 192.0.2.1 dev eth0 dstport 8472");
    await t.throwsAsync(host.overlays.ensure(desired, signal), {
      code: "OVERLAY_CONFLICT",
      message: /VXLAN 1 belongs to another device/,
    });
  },
);
