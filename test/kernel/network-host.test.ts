import test, { type ExecutionContext } from "ava";
import type { IpPrefix } from "../../core/address.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unshare } from "../../linux/ffi/libc.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { openTap } from "../../linux/tun.ts";
import { applyChange } from "../../network/bridge/apply.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { observePorts } from "../../network/bridge/observe.ts";
import { bridgeMac } from "../../network/model/bridge-mac.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork, type HostNetworkOptions } from "../../network/bridge/host-network.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import { RuleTable } from "../../network/firewall/nftables/rule-table.ts";
import { Memory, type Remembered } from "../../network/kernel/memory.ts";
import { podMark } from "../../network/model/ownership.ts";
import { checkPortRoom, maxBridgePorts } from "../../network/model/port-limit.ts";
import { ownNetns } from "../lab/netns.ts";
import { difference, foreignState, ip, networkFragment, podFragment } from "../lab/network.ts";

const { signal } = new AbortController();
const hyper0 = "hyper0" as IfName;

async function open(options: Partial<HostNetworkOptions> = {}): Promise<HostNetwork> {
  await ownNetns();
  return reopen(options);
}

const reopen = (options: Partial<HostNetworkOptions> = {}): HostNetwork =>
  openHostNetwork({ iptables: "nft", chain: "HYPER", hostSeed: "test", ...options });

interface IpLink {
  readonly ifname: string;
  readonly address: string;
  readonly mtu: number;
  readonly group: string;
  readonly ifalias?: string;
  readonly master?: string;
  readonly flags: readonly string[];
  readonly linkinfo?: {
    readonly info_kind?: string;
    readonly info_data?: { readonly stp_state: number; readonly group_fwd_mask: string };
    readonly info_slave_data?: { readonly isolated: boolean };
  };
}

/** A link as `ip` sees it: an independent reader that shares no code with ours. */
const linkOf = async (name: string): Promise<IpLink | undefined> =>
  (JSON.parse(await ip("-d -j link show")) as IpLink[]).find((link) => link.ifname === name);

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

