import test from "ava";
import {
  type Cidr,
  type Ip,
  type IpPrefix,
  ipToBytes,
  type Mac,
  macToBytes,
} from "../../../../core/address.ts";
import { answer } from "../../../../daemon/dhcp/answers.ts";
import { parseDhcp4 } from "../../../../daemon/dhcp/dhcp4.ts";
import { parseDhcp6, serverDuid } from "../../../../daemon/dhcp/dhcp6.ts";
import type { PortLease } from "../../../../daemon/dhcp/lease.ts";
import { type Ask, checksum, parseAsk } from "../../../../daemon/dhcp/packets.ts";

const mac = "52:54:00:00:00:02" as Mac;
const other = "52:54:00:00:00:99" as Mac;
const router = { mac: "02:00:00:00:00:01" as Mac, linkLocal: "fe80::1" as Ip };
const guest = "fe80::5054:ff:fe00:2" as Ip;

const lease: PortLease = {
  mac,
  mtu: 1400,
  hostname: "web",
  search: ["podnet", "example.org"],
  v4: {
    address: "192.168.123.2/24" as IpPrefix,
    server: "192.168.123.1" as Ip,
    router: "192.168.123.1" as Ip,
    routes: [{ destination: "10.0.0.0/9" as Cidr, gateway: "192.168.123.7" as Ip }],
    dns: ["192.168.123.1" as Ip],
  },
  v6: {
    addresses: ["fd00::2/64" as IpPrefix],
    onLink: ["fd00::/64" as Cidr],
    isRouter: true,
    routes: ["fd01::/48" as Cidr],
    dns: ["fd00::1" as Ip],
  },
};

/** A DHCPv4 message of a client, with options as they are. */
function dhcp4(
  options: readonly number[],
  { chaddr = mac, ciaddr = "0.0.0.0", giaddr = "0.0.0.0" } = {},
): Uint8Array {
  const bytes = Buffer.alloc(240);
  bytes.set([1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef]);
  bytes.set(ipToBytes(ciaddr as Ip), 12);
  bytes.set(ipToBytes(giaddr as Ip), 24);
  bytes.set(macToBytes(chaddr), 28);
  bytes.set([99, 130, 83, 99], 236);
  return Buffer.concat([bytes, Uint8Array.from([...options, 255])]);
}
const ask4 = (message: Uint8Array, from = mac): Ask => ({ kind: "dhcp4", from, message });
const ask6 = (message: readonly number[], from = mac): Ask => ({
  kind: "dhcp6",
  from,
  source: guest,
  message: Uint8Array.from(message),
});
const said = (ask: Ask, to = lease) => answer(ask, to, router);

/** The options of an answer to DHCPv4, by code, and the address it gives. */
function read4(frame: Uint8Array | undefined) {
  if (frame === undefined) return undefined;
  const message = frame.subarray(14 + 28);
  const options: Record<number, readonly number[]> = {};
  for (let at = 240; message[at] !== 255; ) {
    const length = message[at + 1] ?? 0;
    options[message[at] ?? 0] = [...message.subarray(at + 2, at + 2 + length)];
    at += 2 + length;
  }
  return { yiaddr: message.subarray(16, 20).join("."), type: options[53]?.[0], options };
}

const discover = [53, 1, 1];
const own = [...ipToBytes("192.168.123.2" as Ip)];
const ours = [...ipToBytes("192.168.123.1" as Ip)];

test("a client that looks for a server is offered its address, with all there is to know", (t) => {
  const { frame, taken } = said(ask4(dhcp4([...discover, 61, 3, 1, 2, 3])));
  t.is(taken, undefined, "it has not taken it yet");
  const offer = read4(frame);
  t.is(offer?.type, 2);
  t.is(offer?.yiaddr, "192.168.123.2");
  t.deepEqual(offer?.options, {
    1: [255, 255, 255, 0],
    3: ours,
    6: ours,
    12: [...Buffer.from("web")],
    15: [...Buffer.from("podnet")],
    26: [1400 >> 8, 1400 & 255],
    51: [0, 0x27, 0x8d, 0],
    53: [2],
    54: ours,
    58: [0, 0, 0x0e, 0x10],
    59: [0, 0x26, 0x3b, 0x80],
    61: [1, 2, 3],
    119: [
      6,
      ...Buffer.from("podnet"),
      0,
      7,
      ...Buffer.from("example"),
      3,
      ...Buffer.from("org"),
      0,
    ],
    121: [9, 10, 0, 192, 168, 123, 7, 0, ...ours],
  });
});

