/**
 * Our rtnetlink alongside npm `netlink`, an implementation that shares nothing with it. It runs in
 * a child process, since it aborts its own when a socket overruns
 * (docs/decisions/0003-rtnetlink.md).
 */
import test from "ava";
import {
  type Cidr,
  type Ip,
  ipOf,
  type IpPrefix,
  ipToBytes,
  lengthOf,
  macToBytes,
  parseCidr,
  parseIp,
  parseIpPrefix,
  parseMac,
} from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { writeSysctl } from "../../linux/sysctl.ts";
import { openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";

const script = `
  import netlink from "netlink";
  const socket = netlink.createRtNetlink({ ref: true });
  // One dump at a time: two of them spoil each other.
  const links = await socket.getLinks();
  const addresses = await socket.getAddresses();
  const routes = await socket.getRoutes();
  const neighbours = await socket.getNeighbors();
  socket.socket.close();
  const plain = (key, value) => {
    if (typeof value === "bigint") return Number(value);
    if (value?.type === "Buffer") return "hex:" + Buffer.from(value.data).toString("hex");
    return value;
  };
  console.log(JSON.stringify({ links, addresses, routes, neighbours }, plain));
  process.exit(0);
`;

interface Heard {
  readonly data: Record<string, unknown>;
  readonly attrs: Record<string, unknown>;
}

async function observer(): Promise<Record<string, readonly Heard[]>> {
  const root = new URL("../..", import.meta.url).pathname;
  const { stdout } = await run([
    "env",
    "-C",
    root,
    process.execPath,
    "--input-type=module",
    "-e",
    script,
  ]);
  return JSON.parse(stdout) as Record<string, readonly Heard[]>;
}

/** Bytes in the source's words. */
const hex = (bytes: Uint8Array): string => `hex:${Buffer.from(bytes).toString("hex")}`;
const ipHex = (prefix: IpPrefix | Cidr | Ip): string =>
  hex(ipToBytes(prefix.includes("/") ? ipOf(prefix as IpPrefix) : (prefix as Ip)));

const sorted = (list: readonly unknown[]): string[] => list.map((x) => JSON.stringify(x)).sort();
const pick = (from: Record<string, unknown>, ...names: string[]): unknown[] =>
  names.map((name) => from[name] ?? null);

test("another implementation sees what ours made and reads", async (t) => {
  await ownNetns();
  // No link-local addresses: they come and change in their own time, between the two readings too.
  writeSysctl("net.ipv6.conf.default.addr_gen_mode", "1");
  using net = Rtnetlink.open();
  const bridge = await net.addBridge({
    name: "hyper0",
    mac: parseMac("52:54:00:00:00:01"),
    mtu: 1400,
    group: 73,
    alias: "podnet:network:default",
    up: true,
  });
  await using tap = openTap(parseIfName("tap0"));
  await net.changeLink(tap.name, {
    master: bridge.index,
    group: 73,
    alias: "podnet:pod:a",
    up: true,
  });
  await net.changeBridgePort(tap.name, { isolated: true });
  await net.addAddress(bridge.index, parseIpPrefix("192.168.123.1/24"));
  await net.addAddress(bridge.index, parseIpPrefix("fd00::1/64"), { noDad: true });
  await net.addRoute({
    destination: parseCidr("10.1.0.0/16"),
    gateway: parseIp("192.168.123.7"),
    protocol: 73,
  });
  await net.replaceNeighbour({
    index: bridge.index,
    address: parseIp("192.168.123.9"),
    mac: parseMac("52:54:00:00:00:09"),
  });

  const heard = await observer();
  t.deepEqual(
    sorted(
      (heard["links"] ?? []).map(({ data, attrs }) => [
        data["index"],
        (data["flags"] as Record<string, unknown>)["up"] === true,
        ...pick(
          attrs,
          "ifname",
          "mtu",
          "group",
          "master",
          "ifalias",
          "address",
          "minMtu",
          "maxMtu",
        ),
      ]),
    ),
    sorted(
      (await net.links()).map((link) => [
        link.index,
        link.up,
        link.name,
        link.mtu,
        link.group,
        link.master ?? null,
        link.alias ?? null,
        link.mac === undefined ? null : hex(macToBytes(link.mac)),
        link.minMtu,
        link.maxMtu,
      ]),
    ),
  );
  t.deepEqual(
    sorted(
      (heard["addresses"] ?? []).map(({ data, attrs }) => [
        data["index"],
        data["prefixlen"],
        attrs["local"] ?? attrs["address"],
        (attrs["flags"] as Record<string, unknown>)["permanent"] === true,
      ]),
    ),
    sorted(
      (await net.addresses()).map(({ index, prefix, permanent }) => [
        index,
        lengthOf(prefix),
        ipHex(prefix),
        permanent,
      ]),
    ),
  );
  t.deepEqual(
    sorted(
      (heard["routes"] ?? []).map(({ data, attrs }) => [
        data["dstLen"],
        data["protocol"] === "KERNEL" ? 2 : data["protocol"],
        String(data["type"]).toLowerCase(),
        ...pick(attrs, "table", "gateway", "oif", "prefsrc", "priority"),
        attrs["dst"] ?? null,
      ]),
    ),
    sorted(
      (await net.routes()).map((route) => [
        lengthOf(route.destination),
        route.protocol,
        route.type,
        route.table,
        route.gateway === undefined ? null : ipHex(route.gateway),
        route.link ?? null,
        route.source === undefined ? null : ipHex(route.source),
        route.metric === 0 && route.family === 4 ? null : route.metric,
        lengthOf(route.destination) === 0 ? null : ipHex(route.destination),
      ]),
    ),
  );
  const permanent = ({ data }: Heard): boolean =>
    (data["state"] as Record<string, unknown>)["permanent"] === true;
  t.deepEqual(
    (heard["neighbours"] ?? []).filter(permanent).map(({ attrs }) => pick(attrs, "dst", "lladdr")),
    [[ipHex(parseIp("192.168.123.9")), "hex:525400000009"]],
  );
  // It gives IFLA_LINKINFO as bytes; IFLA_BRPORT_ISOLATED is 33, and 1 here.
  const port = (heard["links"] ?? []).find(({ attrs }) => attrs["ifname"] === "tap0");
  t.true(String(port?.attrs["linkinfo"]).includes("0500210001000000"));
});
