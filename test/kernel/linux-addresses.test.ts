import test from "ava";
import {
  familyOf,
  type Ip,
  type IpPrefix,
  parseCidr,
  parseIp,
  parseIpPrefix,
  parseMac,
} from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { ownNetns } from "../lab/netns.ts";

let net: Rtnetlink;
/** A bridge with a port that is up, so that its routes are in use. */
let index: number;

type Json = Readonly<Record<string, unknown>>;

test.before(async () => {
  await ownNetns();
  net = Rtnetlink.open();
});
test.after.always(() => net.close());
test.beforeEach(async () => {
  ({ index } = await net.addBridge({ name: "hyper0", up: true }));
  await net.addVeth({ name: "va", master: index, up: true, peer: { name: "vb" } });
  await net.changeLink("vb", { up: true });
});
test.afterEach.always(async () => {
  for (const name of ["va", "hyper0", "vx"]) await net.deleteLink(name);
});

async function json(...argv: [string, ...string[]]): Promise<readonly Json[]> {
  const { stdout } = await run(argv);
  return JSON.parse(stdout === "" ? "[]" : stdout) as Json[];
}

test.serial("addresses of both families come, read back the same, and go", async (t) => {
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"), {
    broadcast: parseIp("192.168.123.255"),
    label: "hyper0:x",
  });
  await net.addAddress(index, parseIpPrefix("fd00::1/64"), { noDad: true, noPrefixRoute: true });
  const mine = (await net.addresses({ index })).filter(({ scope }) => scope === "global");
  t.like(mine, [
    {
      prefix: "192.168.123.1/24",
      broadcast: "192.168.123.255",
      label: "hyper0:x",
      permanent: true,
      noPrefixRoute: false,
    },
    { prefix: "fd00::1/64", permanent: true, noPrefixRoute: true, tentative: false },
  ]);
  const [seen] = await json("ip", "-j", "addr", "show", "dev", "hyper0", "scope", "global");
  t.like(seen?.["addr_info"], [
    { local: "192.168.123.1", prefixlen: 24, broadcast: "192.168.123.255", label: "hyper0:x" },
    { local: "fd00::1", prefixlen: 64, noprefixroute: true },
  ]);
  await t.throwsAsync(net.addAddress(index, parseIpPrefix("192.168.123.1/24")), {
    message: /EEXIST/,
  });
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"), { replace: true });
  for (const { prefix } of mine) {
    t.true(await net.deleteAddress(index, prefix));
    t.false(await net.deleteAddress(index, prefix));
  }
  t.false(await net.deleteAddress(9999, "10.0.0.1/24" as IpPrefix), "of a link that is gone");
});

test.serial("addresses are filtered by link and family", async (t) => {
  await net.addAddress(index, parseIpPrefix("10.0.0.1/24"));
  const prefixes = async (filter: Parameters<Rtnetlink["addresses"]>[0]): Promise<string[]> =>
    (await net.addresses(filter)).map(({ prefix }) => prefix);
  t.deepEqual(await prefixes({ family: 4 }), ["127.0.0.1/8", "10.0.0.1/24"]);
  t.deepEqual(await prefixes({ family: 4, index }), ["10.0.0.1/24"]);
  t.true((await prefixes({ family: 6 })).includes("::1/128"));
});

/** A route in the words of `ip -j -d route show table all`. */
function inWordsOfIp(route: Route, names: ReadonlyMap<number, string>): Json {
  const { destination, family } = route;
  const host = destination.endsWith(family === 4 ? "/32" : "/128");
  const everything = destination.endsWith("/0");
  const tables: Readonly<Record<number, string>> = { 254: "main", 255: "local" };
  const protocols: Readonly<Record<number, string>> = { 2: "kernel", 3: "boot", 4: "static" };
  return {
    dst: everything
      ? "default"
      : host
        ? destination.slice(0, destination.indexOf("/"))
        : destination,
    type: route.type,
    table: tables[route.table] ?? String(route.table),
    protocol: protocols[route.protocol] ?? String(route.protocol),
    scope: route.scope,
    ...(route.link === undefined ? {} : { dev: names.get(route.link) }),
    ...(route.gateway === undefined
      ? {}
      : familyOf(route.gateway) === family
        ? { gateway: route.gateway }
        : { via: { family: "inet6", host: route.gateway } }),
    ...(route.source === undefined ? {} : { prefsrc: route.source }),
    ...(route.metric === 0 && family === 4 ? {} : { metric: route.metric }),
  };
}

async function routesOfIp(): Promise<readonly Json[]> {
  return [
    ...(await json("ip", "-j", "-4", "-d", "route", "show", "table", "all")),
    ...(await json("ip", "-j", "-6", "-d", "route", "show", "table", "all")),
  ];
}

const byText = (a: unknown, b: unknown): number => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);

