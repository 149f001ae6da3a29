import { deepStrictEqual } from "node:assert";
import * as address from "../../../core/address.ts";
import * as names from "../../../core/names.ts";
import { cutText, shown, shownLines } from "../../../core/shown.ts";
import { decodeUtf8, encodeUtf8 } from "../../../core/utf8.ts";
import { ipRangeText, parseIpRange } from "../../../core/ip-range.ts";
import { divideRanges, parseSubnet } from "../../../daemon/config/cidr.ts";
import { canonical, refusals } from "../engine/canonical.ts";
import { choosing, chosen, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

function checkIp(ip: address.Ip): void {
  deepStrictEqual(address.isIp(ip), true);
  deepStrictEqual(address.ipFromBytes(address.ipToBytes(ip)), ip);
  deepStrictEqual(address.ipFromBigInt(address.familyOf(ip), address.ipToBigInt(ip)), ip);
  address.isLoopback(ip);
}

function checkCidr(cidr: address.Cidr): void {
  const { first, last } = address.rangeOf(cidr);
  const family = address.familyOf(cidr);
  for (const value of [first, last])
    deepStrictEqual(address.contains(cidr, address.ipFromBigInt(family, value)), true);
  deepStrictEqual(address.overlaps(cidr, cidr), true);
  deepStrictEqual(
    address.networkOf(address.withLength(address.ipOf(cidr), address.lengthOf(cidr))),
    cidr,
  );
  if (family === 4) address.parseIp(address.dottedMask(address.lengthOf(cidr)));
  for (const other of ["10.0.0.0/8", "fd00::/8"] as address.Cidr[])
    if (address.contains(other, address.ipOf(cidr)) && !address.overlaps(cidr, other))
      throw new Error(cidr);
}

function checkMac(mac: address.Mac): void {
  deepStrictEqual(address.macFromBytes(address.macToBytes(mac)), mac);
}

const addresses: Target = {
  name: "addresses",
  files: ["core/address.ts"],
  except: ["macFromRandom", "invalid"],
  seeds: [
    ...[
      "192.168.123.2",
      "fd00::2",
      "::ffff:10.0.0.1",
      "1:2:3:4:5:6:7:8",
      "::",
      "1::8",
      "1:0:0:2:0:0:0:3",
      "256.1.1.1",
      "::1.2.3",
      "1.2",
      "1::2::3",
      "127.0.0.1",
      "fe80::1%eth0",
    ].map((text) => chosen(0, utf8(text))),
    ...["192.168.123.2/24", "fd00::2/64", "10.0.0.1/33", "::/0"].map((text) =>
      chosen(1, utf8(text)),
    ),
    ...["10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "10.0.0.1/8", "::1/128", "1.2.3.4"].map((text) =>
      chosen(2, utf8(text)),
    ),
    ...["52:54:00:12:34:56", "52:54:00:AB:34:56"].map((text) => chosen(3, utf8(text))),
    ...["52:54:00:12:34:56", "01:00:5e:00:00:01", "00:00:00:00:00:00"].map((text) =>
      chosen(4, utf8(text)),
    ),
    ...["123", "1", "123456", "1234567890123456"].map((text) => chosen(5, utf8(text))),
  ],
  words: [
    ".",
    ":",
    "::",
    "/",
    "0",
    "255",
    "ffff",
    "%",
    "0x",
    "00",
    "::ffff:",
    "1.2.3.4",
    "/128",
    " ",
  ],
  longest: 200,
  run: choosing([
    canonical((text) => address.parseIp(text, "ip"), checkIp),
    canonical((text) => address.parseIpPrefix(text, "prefix")),
    canonical((text) => address.parseCidr(text, "cidr"), checkCidr),
    canonical((text) => address.parseMac(text, "mac"), checkMac),
    canonical((text) => address.parseUnicastMac(text)),
    // The guest's and the kernel's bytes: the callers check the lengths, and a wrong one throws.
    (bytes) => {
      for (const read of [address.ipFromBytes, address.macFromBytes] as ((
        bytes: Uint8Array,
      ) => string)[])
        try {
          read(bytes);
        } catch (error) {
          if (!(error instanceof RangeError)) throw error;
        }
      try {
        address.ipFromBigInt(4, BigInt(`0x0${Buffer.from(bytes).toString("hex")}`));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
      }
    },
  ]),
};

const strings: Target = {
  name: "names",
  files: ["core/names.ts", "core/shown.ts"],
  except: ["podIdFromBytes"],
  seeds: [
    "eth0",
    "abcdefghijkl",
    "web-1",
    "default",
    "web.example.org",
    "\u001b[2J",
    "a".repeat(80),
    `${"a".repeat(78)}\u{1f600}x`,
    "..",
  ].flatMap((text) => [0, 1, 2, 3, 4, 5, 6].map((parser) => chosen(parser, utf8(text)))),
  words: [
    "-",
    "$(reboot)",
    "\n",
    "\u202e",
    "\ud800",
    "\u212a",
    "_",
    ".",
    "..",
    "/",
    "@",
    '"',
    "\\",
  ],
  longest: 400,
  run: choosing([
    canonical((text) => names.parseIfName(text)),
    canonical((text) => names.parsePodId(text)),
    canonical((text) => names.parsePodName(text)),
    canonical((text) => names.parseNetworkName(text)),
    canonical((text) => names.parseServiceName(text)),
    canonical((text) => names.parseHostname(text)),
    (bytes) => {
      const text = names.printable(textOf(bytes));
      if (text.length > 80 || /["\u0000-\u001f\u007f-\u009f\u2028-\u202e]/.test(text))
        throw new Error(text);
      encodeURIComponent(text);
    },
    (bytes) => {
      const text = textOf(bytes);
      for (const show of [shown, shownLines]) {
        const once = show(text, 60);
        deepStrictEqual(show(once, 60), once);
        if (once.length > 60 || /[\u0000-\u0009\u001b\u007f-\u009f\u2028-\u202e]/.test(once))
          throw new Error(once);
        encodeURIComponent(once);
      }
      if (cutText(text, 9).length > 9) throw new Error("Not cut");
    },
  ]),
};

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const texts: Target = {
  name: "utf8",
  files: ["core/utf8.ts"],
  seeds: ["ascii", "\u00fc\u20ac\u{1f600}", "a".repeat(5000), "\u00fc".repeat(5000)]
    .map(utf8)
    .concat(
      [
        [0xc0, 0x80],
        [0xe0, 0x80, 0x80],
        [0xed, 0xa0, 0x80],
        [0xf0, 0x80, 0x80, 0x80],
        [0xf4, 0x90, 0x80, 0x80],
        [0xf5],
        [0x80],
        [0xf0, 0x9f],
      ].map((bytes) => Uint8Array.from(bytes)),
    ),
  longest: 12_000,
  run: (bytes) => {
    // Node's own decoder and encoder are the reference.
    const text = decodeUtf8(bytes);
    deepStrictEqual(text, decoder.decode(bytes));
    deepStrictEqual(Buffer.from(encodeUtf8(text)), Buffer.from(text));
    const halves = String.fromCharCode(
      ...new Uint16Array(bytes.slice(0, bytes.length & 0xffe).buffer),
    );
    deepStrictEqual(Buffer.from(encodeUtf8(halves)), Buffer.from(halves));
  },
};

const subnets = ["192.168.123.0/24", "fd00::/64"].map((text) => address.parseCidr(text));
const ranges: Target = {
  name: "subnets-ranges",
  files: ["core/ip-range.ts", "daemon/config/cidr.ts", "network/model/address-plan.ts"],
  seeds: [
    ...[
      "192.168.123.0/24",
      "192.168.123.9/24",
      "fd00::/64",
      "10.0.0.0/31",
      "10.0.0.0/32",
      "192.168.123.255/24",
      "::/0",
      "0.0.0.0/0",
    ].map((text) => chosen(0, utf8(text))),
    ...[
      "192.168.123.5",
      "192.168.123.5-192.168.123.9",
      "192.168.123.9 - 192.168.123.5",
      "192.168.123.5-fd00::1",
      "192.168.123.0/28",
      "10.0.0.1",
      "fd00::1",
    ].map((text) => chosen(1, utf8(text))),
  ],
  words: ["-", "/", "192.168.123.7", "/30", "fd00::", " "],
  longest: 200,
  run: choosing([
    (bytes) => {
      const subnet = valueOf(refusals, () => parseSubnet(textOf(bytes)));
      if (subnet !== undefined && !address.contains(subnet.cidr, address.ipOf(subnet.gateway)))
        throw new Error(subnet.gateway);
    },
    (bytes) => {
      const range = valueOf(refusals, () => parseIpRange(textOf(bytes)));
      if (range === undefined) return;
      if (address.ipToBigInt(range.first) > address.ipToBigInt(range.last))
        throw new Error(ipRangeText(range));
      deepStrictEqual(parseIpRange(ipRangeText(range)), range);
      const divided = valueOf(refusals, () => divideRanges([range], subnets));
      if (divided !== undefined) deepStrictEqual(subnets.flatMap(divided), [range]);
    },
  ]),
};

export const addressTexts: readonly Target[] = [addresses, strings, texts, ranges];