test("what is answered goes to the guest's own address, and its checksums hold", (t) => {
  const frame = said(ask4(dhcp4(discover))).frame ?? new Uint8Array(0);
  t.deepEqual([...frame.subarray(0, 6)], [...macToBytes(mac)]);
  t.deepEqual([...frame.subarray(30, 34)], own);
  t.deepEqual(checksum(frame.subarray(14, 34)), [0, 0]);
  const udp = frame.subarray(34);
  const pseudo = [...frame.subarray(26, 34), 0, 17, udp.length >> 8, udp.length & 255];
  t.deepEqual(checksum(Uint8Array.from([...pseudo, ...udp])), [0, 0]);
});

test("an address that is its own is granted, any other refused", (t) => {
  const selecting = said(ask4(dhcp4([53, 1, 3, 54, 4, ...ours, 50, 4, ...own])));
  t.is(read4(selecting.frame)?.type, 5);
  t.deepEqual(selecting.taken, ["192.168.123.2/24"]);
  t.is(read4(said(ask4(dhcp4([53, 1, 3, 50, 4, ...own]))).frame)?.type, 5, "after a restart of it");
  const renewed = dhcp4([53, 1, 3], { ciaddr: "192.168.123.2" });
  t.is(read4(said(ask4(renewed)).frame)?.type, 5);
  const wrong = said(ask4(dhcp4([53, 1, 3, 50, 4, 192, 168, 123, 3])));
  t.is(read4(wrong.frame)?.type, 6);
  t.is(wrong.taken, undefined);
  const elsewhere = said(ask4(dhcp4([53, 1, 3, 54, 4, 10, 0, 0, 1, 50, 4, ...own])));
  t.deepEqual(elsewhere, { ignored: "dhcp_not_for_us" });
  const informed = read4(said(ask4(dhcp4([53, 1, 8], { ciaddr: "192.168.123.2" }))).frame);
  t.is(informed?.yiaddr, "0.0.0.0");
  t.is(informed?.options[51], undefined);
  t.deepEqual(informed?.options[6], ours);
});

test("only the card itself is answered", (t) => {
  const control = said(ask4(dhcp4(discover)));
  t.truthy(control.frame);
  const ignored = { ignored: "dhcp_other_mac" } as const;
  t.deepEqual(said(ask4(dhcp4(discover), other)), ignored);
  t.deepEqual(said(ask4(dhcp4(discover, { chaddr: other }))), ignored);
  t.deepEqual(said(ask4(dhcp4(discover, { giaddr: "10.0.0.1" }))), ignored);
  t.deepEqual(said(ask6([1, 0, 0, 1, 0, 1, 0, 1, 7], other)), ignored);
  t.deepEqual(said({ kind: "router-solicitation", from: other, source: guest }), ignored);
});

test("without addresses of a family nothing of it is answered", (t) => {
  const { v4: _v4, v6: _v6, ...none } = lease;
  t.deepEqual(said(ask4(dhcp4(discover)), none), {});
  t.deepEqual(said({ kind: "router-solicitation", from: mac, source: guest }, none), {});
  t.deepEqual(said(ask6([1, 0, 0, 1, 0, 1, 0, 1, 7]), none), {});
  const { linkLocal: _gone, ...nameless } = router;
  t.deepEqual(
    answer({ kind: "router-solicitation", from: mac, source: guest }, lease, nameless),
    {},
  );
});

const option6 = (code: number, ...value: readonly number[]): number[] => [
  0,
  code,
  value.length >> 8,
  value.length & 255,
  ...value,
];
const client6 = option6(1, 0, 3, 0, 1, ...macToBytes(mac));
const server6 = option6(2, ...serverDuid(lease));
const association = (...addresses: readonly Ip[]): number[] =>
  option6(
    3,
    9,
    9,
    9,
    9,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    ...addresses.flatMap((each) => option6(5, ...ipToBytes(each), 0, 0, 0, 0, 0, 0, 0, 0)),
  );
const payload6 = (frame: Uint8Array | undefined): Uint8Array =>
  frame?.subarray(62) ?? new Uint8Array(0);

