import { closeSync, openSync } from "node:fs";
import test from "ava";
import { parseIp, parseMac } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";

let net: Rtnetlink;

// Test files share the sandbox's /run, hence a name of this process's own.
const podNetns = `pod-${process.pid}`;

test.before(async () => {
  await ownNetns();
  net = Rtnetlink.open();
});
test.after.always(() => net.close());
test.afterEach.always(async (t) => {
  for (const { name } of await net.links()) if (name !== "lo") await net.deleteLink(name);
  t.deepEqual(
    (await net.links()).map(({ name }) => name),
    ["lo"],
  );
});

/** What `ip -j -d link show` says of one link. */
async function ip(name: string): Promise<Record<string, unknown>> {
  const { stdout } = await run(["ip", "-j", "-d", "link", "show", "dev", name]);
  return (JSON.parse(stdout) as Record<string, unknown>[])[0] as Record<string, unknown>;
}

/** Our reading of a link in `ip`'s words, for comparison with its own. */
function inWordsOfIp(link: Link, names: ReadonlyMap<number, string>): Record<string, unknown> {
  return {
    ifindex: link.index,
    ifname: link.name,
    mtu: link.mtu,
    address: link.mac,
    operstate: link.operState.replaceAll("-", "").toUpperCase(),
    group: link.group === 0 ? "default" : String(link.group),
    min_mtu: link.minMtu,
    max_mtu: link.maxMtu,
    ...(link.alias === undefined ? {} : { ifalias: link.alias }),
    ...(link.altNames.length === 0 ? {} : { altnames: link.altNames }),
    ...(link.master === undefined ? {} : { master: names.get(link.master) }),
  };
}

test.serial("a bridge is born with its marks, and reads the same to us and to ip", async (t) => {
  const bridge = await net.addBridge({
    name: "hyper0",
    mac: parseMac("52:54:00:12:34:56"),
    mtu: 1400,
    group: 73,
    alias: "podnet:network:default",
    up: true,
    bridge: { stpState: 0, forwardDelay: 200, ageingTime: 1000, mcastSnooping: false },
  });
  t.like(bridge, {
    name: "hyper0",
    kind: "bridge",
    mtu: 1400,
    group: 73,
    up: true,
    alias: "podnet:network:default",
    mac: "52:54:00:12:34:56",
    bridge: {
      stpState: 0,
      forwardDelay: 200,
      ageingTime: 1000,
      mcastSnooping: false,
      vlanFiltering: false,
    },
  });
  t.like(await ip("hyper0"), inWordsOfIp(bridge, new Map()));
  t.like(await ip("hyper0"), {
    linkinfo: { info_kind: "bridge", info_data: { forward_delay: 200, mcast_snooping: 0 } },
  });
  const error = await t.throwsAsync(net.addBridge({ name: "hyper0", alias: "thief" }), {
    code: "NETLINK_FAILED",
    message: 'Cannot add bridge "hyper0": EEXIST',
  });
  t.like(error, { details: { errno: "EEXIST" } });
  t.is(
    (await net.link("hyper0"))?.alias,
    "podnet:network:default",
    "the other's mark is untouched",
  );
});

test.serial("a tap becomes a port, isolated, and leaves again", async (t) => {
  const bridge = await net.addBridge({ name: "hyper0", up: true });
  await using tap = openTap(parseIfName("tap0"));
  const { index } = (await net.link(tap.name)) as Link;
  const settings = {
    isolated: true,
    learning: false,
    hairpin: true,
    neighSuppress: true,
    unicastFlood: false,
    mcastFlood: false,
    bcastFlood: false,
    cost: 7,
  };
  await t.throwsAsync(
    net.changeBridgePort(index, settings),
    { code: "NETLINK_FAILED" },
    "no port yet",
  );
  await net.changeLink(index, {
    master: bridge.index,
    up: true,
    group: 73,
    alias: "podnet:pod:abcdefghijkl:0",
    mtu: 1400,
  });
  await net.changeBridgePort(index, settings);
  const port = (await net.link("tap0")) as Link;
  t.like(port, {
    master: bridge.index,
    kind: "tun",
    tun: { type: "tap", vnetHeader: true },
    port: settings,
    group: 73,
    alias: "podnet:pod:abcdefghijkl:0",
  });
  const seen = await ip("tap0");
  t.like(seen, inWordsOfIp(port, new Map([[bridge.index, "hyper0"]])));
  t.like((seen["linkinfo"] as Record<string, unknown>)["info_slave_data"], {
    isolated: true,
    learning: false,
    hairpin: true,
    neigh_suppress: true,
    flood: false,
    mcast_flood: false,
    bcast_flood: false,
    cost: 7,
  });
  await net.changeLink(index, { master: 0 });
  const free = (await net.link("tap0")) as Link;
  t.is(free.master, undefined);
  t.is(free.port, undefined);
});

