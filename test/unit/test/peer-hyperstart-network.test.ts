import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { ACK, ERROR, eth0, configured, byDefault, setUp } from "./fixtures/host.ts";

// The stand-in against what was recorded of the real hyperstart 1.1.0: numbers and bytes are
// written by hand.

test("SETUPINTERFACE refuses what it cannot read, without a wait", async (t) => {
  const { host, peer } = await setUp(t, { links: [eth0] });
  const at = performance.now();
  const address = (ipAddress: string, netMask: string): object => ({
    device: "eth0",
    ipAddresses: [{ ipAddress, netMask }],
  });
  for (const payload of [
    "{",
    "null",
    { device: "eth0", colour: "red" },
    { newDeviceName: "eth0" },
    address("10.0.0.300", "24"),
    address("10.0.0.3", "255.0.255.0"),
    address("10.0.0.3", "33"),
    address("fd00::1", "64"),
  ])
    t.is(await host.ask(20, payload), "ERROR", JSON.stringify(payload));
  // Each would be of two seconds.
  t.true(performance.now() - at < 8 * 1000);
  t.deepEqual(peer.state.links[1]?.addresses, []);
});

test("an unknown device holds the whole agent for two seconds", async (t) => {
  const { host } = await setUp(t);
  const at = performance.now();
  host.send(20, { device: "eth9", mtu: 0 });
  host.send(12);
  host.frame(7n, "x");
  t.is((await host.reply()).code, ERROR);
  const waited = performance.now() - at;
  t.true(waited > 1990 && waited < 4000, `${waited}`);
  t.is(host.tty.bytes.length, 0);
  t.is((await host.reply()).code, ACK);
  t.deepEqual(await host.ttyFrame(), { seq: 7n, data: "" });
});

test("a route by an unknown device is an ERROR after two seconds", async (t) => {
  const { host } = await setUp(t);
  const at = performance.now();
  t.is(await host.ask(21, { routes: [{ dest: "10.0.0.0/8", device: "eth9" }] }), "ERROR");
  t.true(performance.now() - at > 1990);
});

test("every form of mask and address is applied", async (t) => {
  const { host, peer } = await setUp(t, { links: [eth0] });
  const addresses = (): readonly string[] | undefined => peer.state.links[1]?.addresses;
  const ask = (...ipAddresses: object[]): Promise<string> =>
    host.ask(20, { device: "eth0", ipAddresses });
  t.is(await ask({ ipAddress: "192.168.123.2", netMask: "255.255.255.0" }), "ACK");
  t.is(await ask({ ipAddress: "10.9.0.2", netMask: "16" }), "ACK");
  t.is(await ask({ ipAddress: "10.10.0.2", netMask: "0x18" }), "ACK");
  t.is(
    await host.ask(20, { device: "eth0", ipAddress: "10.11.0.2", netMask: "255.255.0.0" }),
    "ACK",
  );
  t.is(
    await ask({ ipAddress: "10.12.0.2", netMask: "24" }, { ipAddress: "10.13.0.2", netMask: "24" }),
    "ACK",
  );
  t.deepEqual(addresses(), [
    "192.168.123.2/24",
    "10.9.0.2/16",
    "10.10.0.2/24",
    "10.11.0.2/16",
    "10.12.0.2/24",
    "10.13.0.2/24",
  ]);
  t.is(await ask({ ipAddress: "-10.9.0.2", netMask: "16" }), "ACK");
  t.false(addresses()?.includes("10.9.0.2/16"));
});

test("a duplicate address is acknowledged and changes nothing", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  const before = peer.state;
  const ipAddresses = [{ ipAddress: "192.168.123.2", netMask: "255.255.255.0" }];
  t.is(await host.ask(20, { device: "eth0", ipAddresses }), "ACK");
  t.deepEqual(peer.state, before);
});

