import test from "ava";
import { Flow } from "../../../../guest-init/channel/flow.ts";
import {
  checkForHyperstart,
  interfaceStep,
  missingRoutes,
  shortfalls,
} from "../../../../guest-init/channel/hyperstart-plan.ts";
import { parseIpAddr, parseIpRoute } from "../../../../guest-init/channel/iproute-text.ts";
import type { GuestConfig } from "../../../../guest-init/protocol/configure.ts";

const busyboxAddr = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast qlen 1000
    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    inet 192.168.123.2/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.9.0.2/16 brd 10.9.255.255 scope global eth0
    inet6 fe80::5054:ff:fe12:3456/64 scope link
3: eth1@if7: <BROADCAST,MULTICAST> mtu 1300 qdisc noop state DOWN group default
    link/ether 52:54:00:00:00:02 brd ff:ff:ff:ff:ff:ff link-netnsid 0
`;

test("`ip addr`, busybox's and iproute2's", (t) => {
  t.deepEqual(parseIpAddr(busyboxAddr) as unknown[], [
    {
      name: "eth0",
      index: 2,
      mtu: 1500,
      up: true,
      mac: "52:54:00:12:34:56",
      addresses: ["192.168.123.2/24", "10.9.0.2/16"],
    },
    { name: "eth1", index: 3, mtu: 1300, up: false, mac: "52:54:00:00:00:02", addresses: [] },
  ]);
});

test("`ip route`", (t) => {
  const text = `default via 192.168.123.1 dev eth0 
192.168.123.0/24 dev eth0 scope link  src 192.168.123.2 
172.21.0.5 dev eth0 metric 5
blackhole 10.0.0.0/8
nonsense dev
`;
  t.deepEqual(parseIpRoute(text) as unknown[], [
    { destination: "0.0.0.0/0", interface: "eth0", gateway: "192.168.123.1" },
    { destination: "192.168.123.0/24", interface: "eth0" },
    { destination: "172.21.0.5/32", interface: "eth0", metric: 5 },
  ]);
});

test("text no guest should print yields nothing and throws nothing", (t) => {
  for (const text of [
    "",
    "\u0000\n\n",
    "2: eth0: <UP> mtu x",
    "link/ether zz\ninet 1/2 scope global",
  ])
    t.deepEqual([parseIpAddr(text), parseIpRoute(text)], [[], []]);
  t.deepEqual(
    parseIpAddr("1: a: <UP> mtu 1\n link/ether nonsense\n inet 999.1.1.1/8 scope global"),
    [],
  );
});

const config = {
  requestId: "r",
  interfaces: [{ mac: "52:54:00:12:34:56", name: "eth0", addresses: ["192.168.123.2/24"] }],
  routes: [{ destination: "0.0.0.0/0", gateway: "192.168.123.1", interface: "eth0" }],
  neighbours: [],
  waitMs: 0,
} as unknown as GuestConfig;

test("a hyperstart is not asked for what it cannot do", (t) => {
  t.notThrows(() => checkForHyperstart(config));
  for (const [change, field] of [
    [
      { interfaces: [{ ...config.interfaces[0], addresses: ["fd00::2/64"] }] },
      "interfaces[0].addresses[0]",
    ],
    [{ routes: [{ destination: "::/0", interface: "eth0" }] }, "routes[0].destination"],
    [{ routes: [{ ...config.routes[0], metric: 5 }] }, "routes[0].metric"],
    [{ dns: { servers: ["fd00::53"], search: [], options: [] } }, "dns.servers[0]"],
    [{ neighbours: [{}] }, "neighbours[0]"],
  ] as const)
    t.like(
      t.throws(() => checkForHyperstart({ ...config, ...change } as GuestConfig), {
        code: "UNSUPPORTED",
      }),
      { field },
    );
});

test("SETUPINTERFACE is for the difference alone, and not sent for none", (t) => {
  const [found] = parseIpAddr(busyboxAddr);
  const [wanted] = config.interfaces;
  if (found === undefined || wanted === undefined) throw new Error("nothing to compare");
  t.deepEqual(interfaceStep(wanted, found), {
    device: "eth0",
    addresses: [{ address: "10.9.0.2" as never, length: 16, remove: true }],
  });
  t.is(interfaceStep({ ...wanted, addresses: found.addresses }, found), undefined);
  t.deepEqual(interfaceStep({ ...wanted, name: "net0", mtu: 1300 }, { ...found, up: false }), {
    device: "eth0",
    newName: "net0",
    addresses: [{ address: "10.9.0.2" as never, length: 16, remove: true }],
    mtu: 1300,
  });
});

test("what was acknowledged and not done is found out", (t) => {
  const interfaces = parseIpAddr(busyboxAddr);
  const well = { loopbackUp: true, hostname: "", dns: { servers: [], search: [], options: [] } };
  t.deepEqual(shortfalls(config, [], { ...well, interfaces, routes: [] }), [
    "eth0 still has 10.9.0.2/16",
    "route 0.0.0.0/0 via 192.168.123.1 is missing",
  ]);
  t.deepEqual(shortfalls(config, [], { ...well, interfaces: [], routes: config.routes }), [
    "interface 52:54:00:12:34:56 is missing",
  ]);
  t.deepEqual(missingRoutes(config.routes, config.routes), []);
});

test("flow `next`: frames share a chunk, and nothing goes out before all is accounted for", (t) => {
  const flow = new Flow();
  flow.setMode("next");
  flow.enqueue("ping", new Uint8Array(300).fill(1));
  flow.enqueue("ping", new Uint8Array(300).fill(2));
  t.is(flow.queued, 600);
  t.is(flow.take()?.bytes.length, 512);
  t.is(flow.take(), undefined);
  flow.consumed(8);
  flow.consumed(503);
  t.is(flow.take(), undefined);
  flow.consumed(1);
  t.is(flow.take()?.bytes.length, 88);
  t.throws(() => flow.consumed(89), { code: "AGENT_PROTOCOL" });
});

test("flow `identifying` and `free` do not wait", (t) => {
  const flow = new Flow();
  flow.enqueue("ping", new Uint8Array(600));
  flow.consumed(1_000_000);
  t.is(flow.take()?.bytes.length, 512);
  t.is(flow.take()?.bytes.length, 88);
  flow.setMode("free");
  flow.enqueue("ping", new Uint8Array(100_000));
  t.is(flow.take()?.bytes.length, 65_536);
  t.is(flow.take()?.bytes.length, 34_464);
  flow.consumed(100_000);
  t.throws(() => flow.consumed(1), { code: "AGENT_PROTOCOL" });
});