test.serial("a tap and its port go when its last descriptor is closed", async (t) => {
  const bridge = await net.addBridge({ name: "hyper0" });
  const tap = openTap(parseIfName("tap0"));
  await net.changeLink("tap0", { master: bridge.index });
  t.is((await net.links({ master: bridge.index })).length, 1);
  await tap.close();
  t.is(await net.link("tap0"), undefined);
  t.deepEqual(await net.links({ master: bridge.index }), []);
});

test.serial("name, MAC, MTU, alias, group and state change", async (t) => {
  const { index } = await net.addBridge({ name: "one", group: 5, alias: "first" });
  await net.changeLink(index, {
    name: "two",
    mac: parseMac("52:54:00:00:00:02"),
    mtu: 9000,
    alias: "zweite Brücke",
    group: 6,
    up: true,
  });
  t.is(await net.link("one"), undefined);
  const link = (await net.link("two")) as Link;
  t.like(link, { index, mac: "52:54:00:00:00:02", mtu: 9000, group: 6, up: true });
  t.is(link.alias, "zweite Brücke");
  t.like(await ip("two"), inWordsOfIp(link, new Map()));
  await net.changeLink("two", { alias: "", up: false });
  t.is((await net.link(index))?.alias, undefined);
  t.false((await net.link(index))?.up);
});

test.serial("alternative names are found by, and can be longer", async (t) => {
  const { index } = await net.addBridge({ name: "hyper0" });
  const long = "podnet-network-with-a-very-long-name-indeed";
  await net.addAltName(index, long);
  await net.addAltName("hyper0", "short");
  t.deepEqual((await net.link(long))?.altNames, [long, "short"]);
  t.is((await net.link("short"))?.index, index);
  t.like(await ip("hyper0"), { altnames: [long, "short"] });
  await t.throwsAsync(net.addAltName(index, long), { message: /EEXIST/ });
  t.true(await net.deleteAltName(index, long));
  t.false(await net.deleteAltName(index, long));
  t.is(await net.link(long), undefined);
});

test.serial("a veth pair, one end born in another namespace and moved back", async (t) => {
  await run(["ip", "netns", "add", podNetns]);
  const netnsFd = openSync(`/run/netns/${podNetns}`, "r");
  t.teardown(async () => {
    closeSync(netnsFd);
    await run(["ip", "netns", "del", podNetns]);
  });
  const near = await net.addVeth({
    name: "near",
    mtu: 1400,
    group: 73,
    alias: "mine",
    peer: { name: "far", netnsFd, mac: parseMac("52:54:00:00:00:07"), mtu: 1300 },
  });
  t.like(near, { kind: "veth", mtu: 1400, alias: "mine", group: 73 });
  t.is(typeof near.linkNetnsId, "number");
  t.is(await net.link("far"), undefined);
  const { stdout } = await run(["ip", "-n", podNetns, "-j", "link", "show", "dev", "far"]);
  t.like((JSON.parse(stdout) as unknown[])[0], { address: "52:54:00:00:00:07", mtu: 1300 });
  await net.changeLink("near", { netnsFd });
  t.is(await net.link("near"), undefined);
  await run(["ip", "-n", podNetns, "link", "show", "dev", "near"]);
});

test.serial("a VXLAN keeps what it was given", async (t) => {
  const vxlan = { id: 42, local: parseIp("127.0.0.1"), port: 4789, learning: false, ttl: 9 };
  const link = await net.addVxlan({ name: "vx", mtu: 1400, vxlan });
  // The kernel's own are reported as well.
  t.deepEqual(link.vxlan, { ...vxlan, ageing: 300, udpCsum: true });
  t.like((await ip("vx"))["linkinfo"], {
    info_kind: "vxlan",
    info_data: { id: 42, local: "127.0.0.1", port: 4789, learning: false, ttl: 9 },
  });
  const six = { id: 43, local: parseIp("::1"), remote: parseIp("::2"), port: 4790 };
  t.like((await net.addVxlan({ name: "vx6", vxlan: six })).vxlan, six);
  const more = { id: 44, port: 4791, ageing: 60, udpCsum: false, gbp: true } as const;
  t.like((await net.addVxlan({ name: "vxg", vxlan: more })).vxlan, more);
  t.like((await ip("vxg"))["linkinfo"], { info_data: { ageing: 60, gbp: true } });
});