test("runv's AddIP and SetMtu shapes take a live link's routes with them", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
  t.is(peer.state.routes.length, 3);
  const ipAddresses = [{ ipAddress: "10.9.0.2", netMask: "255.255.0.0" }];
  t.is(await host.ask(20, { device: "eth0", newDeviceName: "", ipAddresses, mtu: 0 }), "ACK");
  const connected = [
    { dest: "10.9.0.0/16", device: "eth0", connected: true },
    { dest: "192.168.123.0/24", device: "eth0", connected: true },
  ];
  t.deepEqual(peer.state.routes, connected);

  t.is(await host.ask(21, { routes: [byDefault] }), "ACK");
  t.is(peer.state.routes.length, 3);
  t.is(
    await host.ask(20, { device: "eth0", newDeviceName: "", ipAddresses: [], mtu: 1400 }),
    "ACK",
  );
  t.deepEqual(peer.state.routes, connected);
  t.like(peer.state.links[1], { mtu: 1400, up: true });
});

test("what the kernel refuses is acknowledged: second default, gateway out of reach, host bits", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured], routes: [byDefault] });
  const before = peer.state;
  for (const route of [
    { dest: "0.0.0.0/0", gateway: "192.168.123.1", device: "eth0" },
    { dest: "any", gateway: "192.168.123.254" },
    { dest: "10.0.0.0/8", gateway: "203.0.113.1", device: "eth0" },
    { dest: "10.0.0.1/8", gateway: "192.168.123.1" },
    { dest: "10.0.0.0/8" },
  ])
    t.is(await host.ask(21, { routes: [route] }), "ACK");
  t.deepEqual(peer.state, before);
});

test("destinations: dotted mask, single address, four ways to say default", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  const gateway = "192.168.123.1";
  t.is(await host.ask(21, { routes: [{ dest: "172.20.0.0/255.255.0.0", gateway }] }), "ACK");
  t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
  t.deepEqual(peer.state.routes, [
    { dest: "172.20.0.0/16", gateway, device: "eth0", connected: false },
    { dest: "172.21.0.5/32", device: "eth0", connected: false },
    { dest: "192.168.123.0/24", device: "eth0", connected: true },
  ]);
  for (const dest of ["0.0.0.0/0", "default", "any", "all"]) {
    const fresh = await setUp(t, { links: [configured] });
    t.is(await fresh.host.ask(21, { routes: [{ dest, gateway }] }), "ACK");
    t.deepEqual(fresh.peer.state.routes[0], {
      dest: "default",
      gateway,
      device: "eth0",
      connected: false,
    });
  }
});