test("DHCPv6 gives all addresses of the interface, and knows its own", (t) => {
  const solicited = payload6(said(ask6([1, 1, 2, 3, ...client6, ...association()])).frame);
  t.is(solicited[0], 2);
  const advertised = parseDhcp6(solicited);
  t.deepEqual([...(advertised?.transaction ?? [])], [1, 2, 3]);
  t.deepEqual(advertised?.associations, [
    { id: Uint8Array.of(9, 9, 9, 9), addresses: [ipToBytes("fd00::2" as Ip)] },
  ]);
  const rapid = said(ask6([1, 1, 2, 3, ...client6, ...option6(14), ...association()]));
  t.is(payload6(rapid.frame)[0], 7);
  t.deepEqual(rapid.taken, ["fd00::2/64"]);
  const requested = said(ask6([3, 1, 2, 3, ...client6, ...server6, ...association()]));
  t.is(payload6(requested.frame)[0], 7);
  t.deepEqual(requested.taken, ["fd00::2/64"]);
  const toOthers = ask6([3, 1, 2, 3, ...client6, ...option6(2, 0, 1, 1), ...association()]);
  t.deepEqual(said(toOthers), { ignored: "dhcp_not_for_us" });
  const reply = Buffer.from(
    payload6(said(ask6([4, 1, 2, 3, ...client6, ...association("fd00::3" as Ip)])).frame),
  );
  t.true(reply.includes(Buffer.from([0, 13, 0, 2, 0, 4])), "it is on another link");
  const right = Buffer.from(
    payload6(said(ask6([4, 1, 2, 3, ...client6, ...association("fd00::2" as Ip)])).frame),
  );
  t.true(right.includes(Buffer.from([0, 13, 0, 2, 0, 0])));
});

test("a router is reported as it is, for what it is asked from", (t) => {
  const frame = said({ kind: "router-solicitation", from: mac, source: guest }).frame;
  const bytes = Buffer.from(frame ?? []);
  t.deepEqual([...bytes.subarray(0, 6)], [...macToBytes(mac)]);
  t.is(bytes[21], 255, "hop limit");
  const icmp = bytes.subarray(54);
  t.is(icmp[0], 134);
  t.is(icmp[5], 0xc0, "addresses by DHCPv6");
  t.is(icmp.readUInt16BE(6), 65_535);
  const pseudo = [...bytes.subarray(22, 54), 0, 58, icmp.length >> 8, icmp.length & 255];
  t.deepEqual(checksum(Uint8Array.from([...pseudo, ...icmp])), [0, 0]);
  t.true(icmp.includes(Buffer.from([3, 4, 64, 0x80])), "on the link, no address to be made of it");
  t.true(icmp.includes(Buffer.from([5, 1, 0, 0, 0, 0, 1400 >> 8, 1400 & 255])));
  const v6 = lease.v6 === undefined ? undefined : { ...lease.v6, isRouter: false };
  const aside = said(
    { kind: "router-solicitation", from: mac, source: "::" as Ip },
    { ...lease, ...(v6 === undefined ? {} : { v6 }) },
  ).frame;
  t.is(Buffer.from(aside ?? []).readUInt16BE(54 + 6), 0, "no default route by it");
});

test("what shows an address is seen, whichever way", (t) => {
  const arp = Buffer.alloc(42);
  arp.set([...macToBytes("ff:ff:ff:ff:ff:ff" as Mac), ...macToBytes(mac), 8, 6]);
  arp.set([0, 1, 8, 0, 6, 4, 0, 1, ...macToBytes(mac), ...own], 14);
  const seen = parseAsk(arp);
  t.deepEqual(seen, { kind: "shows", from: mac, address: "192.168.123.2" as Ip });
  t.deepEqual(seen && said(seen).taken, ["192.168.123.2/24"]);
  const another = said({ kind: "shows", from: mac, address: "192.168.123.3" as Ip });
  t.deepEqual(another.taken, []);
  t.is(parseAsk(arp.subarray(0, 30)), undefined);
});

test("what is cut short or made up is no message", (t) => {
  t.is(parseDhcp4(dhcp4([53, 9])), undefined);
  t.is(parseDhcp4(dhcp4([])), undefined);
  t.not(parseDhcp4(dhcp4(discover)), undefined);
  t.is(parseDhcp6(Uint8Array.from([1, 1, 2, 3, 0, 1, 0, 9, 1])), undefined);
  t.not(parseDhcp6(Uint8Array.from([1, 1, 2, 3])), undefined);
  t.deepEqual(said(ask6([1, 1, 2, 3])), { ignored: "dhcp_malformed" });
  t.deepEqual(
    said(ask4(dhcp4([53, 1, 4])))?.note,
    "the guest says that another machine has 192.168.123.2",
  );
});
