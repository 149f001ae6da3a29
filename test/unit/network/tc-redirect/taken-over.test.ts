/** What a machine takes over from a link in a namespace, alongside what Kata lets through. */
import test from "ava";
import { parseCidr, parseIp, parseIpPrefix, parseMac } from "../../../../core/address.ts";
import type { LinkAddress } from "../../../../linux/rtnetlink/address.ts";
import type { Neighbour, NeighbourState } from "../../../../linux/rtnetlink/neighbour.ts";
import type { Route } from "../../../../linux/rtnetlink/route.ts";
import { forGuest } from "../../../../network/tc-redirect/for-guest.ts";
import { type ObservedNamespaceLink, takenOver } from "../../../../network/tc-redirect/adopted.ts";

const mac = parseMac("02:00:00:00:00:02");

const address = (prefix: string, more: Partial<LinkAddress> = {}): LinkAddress => ({
  index: 5,
  prefix: parseIpPrefix(prefix),
  scope: "global",
  permanent: true,
  tentative: false,
  dadFailed: false,
  deprecated: false,
  noPrefixRoute: false,
  ...more,
});

function route(destination: string, more: Partial<Route> = {}): Route {
  const family = destination.includes(":") ? 6 : 4;
  return {
    family,
    destination: parseCidr(destination),
    link: 5,
    table: 254,
    protocol: 3,
    scope: "global",
    type: "unicast",
    metric: family === 4 ? 0 : 1024,
    onlink: false,
    dead: false,
    ...more,
  };
}

const neighbour = (
  ip: string,
  state: NeighbourState,
  more: Partial<Neighbour> = {},
): Neighbour => ({
  index: 5,
  address: parseIp(ip),
  mac,
  state,
  router: false,
  proxy: false,
  externallyLearned: false,
  ...more,
});

const observed = (more: Partial<ObservedNamespaceLink> = {}): ObservedNamespaceLink => ({
  link: {
    index: 5,
    name: "eth0",
    up: true,
    running: true,
    carrier: true,
    loopback: false,
    operState: "up",
    mtu: 1450,
    group: 0,
    altNames: [],
    mac,
  },
  addresses: [],
  routes: [],
  neighbours: [],
  ...more,
});

test("a bare link gives its MAC and MTU, and that it asks for no MACs when it does not", (t) => {
  const plain = observed();
  t.deepEqual(takenOver(plain), { mac, mtu: 1450, addresses: [], routes: [], neighbours: [] });
  const silent = observed({ link: { ...plain.link, noArp: true } });
  t.true(takenOver(silent).noArp);
});

test("link-local addresses are left out: the guest's kernel makes its own", (t) => {
  const addresses = [
    address("10.1.0.2/24"),
    address("169.254.3.4/32", { scope: "link" }),
    address("fd00::2/64"),
    address("fe80::1/64", { scope: "link" }),
  ];
  t.deepEqual(takenOver(observed({ addresses })).addresses, ["10.1.0.2/24", "fd00::2/64"] as never);
});

test("routes that the kernel made, of other tables and of other links are left out", (t) => {
  const routes = [
    route("0.0.0.0/0", { gateway: parseIp("10.1.0.1") }),
    route("10.1.0.0/24", { protocol: 2 }),
    route("10.2.0.0/24", { table: 100 }),
    route("10.3.0.0/24", { type: "blackhole" }),
    route("10.4.0.0/24", { link: 6 }),
    route("ff00::/8", { type: "multicast", table: 255 }),
    // What ptp sets: the gateway alone is on the link.
    route("10.1.0.1/32", { scope: "link", source: parseIp("10.1.0.2") }),
    route("fd00:9::/64", { metric: 7, mtu: 1300, advmss: 1240 }),
  ];
  t.deepEqual(takenOver(observed({ routes })).routes, [
    { destination: parseCidr("10.1.0.1/32"), source: parseIp("10.1.0.2") },
    { destination: parseCidr("fd00:9::/64"), metric: 7, mtu: 1300, advmss: 1240 },
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.1.0.1") },
  ]);
});

test("neighbours that another program set are taken over, those that were learnt are not", (t) => {
  const { mac: _, ...without } = neighbour("10.1.0.9", "permanent");
  const neighbours = [
    neighbour("10.1.0.1", "permanent"),
    neighbour("10.1.0.3", "reachable"),
    neighbour("10.1.0.4", "stale"),
    neighbour("10.1.0.5", "noarp"),
    neighbour("224.0.0.1", "permanent"),
    neighbour("ff02::1", "permanent"),
    neighbour("fd00::1", "permanent"),
    without,
  ];
  t.deepEqual(takenOver(observed({ neighbours })).neighbours, [
    { address: parseIp("10.1.0.1"), mac },
    { address: parseIp("fd00::1"), mac },
  ]);
});

test("a guest without IPv6 is spared everything of it, one with it gets all", (t) => {
  const taken = takenOver(
    observed({
      addresses: [address("10.1.0.2/24"), address("fd00::2/64")],
      routes: [
        route("0.0.0.0/0", { gateway: parseIp("10.1.0.1") }),
        route("10.9.0.0/16", { gateway: parseIp("fd00::1") }),
        route("::/0", { gateway: parseIp("fd00::1") }),
      ],
      neighbours: [neighbour("10.1.0.1", "permanent"), neighbour("fd00::1", "permanent")],
    }),
  );
  t.deepEqual(forGuest(taken, { ipv6: true }), taken);
  t.deepEqual(forGuest(taken, { ipv6: false }), {
    mac,
    mtu: 1450,
    addresses: [parseIpPrefix("10.1.0.2/24")],
    routes: [{ destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.1.0.1") }],
    neighbours: [{ address: parseIp("10.1.0.1"), mac }],
  });
});
