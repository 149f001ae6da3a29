import test from "ava";
import type { IpPrefix } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl } from "../../linux/sysctl.ts";
import { openTap } from "../../linux/tun.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { bridgeMac } from "../../network/model/bridge-mac.ts";
import { checkPortRoom, maxBridgePorts } from "../../network/model/port-limit.ts";
import { difference, foreignState, ip, networkFragment, podFragment } from "../lab/network.ts";
import { linkOf, open, portCount, signal } from "./network-host-rig.ts";

const hyper0 = "hyper0" as IfName;

/**
 * What of a link is set: no flags, states and timers, and not what a bridge takes from ports (and
 * keeps after them).
 */
async function settings(name: string): Promise<unknown> {
  const text = JSON.stringify(await linkOf(name));
  return JSON.parse(text, (key, value: unknown) =>
    /^(?:flags|operstate|qdisc|tso_max_\w+|\w+_timer)$/.test(key) ? undefined : value,
  );
}

test.serial("A bridge is made as planned, and a second look finds nothing to do", async (t) => {
  await using host = await open();
  t.deepEqual(
    changesText(await host.diff(networkFragment(), signal)).filter(
      (line) => !/^(ip|nf)tables/.test(line),
    ),
    [
      "link + hyper0 bridge mac 52:54:6b:ff:2f:cf mtu 1500 group 73 alias podnet:network:default fdb_max_learned 4092 no_linklocal_learn on",
      "sysctl + net/ipv6/conf/hyper0/accept_ra 0",
      "sysctl + net/ipv6/conf/hyper0/disable_ipv6 1",
      "address + 192.168.123.1/24 on hyper0",
      "link ~ hyper0 up",
      "sysctl ~ net.ipv4.ip_forward 0 → 1",
    ],
  );
  t.is(await linkOf("hyper0"), undefined, "planning changes nothing");
  const changes = await host.apply(networkFragment(), signal);
  t.deepEqual(
    changes.map((change) => ("table" in change ? change.table : change.kind)),
    [
      "bridge podnet",
      "inet podnet_guard",
      "inet podnet_shares",
      "inet podnet_published",
      "filter",
      "nat",
      "create-bridge",
      "add-address",
      "set-link",
      "set-sysctl",
    ],
  );
  const bridge = await linkOf("hyper0");
  t.like(bridge, {
    address: "52:54:6b:ff:2f:cf",
    mtu: 1500,
    group: "73",
    ifalias: "podnet:network:default",
    linkinfo: { info_kind: "bridge", info_data: { stp_state: 0, group_fwd_mask: "0" } },
  });
  t.true(bridge?.flags.includes("UP"));
  t.regex(await ip("-o address show dev hyper0"), /inet 192\.168\.123\.1\/24 /);
  t.is(readSysctl("net.ipv4.ip_forward"), "1");
  t.is(readSysctl("net/ipv6/conf/hyper0/accept_ra"), "0");
  t.is(readSysctl("net/ipv6/conf/hyper0/disable_ipv6"), "1");
  t.deepEqual(await host.apply(networkFragment(), signal), []);
  t.deepEqual(changesText(await host.diff(networkFragment(), signal)), []);
});

test.serial("A network of both families has both gateways, usable at once", async (t) => {
  await using host = await open();
  const both = networkFragment({
    gateways: ["192.168.123.1/24" as IpPrefix, "fd00:123::1/64" as IpPrefix],
  });
  await host.apply(both, signal);
  t.deepEqual(await host.apply(both, signal), []);
  const addresses = await ip("-o address show dev hyper0");
  t.regex(addresses, /inet6 fd00:123::1\/64 scope global nodad/);
  await ip("address delete fd00:123::1/64 dev hyper0");
  t.deepEqual(changesText(await host.diff(both, signal)), ["address + fd00:123::1/64 on hyper0"]);
});

test.serial(
  "A bridge that fits is adopted: never marked, never deleted, and down again if it was",
  async (t) => {
    await using host = await open();
    await ip("link add name hyper0 type bridge");
    await ip("link set dev hyper0 mtu 1400");
    await ip("address add 192.168.123.1/24 dev hyper0");
    await ip("address add 10.9.9.1/24 dev hyper0");
    const before = await settings("hyper0");
    await host.apply(networkFragment(), signal);
    t.deepEqual(await host.apply(networkFragment(), signal), []);
    const adopted = await linkOf("hyper0");
    t.like(adopted, { group: "default", mtu: 1400 });
    t.is(adopted?.ifalias, undefined);
    await using _tap = openTap("tap2" as IfName);
    await host.apply(podFragment(2), signal);
    await host.remove(networkFragment(), signal);
    t.truthy(await linkOf("hyper0"));
    await host.remove(podFragment(2), signal);
    await host.apply(networkFragment(), signal);
    await host.remove({ kind: "everything" }, signal);
    t.deepEqual(await settings("hyper0"), before);
    t.false((await linkOf("hyper0"))?.flags.includes("UP"));
    t.regex(await ip("-o address show dev hyper0"), /192\.168\.123\.1\/24/);
  },
);