/** The ports that the network's bridge has. */
async function portCount(): Promise<number> {
  using netlink = Rtnetlink.open();
  return observePorts(netlink, (await netlink.link("hyper0"))?.index ?? 0);
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
  t.is(changes.length, 9);
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

test.serial("Ports come and go and the bridge keeps its MAC and MTU", async (t) => {
  await using host = await open();
  await host.apply(networkFragment(), signal);
  await using _tap2 = openTap("tap2" as IfName);
  await using tap3 = openTap("tap3" as IfName);
  const before = await linkOf("hyper0");
  t.deepEqual(changesText(await host.diff(podFragment(2, { isolated: true, mtu: 1400 }), signal)), [
    `nftables add element bridge podnet macs { "tap2" . 0x525400000102 comment "podnet:pod:podaaaaaaaa2:0" }`,
    `nftables add element bridge podnet addresses4 { "tap2" . 192.168.123.2 comment "podnet:pod:podaaaaaaaa2:0" }`,
    `nftables add element bridge podnet known { 2036822107 . 0x525400000102 comment "podnet:pod:podaaaaaaaa2:0" }`,
    "link ~ tap2 mtu 1400 group 2036822107 alias podnet:pod:podaaaaaaaa2:0",
    "neighbour - 192.168.123.2 on hyper0",
    "port + tap2 on hyper0 isolated, then up",
  ]);
  await host.apply(podFragment(2, { isolated: true, mtu: 1400 }), signal);
  await host.apply(podFragment(3), signal);
  t.deepEqual(await host.apply(podFragment(3), signal), []);
  const port = await linkOf("tap2");
  t.like(port, {
    master: "hyper0",
    mtu: 1400,
    group: "2036822107",
    ifalias: "podnet:pod:podaaaaaaaa2:0",
    linkinfo: { info_slave_data: { isolated: true } },
  });
  t.true(port?.flags.includes("UP"));
  t.is(readSysctl("net/ipv6/conf/tap2/addr_gen_mode"), "1", "no link-local address");
  t.is(await portCount(), 2);
  await tap3.close();
  t.is(await portCount(), 1);
  const after = await linkOf("hyper0");
  t.deepEqual([after?.address, after?.mtu], [before?.address, before?.mtu]);
  t.deepEqual(await host.diff(networkFragment(), signal), []);
  await host.remove(podFragment(2), signal);
  t.is(await linkOf("tap2"), undefined);
  await host.remove({ kind: "pod", key: podFragment(3).key }, signal);
});

test.serial("Every kind of drift is found and repaired", async (t) => {
  await using host = await open();
  await host.apply(networkFragment(), signal);
  await using _tap = openTap("tap2" as IfName);
  await host.apply(podFragment(2), signal);
  const drifts: readonly (readonly [command: string, kinds: readonly string[]])[] = [
    ["link set dev hyper0 down", ["set-link"]],
    ["link set dev hyper0 mtu 1300", ["set-link"]],
    ["link set dev hyper0 address 52:54:00:00:00:99", ["set-link"]],
    ["link set dev hyper0 group 5", ["set-link"]],
    ["address flush dev hyper0", ["add-address"]],
    ["link set dev tap2 down", ["set-link"]],
    ["link set dev tap2 mtu 1300", ["set-link"]],
    ["link set dev tap2 type bridge_slave isolated on", ["set-port"]],
    ["link set dev tap2 nomaster", ["forget-neighbour", "attach-port"]],
  ];
  for (const [command, kinds] of drifts) {
    await ip(command);
    const repairs = [
      ...(await host.apply(networkFragment(), signal)),
      ...(await host.apply(podFragment(2), signal)),
    ];
    t.deepEqual(
      repairs.map((change) => change.kind),
      kinds,
      command,
    );
    t.deepEqual(await host.diff(networkFragment(), signal), [], command);
    t.deepEqual(await host.diff(podFragment(2), signal), [], command);
  }
  writeSysctl("net.ipv4.ip_forward", "0");
  t.is((await host.apply(networkFragment(), signal)).length, 1);
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

test.serial(
  "Down takes away all that is ours and nothing else, after a daemon's restart too",
  async (t) => {
    let stored: Remembered | undefined;
    const remember = (value: Remembered): void => {
      // As the daemon's store does it.
      stored = JSON.parse(JSON.stringify(value)) as Remembered;
    };
    const first = await open({ remember });
    await seedForeign();
    const before = await foreignState();
    await using _tap2 = openTap("tap2" as IfName);
    await using _tap3 = openTap("tap3" as IfName);
    await first.apply(networkFragment(), signal);
    await first.apply(podFragment(2), signal);
    await first.apply(podFragment(3), signal);
    await first[Symbol.asyncDispose]();
    await using second = reopen({ remember, remembered: stored });
    t.deepEqual(await second.apply(networkFragment(), signal), []);
    t.is(second.remembered.ipForward, "0");
    await second.remove({ kind: "everything" }, signal);
    t.deepEqual(difference(before, await foreignState()), []);
    t.false((await ip("-d link show")).includes("podnet:"));
    t.false((await run(["iptables-nft-save"])).stdout.includes("HYPER"));
    t.deepEqual<unknown, unknown>({ ...stored, host: "" }, { host: "", chains: [], raised: [] });
    t.deepEqual(await second.remove({ kind: "everything" }, signal), []);
  },
);

test.serial(
  "What an earlier boot remembered is void; forwarding that was on stays on",
  async (t) => {
    await using host = await open({
      remembered: {
        host: "an earlier boot",
        ipForward: "0",
        chains: ["nft filter HYPER"],
        raised: [],
      },
    });
    t.is(host.remembered.ipForward, undefined);
    writeSysctl("net.ipv4.ip_forward", "1");
    await host.apply(networkFragment(), signal);
    await host.remove({ kind: "everything" }, signal);
    t.is(readSysctl("net.ipv4.ip_forward"), "1");
  },
);

test.serial("The state of the host is reported, and looking at it changes nothing", async (t) => {
  await using host = await open({ iptables: "auto" });
  const facts = { firewall: "nft", ipForward: false, bridgeNfCallIptables: true };
  t.deepEqual<unknown, unknown>(await host.observe.facts(signal), facts);
  writeSysctl("net.bridge.bridge-nf-call-iptables", "0");
  await host.apply(networkFragment(), signal);
  t.is(readSysctl("net.bridge.bridge-nf-call-iptables"), "0", "read, never written");
  const after = { firewall: "nft", ipForward: true, bridgeNfCallIptables: false };
  t.deepEqual<unknown, unknown>(await host.observe.facts(signal), after);
  await using off = reopen({ iptables: "off" });
  t.is((await off.observe.facts(signal)).firewall, "off");
});

test.serial("A store that cannot remember prevents the change", async (t) => {
  const remember = (): void => {
    throw new Error("disk full");
  };
  // The firewall's chain is to be remembered first; without one it is forwarding.
  for (const iptables of ["nft", "off"] as const) {
    await using host = await open({ remember, iptables });
    await t.throwsAsync(host.apply(networkFragment(), signal), { message: /disk full/ });
    t.is(readSysctl("net.ipv4.ip_forward"), "0");
    t.is((await run(["iptables-nft-save"])).stdout, "");
  }
});

test.serial("With iptables off no firewall command is run", async (t) => {
  await using host = await open({ iptables: "off" });
  t.true(host.describe(networkFragment()).every((line) => !line.startsWith("iptables")));
  await host.apply(networkFragment(), signal);
  await host.remove({ kind: "orphans", known: { pods: new Set(), networks: new Set() } }, signal);
  await host.remove({ kind: "everything" }, signal);
  t.is((await run(["iptables-nft-save"])).stdout, "");
  t.is((await run(["cat", "/proc/net/ip_tables_names"])).stdout, "");
});

test.serial(
  "Switched off, iptables is rid of the rules made before, and left alone then",
  async (t) => {
    const rules = async (): Promise<string> =>
      (await run(["iptables-nft-save"])).stdout.replaceAll(/^#.*\n|\[\d+:\d+\]/gm, "");
    let remembered: Remembered | undefined;
    let before = "";
    {
      await using on = await open();
      await seedForeign();
      before = await rules();
      await on.apply(networkFragment(), signal);
      ({ remembered } = on);
    }
    await using off = reopen({ iptables: "off", remembered });
    const changes = await off.apply(networkFragment(), signal);
    t.deepEqual(
      changes.map(({ kind }) => kind),
      ["iptables", "iptables"],
    );
    t.is(await rules(), before);
    t.deepEqual(off.remembered.chains, []);
    t.deepEqual(await off.apply(networkFragment(), signal), []);
  },
);

test.serial(
  "A sweep ends what has no row, dozens at once, and spares the rest and what bears no mark",
  async (t) => {
    await using host = await open();
    await seedForeign();
    await host.apply(networkFragment(), signal);
    await host.apply(
      networkFragment({
        key: "blue",
        bridge: "blue0" as IfName,
        gateways: ["10.88.0.1/16" as IpPrefix],
      }),
      signal,
    );
    const taps = Array.from({ length: 60 }, (_, i) => openTap(`tap${i + 2}` as IfName));
    for (let i = 0; i < taps.length; i++) await host.apply(podFragment(i + 2), signal);
    const before = await foreignState();
    await ip("link set dev mine1 group 73");
    await ip("link set dev mine2 group 74");
    const known = { pods: new Set([podFragment(2).key]), networks: new Set(["default"]) };
    const changes = await host.remove({ kind: "orphans", known }, signal);
    t.true(changes.some((change) => change.kind === "delete-links" && change.links.length === 60));
    const left = (JSON.parse(await ip("-j link show")) as IpLink[])
      .map((link) => link.ifname)
      .filter((name) => name.startsWith("tap"));
    t.deepEqual(left, ["tap2"]);
    t.is(await linkOf("blue0"), undefined);
    t.truthy(await linkOf("hyper0"));
    // Others' links in our groups: seen before the group is ended, and spared.
    t.like(await linkOf("mine1"), { group: "73" });
    t.like(await linkOf("mine2"), { group: "74" });
    await ip("link set dev mine1 group 0");
    await ip("link set dev mine2 group 0");
    const ours = /\btap\d+|\bblue0/;
    const rest = (text: string): string =>
      text
        .split("\n")
        .filter((line) => !ours.test(line))
        .join("\n");
    t.deepEqual(difference(rest(before), rest(await foreignState())), []);
    t.deepEqual(await host.apply(networkFragment(), signal), []);
    t.deepEqual(await host.remove({ kind: "orphans", known }, signal), []);
    await Promise.all(taps.map((tap) => tap.close()));
  },
);

test.serial("Foreign state is byte for byte the same after a thousand operations", async (t) => {
  await using host = await open();
  await seedForeign();
  const before = await foreignState();
  await host.apply(networkFragment(), signal);
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  const taps = new Map<number, ReturnType<typeof openTap>>();
  for (let i = 0; i < 1000; i++) {
    const n = 2 + random(12);
    if (i % 100 === 99) await host.apply(networkFragment(), signal);
    if (i % 250 === 249)
      await host
        .remove(networkFragment(), signal)
        .then(() => host.apply(networkFragment(), signal));
    const tap = taps.get(n);
    if (tap === undefined) {
      taps.set(n, openTap(`tap${n}` as IfName));
      await host.apply(podFragment(n, { isolated: random(2) === 0 }), signal);
    } else if (random(8) === 0) {
      await host.remove(
        { kind: "ports", pod: podFragment(n).key, tap: `tap${n}` as IfName },
        signal,
      );
      await tap.close();
      await host.remove(podFragment(n), signal);
      taps.delete(n);
    } else {
      await host.apply(podFragment(n), signal);
    }
  }
  await Promise.all([...taps.values()].map((tap) => tap.close()));
  await host.remove({ kind: "everything" }, signal);
  t.deepEqual(difference(before, await foreignState()), []);
});

test.serial(
  "Calls made at once are done one after the other; an aborted one is not started",
  async (t) => {
    await using host = await open();
    const results = await Promise.all([1, 2, 3].map(() => host.apply(networkFragment(), signal)));
    t.deepEqual(
      results.map((changes) => changes.length),
      [9, 0, 0],
    );
    const gone = new AbortController();
    gone.abort();
    const error = await t.throwsAsync(host.remove(networkFragment(), gone.signal));
    t.true(isPodnetError(error, "CANCELLED"));
    t.truthy(await linkOf("hyper0"));
  },
);

test.serial("A missing tap, a missing bridge and a foreign tap name are told apart", async (t) => {
  await using host = await open();
  await using _tap = openTap("tap2" as IfName);
  const noBridge = await t.throwsAsync(host.apply(podFragment(2), signal));
  t.true(isPodnetError(noBridge, "BRIDGE_CONFLICT"));
  await host.apply(networkFragment(), signal);
  const noTap = await t.throwsAsync(host.apply(podFragment(3), signal));
  t.true(isPodnetError(noTap, "NETLINK_FAILED"));
  await ip("link set dev tap2 alias theirs");
  const taken = await t.throwsAsync(host.apply(podFragment(2), signal));
  t.true(isPodnetError(taken, "NAME_IN_USE"));
  t.deepEqual(
    (await host.remove(podFragment(2), signal)).map((change) => change.kind),
    ["forget-neighbour"],
  );
  t.like(await linkOf("tap2"), { ifalias: "theirs" });
});

/** Links, addresses, routes and rules of others, in both variants of iptables. */
async function seedForeign(): Promise<void> {
  const commands = [
    "link add name mine1 type veth peer name mine2",
    "link set dev mine1 alias podnetwork",
    "link set dev mine1 addrgenmode none",
    "link set dev mine2 addrgenmode none",
    "link add name theirs0 type bridge",
    "link set dev theirs0 addrgenmode none",
    "address add 10.77.0.1/24 dev theirs0",
    "address add fd77::1/64 dev theirs0 nodad",
    "link set dev mine2 master theirs0",
    "link set dev mine1 up",
    "link set dev mine2 up",
    "link set dev theirs0 up",
    "route add 203.0.113.0/24 via 10.77.0.2",
    "route add 198.51.100.0/24 via 10.77.0.3 proto 99 table 100",
    "neigh add 10.77.0.5 lladdr 52:54:00:aa:bb:cc dev theirs0 nud permanent",
  ];
  for (const command of commands) await ip(command);
  // The kernel reports a carrier from a work queue; what is compared later has to be at rest.
  for (let i = 0; i < 100 && !/state UP/.test(await ip("-o link show dev theirs0")); i++);
  const rules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OTHERS - [0:0]
-A FORWARD -i docker0 -m comment --comment "say \\"hi\\"" -j OTHERS
-A OTHERS -s 192.168.123.0/24 -j RETURN
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 192.168.123.0/24 -o theirs0 -j ACCEPT
COMMIT
`;
  for (const program of ["iptables-nft", "iptables-legacy", "ip6tables-nft"])
    await run([`${program}-restore`, "--noflush"], {
      stdin: program.startsWith("ip6")
        ? "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s fd77::/64 -j ACCEPT\nCOMMIT\n"
        : rules,
    });
}

test.serial("Taking away goes on past what fails, and reports all of it", async (t) => {
  await using host = await open();
  await using _tap = openTap("tap2" as IfName);
  await host.apply(networkFragment(), signal);
  await host.apply(podFragment(2), signal);
  await run(["iptables-nft", "-t", "nat", "-A", "HYPER", "-p", "tcp", "-j", "ACCEPT"]);
  await run(["iptables-nft", "-A", "HYPER", "-p", "tcp", "-j", "ACCEPT"]);
  await withoutIptables(t, async () => {
    const error = await t.throwsAsync(host.remove({ kind: "everything" }, signal));
    t.true(isPodnetError(error, "FIREWALL_FAILED"));
    t.is(await linkOf("hyper0"), undefined, "the link has gone all the same");
    t.is(await linkOf("tap2"), undefined);
    t.is(readSysctl("net.ipv4.ip_forward"), "0", "and forwarding is as it was");
  });
  await host.remove({ kind: "everything" }, signal);
  const left = (await run(["iptables-nft-save"])).stdout;
  t.false(left.includes("podnet:"));
  // Others' rules in our chain keep it.
  t.is([...left.matchAll(/^-A HYPER -p tcp -j ACCEPT$/gm)].length, 2);
});

test.serial("A commit that another program overtook is made once more", async (t) => {
  await ownNetns();
  const kernel = openHostKernel();
  let refusals = 1;
  const restore: typeof kernel.iptables.restore = (...args) => {
    if (refusals-- > 0) throw new PodnetError("COMMAND_FAILED", "iptables-restore: line 2 failed");
    return kernel.iptables.restore(...args);
  };
  const reported: string[] = [];
  await using host = reopen({
    kernel: { ...kernel, iptables: { ...kernel.iptables, restore } },
    repeated: ({ message }) => reported.push(message),
  });
  await host.apply(networkFragment(), signal);
  t.deepEqual(await host.diff(networkFragment(), signal), []);
  t.is(reported.length, 1);
  t.regex(reported[0] ?? "", /^Cannot change table/);
  // Once: what is refused again is an error.
  refusals = 2;
  await run(["iptables-nft", "-F"]);
  await t.throwsAsync(host.apply(networkFragment(), signal), { code: "FIREWALL_FAILED" });
});

test.serial(
  "Another program writing rules at the same time neither fails nor is failed",
  async (t) => {
    await using host = await open();
    const busy = (async () => {
      for (let i = 0; i < 60; i++) {
        const rule = ["FORWARD", "-s", `10.1.1.${i + 1}`, "-j", "DROP"] as const;
        await run(["iptables-nft", "-I", ...rule]);
        if (i % 2 === 0) await run(["iptables-nft", "-D", ...rule]);
      }
    })();
    for (let i = 0; i < 10; i++) {
      await host.apply(networkFragment(), signal);
      await host.remove(networkFragment(), signal);
    }
    await busy;
    await host.apply(networkFragment(), signal);
    t.deepEqual(await host.diff(networkFragment(), signal), []);
    await host.remove({ kind: "everything" }, signal);
    const rules = (await run(["iptables-nft-save"])).stdout;
    t.is([...rules.matchAll(/^-A/gm)].length, 30);
    t.false(/podnet|HYPER/.test(rules));
  },
);

// include/uapi/linux/sched.h
const CLONE_NEWNS = 0x20000;

/**
 * Makes every iptables program unusable for a while, by a device mounted over them: in a mount
 * namespace of this process's own, since other test files run in the same sandbox at the same time.
 */
async function withoutIptables(t: ExecutionContext, body: () => Promise<void>): Promise<void> {
  const programs = ["/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi"];
  t.is(unshare(CLONE_NEWNS), 0);
  for (const program of programs) await run(["mount", "--bind", "/dev/null", program]);
  try {
    await body();
  } finally {
    for (const program of programs) await run(["umount", program]);
  }
}

test.serial("A tap that goes while links are ended holds up none of the others", async (t) => {
  await using host = await open();
  await host.apply(networkFragment(), signal);
  const alias = podMark("abcdefghijkl", 0);
  const names = ["tap2", "tap3", "tap4"] as IfName[];
  await using taps = new AsyncDisposableStack();
  const [first] = names.map((name) => taps.use(openTap(name)));
  for (const name of names) await ip(`link set dev ${name} group 73 alias ${alias}`);
  // Ends a tap when all of them have been looked at, as a QEMU that exits just then does.
  class Late extends Rtnetlink {
    override async setGroup(indexes: readonly number[], group: number): Promise<void> {
      await first?.close();
      await super.setGroup(indexes, group);
    }
  }
  using netlink = new Late();
  const sysctl = { read: readSysctl, write: writeSysctl };
  const memory = new Memory("here");
  const real = openHostKernel();
  const ruleTable = new RuleTable(real.nftables, memory);
  const kernel = { ...real, netlink, sysctl, identity: "here", memory, ruleTable, guardTables: [] };
  await applyChange({ kind: "delete-links", links: names }, kernel, signal);
  const gone = { kind: "detach-port", link: names[0] as IfName } as const;
  await applyChange(gone, kernel, signal);
  for (const name of names) t.is(await linkOf(name), undefined);
});
