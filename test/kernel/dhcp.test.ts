import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { PortLease } from "../../daemon/dhcp/lease.ts";
import { PortAnswers } from "../../daemon/dhcp/port-answers.ts";
import { run } from "../../linux/processes/command.ts";
import { PacketStream } from "../../linux/packets/packet-stream.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { Networkd } from "../lab/dhcp-client.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

const bridge = "br0" as IfName;
let host: HostNetwork;

const macOf = (n: number): Mac => `52:54:00:00:00:0${n}` as Mac;
const lease = (n: number, more: Partial<PortLease> = {}): PortLease => ({
  mac: macOf(n),
  mtu: 1400,
  hostname: `web${n}`,
  search: ["podnet"],
  v4: {
    address: `192.168.123.${n}/24` as IpPrefix,
    server: "192.168.123.1" as Ip,
    router: "192.168.123.1" as Ip,
    routes: [{ destination: "10.9.0.0/16" as Cidr, gateway: "192.168.123.7" as Ip }],
    dns: ["192.168.123.1" as Ip],
  },
  v6: {
    addresses: [`fd00::${n}/64` as IpPrefix],
    onLink: ["fd00::/64" as Cidr],
    isRouter: true,
    routes: ["fd09::/48" as Cidr],
    dns: ["fd00::1" as Ip],
  },
  ...more,
});

/** A guest: a namespace whose card's other end is a port of the bridge. */
async function guest(n: number): Promise<string> {
  const name = `pod${n}`;
  await ip(`netns add ${name}`);
  await ip(`link add name tap${n} type veth peer name eth0 netns ${name}`);
  await ip(`link set dev tap${n} addrgenmode none`);
  await ip(`link set dev tap${n} master ${bridge} up`);
  await ip(`-n ${name} link set dev eth0 address ${macOf(n)}`);
  await ip(`-n ${name} link set dev lo up`);
  return name;
}

interface Reported {
  readonly taken: Set<string>;
  readonly ignored: string[];
  readonly notes: string[];
}
const thrown = (error: unknown): void => {
  throw error;
};
function answers(n: number, given = lease(n), failed = thrown): PortAnswers & Reported {
  const reported: Reported = { taken: new Set(), ignored: [], notes: [] };
  const port = new PortAnswers({
    link: `tap${n}` as IfName,
    lease: given,
    router: () => host.observe.router(bridge),
    taken: (addresses) => addresses.forEach((address) => reported.taken.add(address)),
    ignored: (why) => reported.ignored.push(why),
    note: (text) => void reported.notes.push(text),
    failed,
  });
  return Object.assign(port, reported);
}

test.serial.before(async () => {
  await ownNetns();
  await ip(`link add name ${bridge} type bridge forward_delay 0`);
  await ip(`address add 192.168.123.1/24 dev ${bridge}`);
  await ip(`address add fd00::1/64 dev ${bridge} nodad`);
  await ip(`link set dev ${bridge} up`);
  host = openHostNetwork({ iptables: "off", chain: "HYPER" });
});
test.serial.after.always(async () => {
  await host?.[Symbol.asyncDispose]();
});

test.serial(
  "a stock client gets addresses, gateways, routes, servers and MTU of both families",
  async (t) => {
    const name = await guest(2);
    using port = answers(2);
    await using client = new Networkd(name);
    const shown = await client.until([
      /inet 192\.168\.123\.2\/24 /,
      /mtu 1400 /,
      /^default via 192\.168\.123\.1 dev eth0 proto dhcp/m,
      /^10\.9\.0\.0\/16 via 192\.168\.123\.7 dev eth0/m,
      /inet6 fd00::2\/128 /,
      /^fd00::\/64 dev eth0 proto ra/m,
      /^fd09::\/48 via fe80::\S+ dev eth0/m,
      /^default via fe80::\S+ dev eth0 proto ra/m,
    ]);
    t.notRegex(shown, /inet6 fd00:\S*ff:fe/, "it makes itself no address of the network");
    t.true(port.taken.has("192.168.123.2/24"));
    t.true(port.taken.has("fd00::2/64"));
    for (const server of ["192.168.123.1", "fd00::1"])
      t.regex(
        (await run(["ip", "netns", "exec", name, "ping", "-c1", "-W5", server])).stdout,
        /1 received/,
      );
  },
);