test.serial("every route reads the same to us and to ip", async (t) => {
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"));
  await net.addAddress(index, parseIpPrefix("fd00::1/64"), { noDad: true });
  const gateway = parseIp("192.168.123.7");
  const six = parseIp("fd00::2");
  const wanted = [
    { destination: parseCidr("0.0.0.0/0"), gateway, protocol: 73 },
    { destination: parseCidr("10.1.0.0/16"), gateway, metric: 5, mtu: 1300 },
    { destination: parseCidr("10.2.0.0/16"), link: index, source: parseIp("192.168.123.1") },
    {
      destination: parseCidr("10.3.0.1/32"),
      gateway: parseIp("172.31.0.1"),
      link: index,
      onlink: true,
    },
    { destination: parseCidr("10.4.0.0/16"), gateway: six, link: index },
    { destination: parseCidr("10.5.0.0/16"), gateway, table: 1000 },
    { destination: parseCidr("10.6.0.0/16"), type: "blackhole" as const },
    { destination: parseCidr("::/0"), gateway: six, protocol: 73 },
    { destination: parseCidr("fd01::/64"), link: index, metric: 7 },
    { destination: parseCidr("fd02::1/128"), gateway: six, table: 1000 },
  ];
  for (const route of wanted) await net.addRoute(route);
  const names = new Map((await net.links()).map((link) => [link.index, link.name]));
  // IPv6 makes routes in its own time: take a reading that nothing came in between.
  let seen = await routesOfIp();
  let routes = await net.routes();
  for (let again = await routesOfIp(); again.length !== seen.length; again = await routesOfIp()) {
    seen = again;
    routes = await net.routes();
  }
  const words = ["dst", "type", "table", "protocol", "scope", "dev", "gateway", "via", "prefsrc"];
  const fields = [...words, "metric"];
  const chosen = seen.map((route) =>
    Object.fromEntries(fields.filter((f) => f in route).map((f) => [f, route[f]])),
  );
  // ip leaves out what our reading leaves out, but names `lo` for routes without a link in use.
  const ours = routes.map((route) => inWordsOfIp(route, names));
  const order = (list: readonly Json[]): Json[] =>
    list
      .map((r) => Object.fromEntries(fields.filter((f) => f in r).map((f) => [f, r[f]])))
      .sort(byText);
  t.deepEqual(order(ours), order(chosen));
  t.is(routes.find(({ mtu }) => mtu === 1300)?.destination, "10.1.0.0/16" as never);
  t.is(routes.find(({ onlink }) => onlink)?.destination, "10.3.0.1/32" as never);
  for (const { destination, table } of wanted) {
    const unwanted = { destination, ...(table === undefined ? {} : { table }) };
    t.true(await net.deleteRoute(unwanted), destination);
    t.false(await net.deleteRoute(unwanted), destination);
  }
  t.deepEqual(await net.routes({ table: 1000 }), []);
});

test.serial("routes are filtered, replaced, and refused with a reason", async (t) => {
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"));
  const destination = parseCidr("10.1.0.0/16");
  await net.addRoute({ destination, gateway: parseIp("192.168.123.7"), protocol: 73 });
  await t.throwsAsync(
    net.addRoute({ destination, gateway: parseIp("192.168.123.8"), protocol: 73 }),
    { message: /^Cannot add route 10.1.0.0\/16 via 192.168.123.8: EEXIST/ },
  );
  await net.replaceRoute({ destination, gateway: parseIp("192.168.123.9"), protocol: 73 });
  t.deepEqual(
    (await net.routes({ protocol: 73 })).map(({ gateway }) => gateway),
    ["192.168.123.9" as Ip],
  );
  t.is((await net.routes({ family: 4, table: 254, link: index })).length, 2);
  t.deepEqual(await net.routes({ table: 4242 }), []);
  await t.throwsAsync(
    net.addRoute({ destination: parseCidr("10.2.0.0/16"), gateway: parseIp("172.31.0.1") }),
    { message: /ENETUNREACH \(Nexthop has invalid gateway\)/ },
  );
});

test.serial("many addresses are asked the way to at once", async (t) => {
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"));
  await net.addAddress(index, parseIpPrefix("fd00:9::1/64"), { noDad: true });
  const gateway = parseIp("192.168.123.9");
  await net.addRoute({ destination: parseCidr("10.1.0.0/16"), gateway });
  const asked = ["192.168.123.7", "10.1.2.3", "172.31.0.1", "fd00:9::7", "fd00:8::1"].map((text) =>
    parseIp(text),
  );
  // More than one batch holds.
  const many = Array.from({ length: 60 }, () => asked).flat();
  const routes = await net.routesTo(many);
  t.is(routes.length, many.length);
  for (const start of [0, 295]) {
    const [direct, far, none, six, noneSix] = routes.slice(start, start + 5);
    t.like(direct, { link: index, destination: "192.168.123.7/32", gateway: undefined });
    t.like(far, { link: index, gateway });
    t.like(six, { link: index, gateway: undefined });
    t.deepEqual([none, noneSix], [undefined, undefined]);
  }
});

