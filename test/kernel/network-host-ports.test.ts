import test, { type ExecutionContext } from "ava";
import type { IpPrefix } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unshare } from "../../linux/ffi/libc.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { openTap } from "../../linux/tun.ts";
import { applyChange } from "../../network/bridge/apply.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import { RuleTable } from "../../network/firewall/nftables/rule-table.ts";
import { Memory } from "../../network/kernel/memory.ts";
import { podMark } from "../../network/model/ownership.ts";
import { difference, foreignState, ip, networkFragment, podFragment } from "../lab/network.ts";
import { type IpLink, linkOf, open, portCount, seedForeign, signal } from "./network-host-rig.ts";

test.serial("Ports come and go and the bridge keeps its MAC and MTU", async (t) => {
  await using host = await open();
  await host.apply(networkFragment(), signal);
  await using _tap2 = openTap("tap2" as IfName);
  await using tap3 = openTap("tap3" as IfName);
  const before = await linkOf("hyper0");
  t.deepEqual(changesText(await host.diff(podFragment(2, { isolated: true, mtu: 1400 }), signal)), [
    `nftables add element bridge podnet macs { "tap2" . 0x525400000102 comment "podnet:pod:podaaaaaaaa2:0" }`,
    `nftables add element bridge podnet senders4 { "tap2" . 192.168.123.2 . 0x525400000102 comment "podnet:pod:podaaaaaaaa2:0" }`,
    `nftables add element bridge podnet addresses4 { "tap2" . 192.168.123.2 comment "podnet:pod:podaaaaaaaa2:0" }`,
    `nftables add element bridge podnet held4 { 2036822107 . 192.168.123.2 comment "podnet:pod:podaaaaaaaa2:0" }`,
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