test.serial(
  "another card on the same port is not answered, nor is the same one at another's port",
  async (t) => {
    const name = await guest(3);
    const other = await guest(4);
    using port = answers(3);
    await ip(`-n ${name} link set dev eth0 address 52:54:00:00:00:99`);
    {
      await using _client = new Networkd(name, "LinkLocalAddressing=ipv6\n");
      for (let i = 0; i < 80 && port.ignored.length < 3; i++) await delay(100);
      await delay(500);
      t.notRegex((await run(["ip", "-n", name, "address"])).stdout, /192\.168\.123|fd00::/);
    }
    t.true(port.ignored.length >= 3, "it has asked");
    t.deepEqual([...new Set(port.ignored)], ["dhcp_other_mac"]);
    await ip(`-n ${name} link set dev eth0 down`);
    await ip(`-n ${name} link set dev eth0 address ${macOf(3)}`);
    // Behind a port that answers no guest; its broadcasts reach the other's port, from the bridge.
    await ip(`-n ${other} link set dev eth0 address ${macOf(4)}`);
    {
      await using _client = new Networkd(other);
      await delay(2500);
      t.notRegex((await run(["ip", "-n", other, "address"])).stdout, /192\.168\.123|fd00::/);
    }
    await using client = new Networkd(name);
    await client.until([/inet 192\.168\.123\.3\/24 /, /inet6 fd00::3\/128 /]);
  },
);

test.serial("what one is answered the others do not hear", async (t) => {
  const name = await guest(5);
  const listener = await guest(6);
  using port = answers(5);
  await ip(`-n ${listener} link set dev eth0 up`);
  const heard = spawn("ip", [
    "netns",
    "exec",
    listener,
    "tcpdump",
    "-l",
    "-n",
    "-i",
    "eth0",
    "-p",
    "udp port 67 or udp port 68 or udp port 546 or udp port 547 or icmp6",
  ]);
  let text = "";
  heard.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  await once(heard.stderr, "data");
  {
    await using client = new Networkd(name);
    await client.until([/inet 192\.168\.123\.5\/24 /, /inet6 fd00::5\/128 /]);
  }
  await delay(300);
  heard.kill("SIGTERM");
  await once(heard, "exit");
  t.regex(text, /0\.0\.0\.0\.68 > 255\.255\.255\.255\.67/, "the question it hears");
  t.notRegex(text, /\.67 > /);
  t.notRegex(text, /router advertisement/);
  t.notRegex(text, /\.547 > /);
  t.is(port.ignored.length, 0);
});

test.serial(
  "without IPv6 there is no router, and without a default route none is named",
  async (t) => {
    const name = await guest(7);
    const { v6: _none, v4, ...rest } = lease(7);
    const { router: _aside, ...plain } = v4 ?? { router: undefined };
    using _port = answers(7, { ...rest, v4: plain as NonNullable<PortLease["v4"]> });
    await using client = new Networkd(name);
    const shown = await client.until([/inet 192\.168\.123\.7\/24 /, /^10\.9\.0\.0\/16 via/m]);
    await delay(1500);
    t.notRegex(shown, /^default/m);
    t.notRegex((await run(["ip", "-n", name, "-6", "route"])).stdout, /proto ra/);
  },
);

test.serial("a guest that floods its port is listened to so much and no more", async (t) => {
  const name = await guest(8);
  using port = answers(8);
  await ip(`-n ${name} link set dev eth0 up`);
  const flood = `import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
arp = bytes.fromhex("ffffffffffff" "525400000008" "0806" "0001080006040001" "525400000008" "c0a87b08" "000000000000" "c0a87b01")
for _ in range(50000): s.send(arp)`;
  const before = process.cpuUsage();
  await run(["ip", "netns", "exec", name, "python3", "-c", flood]);
  // What it shows is seen, and what is not read is reported.
  while (!(port.taken.has("192.168.123.8/24") && port.ignored.includes("dhcp_flood")))
    await delay(50);
  const used = process.cpuUsage(before);
  t.true(used.user + used.system < 2_000_000, `${used.user + used.system} µs`);
});

test.serial(
  "a port whose socket fails is answered again by a new socket, which is reported once and counted",
  async (t) => {
    const name = await guest(9);
    await ip(`-n ${name} link set dev eth0 up`);
    const { next } = PacketStream.prototype;
    t.teardown(() => void (PacketStream.prototype.next = next));
    let failures = 2;
    PacketStream.prototype.next = function (limit, signal) {
      if (failures-- > 0) return Promise.reject(new Error("Injected failure: recvmsg"));
      return next.call(this, limit, signal);
    };
    const failed: unknown[] = [];
    using port = answers(9, lease(9), (error) => void failed.push(error));
    const arp = `import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
s.send(bytes.fromhex("ffffffffffff" "525400000009" "0806" "0001080006040001" "525400000009" "c0a87b09" "000000000000" "c0a87b01"))`;
    const until = performance.now() + 20_000;
    while (!port.taken.has("192.168.123.9/24") && performance.now() < until) {
      await run(["ip", "netns", "exec", name, "python3", "-c", arp]);
      await delay(50);
    }
    t.true(port.taken.has("192.168.123.9/24"), "it is listened to again");
    t.regex(String(failed), /^Error: Injected failure: recvmsg$/, "once, though it failed twice");
    t.deepEqual(port.ignored, ["dhcp_socket", "dhcp_socket"]);
    t.deepEqual(port.notes, ["answered again"]);
    await ip(`link del tap9`);
  },
);