test.serial("a route with several ways is read", async (t) => {
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"));
  const hop = (last: number, weight: number): string[] => [
    "nexthop",
    "via",
    `192.168.123.${last}`,
    "weight",
    String(weight),
  ];
  await run(["ip", "route", "add", "10.1.0.0/16", ...hop(7, 1), ...hop(8, 3)]);
  const [route] = (await net.routes()).filter(({ nextHops }) => nextHops !== undefined);
  t.deepEqual(route?.nextHops, [
    { gateway: "192.168.123.7" as Ip, link: index, weight: 1, onlink: false },
    { gateway: "192.168.123.8" as Ip, link: index, weight: 3, onlink: false },
  ]);
});

test.serial("neighbours are set, changed, listed and forgotten", async (t) => {
  const mac = parseMac("52:54:00:00:00:09");
  for (const address of [parseIp("192.168.123.9"), parseIp("fd00::9")]) {
    await net.replaceNeighbour({ index, address, mac });
    const second = { index, address, mac: parseMac("52:54:00:00:00:0a"), protocol: 73 };
    await net.replaceNeighbour(second);
    const found = (await net.neighbours({ index })).find((entry) => entry.address === address);
    t.like(found, { mac: "52:54:00:00:00:0a", state: "permanent", router: false, protocol: 73 });
    const [seen] = await json("ip", "-j", "neigh", "show", "to", address, "dev", "hyper0");
    t.like(seen, { dst: address, lladdr: "52:54:00:00:00:0a", state: ["PERMANENT"] });
    await net.replaceNeighbour({ index, address, mac, state: "stale" });
    t.like(
      (await net.neighbours({ index })).find((entry) => entry.address === address),
      { mac, state: "stale" },
    );
    t.true(await net.deleteNeighbour(index, address));
    const gone = (await net.neighbours({ index })).find((entry) => entry.address === address);
    t.true(gone === undefined || gone.state === "failed", "the kernel forgets it, at once or soon");
    t.false(await net.deleteNeighbour(9999, address));
  }
  t.true((await net.neighbours({ family: 4 })).every(({ address }) => familyOf(address) === 4));
});

test.serial("forwarding entries of a bridge", async (t) => {
  const port = (await net.link("va"))?.index as number;
  const mac = parseMac("52:54:00:00:00:0b");
  await net.addFdb({ index: port, mac, table: "master" });
  await t.throwsAsync(net.addFdb({ index: port, mac, table: "master" }), { message: /EEXIST/ });
  await net.addFdb({ index: port, mac, table: "master", sticky: true }, "replace");
  t.like(
    (await net.fdb({ master: index })).find((entry) => entry.mac === mac),
    {
      index: port,
      table: "master",
      state: "static",
      master: index,
      sticky: true,
    },
  );
  const seen = await json("bridge", "-j", "fdb", "show", "br", "hyper0");
  t.like(
    seen.find((entry) => entry["mac"] === mac),
    {
      ifname: "va",
      state: "static",
      flags: ["sticky"],
    },
  );
  t.true(await net.deleteFdb({ index: port, mac, table: "master" }));
  t.false(await net.deleteFdb({ index: port, mac, table: "master" }));
});

test.serial("forwarding entries of a VXLAN", async (t) => {
  const vx = await net.addVxlan({
    name: "vx",
    vxlan: { id: 42, local: parseIp("127.0.0.1"), port: 4789, learning: false },
  });
  const everyone = parseMac("00:00:00:00:00:00");
  const mac = parseMac("52:54:00:00:00:0c");
  const entry = { index: vx.index, table: "self" as const };
  for (const remote of ["127.0.0.2", "127.0.0.3"])
    await net.addFdb({ ...entry, mac: everyone, remote: parseIp(remote) }, "append");
  await net.addFdb({ ...entry, mac, remote: parseIp("127.0.0.2"), port: 4790, vni: 43 });
  const entries = await net.fdb({ index: vx.index });
  t.deepEqual(
    entries.filter((e) => e.mac === everyone).map(({ remote }) => remote),
    ["127.0.0.2" as Ip, "127.0.0.3" as Ip],
  );
  t.like(
    entries.find((e) => e.mac === mac),
    {
      table: "self",
      remote: "127.0.0.2",
      port: 4790,
      vni: 43,
    },
  );
  const seen = await json("bridge", "-j", "fdb", "show", "dev", "vx");
  t.like(
    seen.find((e) => e["mac"] === mac),
    { dst: "127.0.0.2", port: 4790, vni: 43 },
  );
  t.is(seen.length, 3);
  t.true(await net.deleteFdb({ ...entry, mac }));
});