test.serial("learning of a VXLAN is changed while it is there, its port is not", async (t) => {
  await net.addVxlan({ name: "vx", vxlan: { id: 42, port: 4789, learning: false } });
  await net.changeVxlan("vx", { id: 42, learning: true });
  t.like((await net.link("vx"))?.vxlan, { id: 42, port: 4789, learning: true });
  await t.throwsAsync(net.changeVxlan("vx", { id: 42, port: 4790 }), {
    message: /^Cannot set the VXLAN settings of "vx": /,
  });
  t.like((await net.link("vx"))?.vxlan, { port: 4789, learning: true });
});

test.serial("a refused change comes with the kernel's own words", async (t) => {
  const { index } = await net.addBridge({ name: "hyper0" });
  const error = await t.throwsAsync(net.changeLink(index, { mtu: 10 }), {
    code: "NETLINK_FAILED",
    message: `Cannot set mtu 10 of link ${index}: EINVAL (mtu less than device minimum)`,
  });
  t.like(error, { details: { errno: "EINVAL", kernel: "mtu less than device minimum" } });
  await t.throwsAsync(net.changeLink("none", { up: true }), { message: /"none": ENODEV/ });
  await t.throwsAsync(net.changeLink(index, { master: index }), { code: "NETLINK_FAILED" });
});

test.serial("deleting is a success when there is nothing", async (t) => {
  await net.addBridge({ name: "hyper0" });
  t.true(await net.deleteLink("hyper0"));
  t.false(await net.deleteLink("hyper0"));
  t.false(await net.deleteLink(9999));
  t.false(await net.deleteGroup(4242));
});

test.serial("fifty links of a group go at once, the others stay", async (t) => {
  const bridge = await net.addBridge({ name: "hyper0", group: 73 });
  const taps = Array.from({ length: 25 }, (_, i) => openTap(parseIfName(`tap${i}`)));
  t.teardown(() => Promise.all(taps.map((tap) => tap.close())));
  for (const { name } of taps) await net.changeLink(name, { group: 74, master: bridge.index });
  for (let i = 0; i < 25; i++)
    await net.addVeth({ name: `n${i}`, group: 74, peer: { name: `f${i}`, group: 75 } });
  t.is((await net.links({ group: 74 })).length, 50);
  t.true(await net.deleteGroup(74));
  t.deepEqual((await net.links()).map(({ name }) => name).sort(), ["hyper0", "lo"]);
});

test.serial("a bridge that is full says so", async (t) => {
  const bridge = await net.addBridge({ name: "hyper0" });
  const count = 1023;
  for (let i = 0; i < (count + 1) / 2; i++)
    await net.addVeth({
      name: `a${i}`,
      group: 74,
      master: bridge.index,
      peer: { name: `b${i}`, group: 74 },
    });
  for (let i = 0; i < (count - 1) / 2; i++) await net.changeLink(`b${i}`, { master: bridge.index });
  t.is((await net.links({ master: bridge.index })).length, count);
  const error = await t.throwsAsync(net.changeLink("b511", { master: bridge.index }), {
    code: "NETLINK_FAILED",
  });
  t.like(error, { details: { errno: "EXFULL" } });
  t.true(await net.deleteGroup(74));
});

test.serial("links are filtered by bridge, kind and group", async (t) => {
  const bridge = await net.addBridge({ name: "hyper0", group: 73 });
  await net.addVeth({ name: "va", master: bridge.index, peer: { name: "vb", group: 73 } });
  const names = async (filter: Parameters<Rtnetlink["links"]>[0]): Promise<string[]> =>
    (await net.links(filter)).map(({ name }) => name).sort();
  t.deepEqual(await names({ kind: "bridge" }), ["hyper0"]);
  t.deepEqual(await names({ kind: "veth" }), ["va", "vb"]);
  t.deepEqual(await names({ kind: "no-such-kind" }), []);
  t.deepEqual(await names({ master: bridge.index }), ["va"]);
  t.deepEqual(await names({ group: 73 }), ["hyper0", "vb"]);
  t.deepEqual(await names({ group: 73, kind: "veth" }), ["vb"]);
});