test("routes: no destination or an empty gateway is an ERROR, none at all an ACK", async (t) => {
  const { host } = await setUp(t, { links: [configured] });
  t.is(await host.ask(21, { routes: [{ gateway: "192.168.123.1" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [{ dest: "default", gateway: "" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [{ dest: "fd00::/8" }] }), "ERROR");
  t.is(await host.ask(21, { routes: [] }), "ACK");
  t.is(await host.ask(21, "{}"), "ACK");
});

test("400 routes in one message", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  const routes = Array.from({ length: 400 }, (_, i) => ({
    dest: `10.${i >> 8}.${i & 255}.0/24`,
    device: "eth0",
  }));
  t.is(await host.ask(21, { routes }), "ACK");
  t.is(peer.state.routes.length, 401);
});

test("a hot-plugged card is found by name, renamed and given its MTU", async (t) => {
  const { host, peer } = await setUp(t, { links: [configured] });
  host.send(20, {
    device: "eth1",
    newDeviceName: "eth5",
    ipAddresses: [{ ipAddress: "10.5.0.2", netMask: "255.255.255.0" }],
    mtu: 1300,
  });
  await sleep(50);
  peer.addLink("eth1", "52:54:00:11:22:44");
  t.is((await host.reply()).code, ACK);
  t.deepEqual(peer.state.links[2], {
    name: "eth5",
    mac: "52:54:00:11:22:44",
    mtu: 1300,
    up: true,
    addresses: ["10.5.0.2/24"],
  });
  t.is(await host.ask(25, { device: "eth5" }), "ACK");
  t.deepEqual(
    peer.state.links.map(({ name }) => name),
    ["lo", "eth0"],
  );
  t.is(await host.ask(25, { device: "eth5" }), "ERROR");
});

// Lines as busybox 1.35 and iproute2 6.1 printed them on a real kernel with the same addresses and
// routes.
const busybox = {
  "ip addr show dev eth0": `\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast qlen 1000
    link/ether 52:54:00:11:22:33 brd ff:ff:ff:ff:ff:ff
    inet 192.168.123.2/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.9.0.2/16 scope global eth0
       valid_lft forever preferred_lft forever
    inet 192.168.123.9/24 scope global secondary eth0
       valid_lft forever preferred_lft forever
    inet6 fe80::5054:ff:fe11:2233/64 scope link${" "}
       valid_lft forever preferred_lft forever
`,
  "ip -4 -o addr": `\
2: eth0    inet 192.168.123.2/24 scope global eth0\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.9.0.2/16 scope global eth0\\       valid_lft forever preferred_lft forever
2: eth0    inet 192.168.123.9/24 scope global secondary eth0\\       valid_lft forever preferred_lft forever
`,
  "ip route": `\
default via 192.168.123.1 dev eth0${" "}
10.9.0.0/16 dev eth0 scope link  src 10.9.0.2${" "}
172.21.0.5 dev eth0 scope link${" "}
192.168.123.0/24 dev eth0 scope link  src 192.168.123.2${" "}
`,
  "ip link": `\
1: lo: <LOOPBACK> mtu 65536 qdisc noop qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast qlen 1000
    link/ether 52:54:00:11:22:33 brd ff:ff:ff:ff:ff:ff
`,
  "busybox cat /sys/class/net/eth0/operstate": "up\n",
};

const iproute2 = {
  "ip -4 addr show dev eth0": `\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc pfifo_fast state UP group default qlen 1000
    inet 192.168.123.2/24 scope global eth0
       valid_lft forever preferred_lft forever
    inet 10.9.0.2/16 scope global eth0
       valid_lft forever preferred_lft forever
    inet 192.168.123.9/24 scope global secondary eth0
       valid_lft forever preferred_lft forever
`,
  "/sbin/ip route": `\
default via 192.168.123.1 dev eth0${" "}
10.9.0.0/16 dev eth0 proto kernel scope link src 10.9.0.2${" "}
172.21.0.5 dev eth0 scope link${" "}
192.168.123.0/24 dev eth0 proto kernel scope link src 192.168.123.2${" "}
`,
  "ip route show default": "default via 192.168.123.1 dev eth0 \n",
};

for (const [ip, printed] of Object.entries({ busybox, iproute2 })) {
  test(`ip prints as ${ip} does`, async (t) => {
    const { host } = await setUp(t, {
      links: [{ ...eth0, addresses: ["192.168.123.2/24", "10.9.0.2/16", "192.168.123.9/24"] }],
      routes: [byDefault],
      ip: ip as "busybox" | "iproute2",
    });
    t.is(await host.ask(21, { routes: [{ dest: "172.21.0.5", device: "eth0" }] }), "ACK");
    for (const [line, output] of Object.entries(printed))
      t.deepEqual(await host.run(...line.split(" ")), { output, errors: "", status: 0 }, line);
    const unknown = await host.run("ip", "addr", "show", "eth9");
    t.deepEqual(unknown, {
      output: "",
      errors:
        ip === "busybox" ? "ip: can't find device 'eth9'\n" : 'Device "eth9" does not exist.\n',
      status: 1,
    });
  });
}

test("the last address of a link takes its routes, the first of a subnet its seconds", async (t) => {
  const { host, peer } = await setUp(t, {
    links: [{ ...eth0, addresses: ["192.168.123.2/24", "192.168.123.9/24", "10.9.0.2/16"] }],
    routes: [byDefault],
  });
  const remove = (ipAddress: string, netMask: string): Promise<string> =>
    host.ask(20, { device: "eth0", ipAddresses: [{ ipAddress: `-${ipAddress}`, netMask }] });
  t.is(await remove("192.168.123.2", "24"), "ACK");
  t.deepEqual(peer.state.links[1]?.addresses, ["10.9.0.2/16"]);
  t.deepEqual(
    peer.state.routes.map(({ dest }) => dest),
    ["default", "10.9.0.0/16"],
  );
  t.is(await remove("10.9.0.2", "16"), "ACK");
  t.deepEqual(peer.state.routes, []);
});