for (const [what, make, reason] of [
  ["without an address", ["link add name hyper0 type bridge"], /no such address/],
  [
    "with another address",
    ["link add name hyper0 type bridge", "address add 192.168.123.9/24 dev hyper0"],
    /192\.168\.123\.9\/24/,
  ],
  [
    "with another mask",
    ["link add name hyper0 type bridge", "address add 192.168.123.1/25 dev hyper0"],
    /mask/,
  ],
  [
    "that is no bridge",
    ["link add name hyper0 type veth peer name other", "address add 192.168.123.1/24 dev hyper0"],
    /veth/,
  ],
  [
    "of another network of ours",
    ["link add name hyper0 type bridge", "link set dev hyper0 alias podnet:network:blue"],
    /"blue"/,
  ],
  [
    "whose subnet another link has",
    ["link add name lan0 type bridge", "address add 192.168.0.7/16 dev lan0"],
    /192\.168\.0\.7\/16.*"lan0"/,
  ],
] as const) {
  test.serial(`A link ${what} is refused, and nothing has happened`, async (t) => {
    await using host = await open();
    for (const command of make) await ip(command);
    const before = await foreignState();
    const error = await t.throwsAsync(host.apply(networkFragment(), signal), { message: reason });
    t.true(isPodnetError(error, "BRIDGE_CONFLICT"));
    if (isPodnetError(error)) t.truthy(error.hint);
    t.deepEqual(difference(before, await foreignState()), []);
    t.is((await run(["iptables-nft-save"])).stdout, "");
    await host.remove(networkFragment(), signal);
    t.deepEqual(difference(before, await foreignState()), []);
  });
}

test.serial(
  "A bridge whose making was interrupted before it had its alias is taken up again",
  async (t) => {
    await using host = await open();
    const born = async (name: string): Promise<unknown> =>
      ip(`link add name ${name} address ${bridgeMac("test", name as IfName)} group 73 type bridge`);
    await born("hyper0");
    const [first] = changesText(await host.diff(networkFragment(), signal)).filter((line) =>
      line.startsWith("link"),
    );
    t.regex(first ?? "", /alias podnet:network:default/);
    await host.apply(networkFragment(), signal);
    t.deepEqual(await host.apply(networkFragment(), signal), []);
    await born("half0");
    await ip("link add name theirs0 group 73 type bridge");
    await host.remove(
      { kind: "orphans", known: { pods: new Set(), networks: new Set(["default"]) } },
      signal,
    );
    t.is(await linkOf("half0"), undefined);
    t.truthy(await linkOf("theirs0"));
    t.truthy(await linkOf("hyper0"));
  },
);

test.serial("A full bridge is a typed error, in the check and from the kernel", async (t) => {
  await using host = await open({ iptables: "off" });
  await host.apply(networkFragment(), signal);
  using netlink = Rtnetlink.open();
  const master = (await netlink.link("hyper0"))?.index ?? 0;
  // Both ends of a pair as ports: half the links to make.
  const pairs = Math.ceil(maxBridgePorts / 2);
  for (let i = 0; i < pairs; i++) {
    await netlink.addVeth({ name: `a${i}`, master, group: 99, peer: { name: `b${i}`, group: 99 } });
    if (i < pairs - 1) await netlink.changeLink(`b${i}`, { master });
  }
  t.is(await portCount(), maxBridgePorts);
  const full = t.throws(() => checkPortRoom({ bridge: hyper0, used: maxBridgePorts, wanted: 1 }));
  t.true(isPodnetError(full, "BRIDGE_FULL"));
  await using _tap = openTap("tap2" as IfName);
  const error = await t.throwsAsync(host.apply(podFragment(2), signal));
  t.true(isPodnetError(error, "BRIDGE_FULL"));
  if (isPodnetError(error)) t.is(error.details["used"], maxBridgePorts);
  t.is((await linkOf("tap2"))?.master, undefined);
  await netlink.deleteLink("a0");
  await host.apply(podFragment(2), signal);
  t.is((await linkOf("tap2"))?.master, "hyper0");
  await netlink.deleteGroup(99);
});
