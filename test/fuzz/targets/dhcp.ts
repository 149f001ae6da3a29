import { deepStrictEqual, ok } from "node:assert";
import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import { answer } from "../../../daemon/dhcp/answers.ts";
import { parseDhcp4 } from "../../../daemon/dhcp/dhcp4.ts";
import { parseDhcp6 } from "../../../daemon/dhcp/dhcp6.ts";
import type { PortLease } from "../../../daemon/dhcp/lease.ts";
import { type Ask, parseAsk } from "../../../daemon/dhcp/packets.ts";
import { type Target, valueOf } from "../engine/target.ts";

const mac = "52:54:00:00:00:02" as Mac;
const lease: PortLease = {
  mac,
  mtu: 1500,
  hostname: "web",
  search: ["podnet"],
  v4: {
    address: "192.168.123.2/24" as IpPrefix,
    server: "192.168.123.1" as Ip,
    router: "192.168.123.1" as Ip,
    routes: [{ destination: "10.0.0.0/8" as Cidr }],
    dns: ["192.168.123.1" as Ip],
  },
  v6: {
    addresses: ["fd00::2/64" as IpPrefix],
    onLink: ["fd00::/64" as Cidr],
    isRouter: true,
    routes: [],
    dns: ["fd00::1" as Ip],
  },
};
const router = { mac: "02:00:00:00:00:01" as Mac, linkLocal: "fe80::1" as Ip };

const ethernet = (type: number): number[] => [
  ...Buffer.from("ffffffffffff525400000002", "hex"),
  type >> 8,
  type & 255,
];

function discover(): Uint8Array {
  const bytes = Buffer.alloc(240);
  bytes.set([1, 1, 6, 0, 1, 2, 3, 4]);
  bytes.set([0x52, 0x54, 0, 0, 0, 2], 28);
  bytes.set([99, 130, 83, 99], 236);
  return Buffer.concat([bytes, Buffer.from([53, 1, 3, 50, 4, 192, 168, 123, 2, 61, 2, 1, 2, 255])]);
}

/** One with nothing but its type, twice, and the server it means. */
const request = (): Uint8Array =>
  Buffer.concat([
    discover().subarray(0, 240),
    Buffer.from([53, 1, 3, 53, 1, 1, 54, 4, 192, 168, 123, 1, 255]),
  ]);

const solicit = Uint8Array.from([
  1, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, 1, 0, 3, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0,
]);

const requested = Uint8Array.from([
  3,
  1,
  2,
  3,
  0,
  2,
  0,
  2,
  0,
  4,
  0,
  1,
  0,
  1,
  7,
  0,
  3,
  0,
  40,
  1,
  2,
  3,
  4,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  5,
  0,
  24,
  ...Buffer.alloc(24),
]);

function over4(message: Uint8Array): Uint8Array {
  const total = 28 + message.length;
  const header = [0x45, 0, total >> 8, total & 255, 0, 0, 0, 0, 64, 17, 0, 0];
  const udp = [0, 68, 0, 67, (8 + message.length) >> 8, (8 + message.length) & 255, 0, 0];
  return Uint8Array.from([
    ...ethernet(0x0800),
    ...header,
    0,
    0,
    0,
    0,
    255,
    255,
    255,
    255,
    ...udp,
    ...message,
  ]);
}

const guest = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0, 0, 2];
const over6 = (protocol: number, payload: readonly number[]): Uint8Array =>
  Uint8Array.from([
    ...ethernet(0x86dd),
    0x60,
    0,
    0,
    0,
    payload.length >> 8,
    payload.length & 255,
    protocol,
    255,
    ...guest,
    ...guest,
    ...payload,
  ]);

/** Whatever comes of it, it is said to the guest alone, and of addresses of its own. */
function checkAnswer(ask: Ask | undefined): void {
  if (ask === undefined) return;
  const { frame, taken = [] } = answer(ask, lease, router);
  for (const address of taken)
    ok(address === lease.v4?.address || lease.v6?.addresses.includes(address));
  if (frame === undefined) return;
  deepStrictEqual(ask.from, mac);
  const to = Buffer.from(frame.subarray(0, 6)).toString("hex");
  ok(to === "525400000002" || to === "ffffffffffff");
  ok(frame.length < 1514);
}

const messages4: Target = {
  name: "dhcp4",
  files: ["daemon/dhcp/dhcp4.ts"],
  only: ["parseDhcp4", "parseOptions"],
  seeds: [
    discover(),
    discover().subarray(0, -2),
    // No option at all, and one that ends behind its code.
    discover().subarray(0, 240),
    discover().subarray(0, 241),
    request(),
    discover().with(240, 0),
    discover().with(247, 0),
    discover().with(241, 2),
  ],
  run: (message) => {
    valueOf([], () => parseDhcp4(message));
    checkAnswer({ kind: "dhcp4", from: mac, message });
  },
};

const messages6: Target = {
  name: "dhcp6",
  files: ["daemon/dhcp/dhcp6.ts"],
  only: ["parseDhcp6", "parseOptions"],
  seeds: [solicit, requested],
  run: (message) => {
    valueOf([], () => parseDhcp6(message));
    checkAnswer({ kind: "dhcp6", from: mac, source: "fe80::2" as Ip, message });
  },
};

const frames: Target = {
  name: "dhcp-frames",
  files: ["daemon/dhcp/packets.ts"],
  only: ["parseAsk", "arp", "ipv4", "ipv6", "udp"],
  seeds: [
    over4(discover()),
    over4(discover()).with(20, 0x20),
    over4(discover()).with(23, 6),
    over6(58, [133, 0, 0, 0]),
    over6(58, [133, 0, 0, 0, 0, 0, 0, 0]).with(21, 64),
    over6(58, [135, 0, 0, 0]),
    over6(17, [2, 34, 2, 35, 0, 8 + solicit.length, 0, 0, ...solicit]),
    over6(58, [133, 0, 0, 0, 0, 0, 0, 0]),
    over6(58, [135, 0, 0, 0, 0, 0, 0, 0, ...guest]),
    Uint8Array.from([
      ...ethernet(0x0806),
      0,
      1,
      8,
      0,
      6,
      4,
      0,
      1,
      0x52,
      0x54,
      0,
      0,
      0,
      2,
      192,
      168,
      123,
      2,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      0,
    ]),
  ],
  run: (bytes) => checkAnswer(valueOf([], () => parseAsk(bytes))),
};

export const dhcp: readonly Target[] = [frames, messages4, messages6];
