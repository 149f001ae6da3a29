import test from "ava";
import fc from "fast-check";
import ipaddr from "ipaddr.js";
import {
  contains,
  dottedMask,
  type Ip,
  ipFromBigInt,
  ipFromBytes,
  ipToBigInt,
  ipToBytes,
  isIp,
  isLoopback,
  macFromRandom,
  networkOf,
  overlaps,
  parseCidr,
  parseIp,
  parseIpPrefix,
  parseMac,
  parseUnicastMac,
  rangeOf,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";

const v4 = fc.ipV4();
const v6 = fc.ipV6();

test("addresses read and print as the WHATWG URL parser does it", (t) => {
  // Not ipaddr.js 2.5.0 here: it takes the IPv4-compatible `::1.2.3.4` for the mapped
  // `::ffff:1.2.3.4`.
  fc.assert(
    fc.property(fc.oneof(v4, v6), (text) => {
      const ip = parseIp(text);
      const { hostname } = new URL(text.includes(":") ? `http://[${text}]` : `http://${text}`);
      t.is(ip, hostname.replace(/^\[|\]$/g, "") as Ip);
      t.is(parseIp(ip), ip);
      t.is(ipFromBytes(ipToBytes(ip)), ip);
      t.is(ipFromBigInt(ip.includes(":") ? 6 : 4, ipToBigInt(ip)), ip);
    }),
  );
});

test("IPv6 prints by RFC 5952", (t) => {
  for (const [text, canonical] of [
    ["2001:DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1"],
    ["2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"],
    ["0:0:0:0:0:0:0:0", "::"],
    ["1:0:0:0:0:0:0:0", "1::"],
    ["0:0:0:0:0:0:0:1", "::1"],
    ["2001:0:0:1:0:0:0:1", "2001:0:0:1::1"],
    ["::ffff:192.0.2.1", "::ffff:c000:201"],
    ["1:2:3:4:5:6:192.0.2.1", "1:2:3:4:5:6:c000:201"],
  ] as const) {
    t.is(parseIp(text), canonical as Ip);
  }
});

test("what is no address is refused with its field", (t) => {
  for (const text of [
    "",
    "1.2.3",
    "1.2.3.4.5",
    "01.2.3.4",
    "1.2.3.256",
    "0x1.2.3.4",
    "1.2.3.4 ",
    "+1.2.3.4",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1::2::3",
    ":::",
    "1:2:3:4:5:6:7:8::",
    "12345::",
    "fe80::1%eth0",
    "::1.2.3",
    "1.2.3.4::",
    "::ffff:1.2.3.4:5",
  ]) {
    t.false(isIp(text), text);
    const error = t.throws(() => parseIp(text, "dns[0]"), { instanceOf: PodnetError });
    t.is(error?.code, "ADDRESS_INVALID");
    t.is(error?.field, "dns[0]");
  }
});

test("any text is an address or a typed error", (t) => {
  const bits = fc.string({ unit: fc.constantFrom("0", "1", "f", ":", ".", "/", "%", "256", " ") });
  fc.assert(
    fc.property(fc.oneof(fc.string(), bits), (text) => {
      try {
        // ipaddr.js also takes zones and short IPv4 forms, so it is asked only whether it agrees on
        // what we accept.
        t.true(ipaddr.isValid(parseIp(text)));
      } catch (error) {
        t.true(error instanceof PodnetError);
      }
    }),
    { numRuns: 2000 },
  );
});

test("networks: no host bits, a length within the family, containment never across families", (t) => {
  t.is(parseCidr("192.168.123.0/24"), "192.168.123.0/24" as never);
  t.like(
    t.throws(() => parseCidr("192.168.123.1/24", "cidr"), { instanceOf: PodnetError }),
    {
      code: "ADDRESS_INVALID",
      hint: "Write the network as 192.168.123.0/24",
      field: "cidr",
    },
  );
  for (const text of [
    "10.0.0.0",
    "10.0.0.0/33",
    "10.0.0.0/08",
    "10.0.0.0/",
    "::/129",
    "/24",
    "10.0.0.0/8/8",
  ]) {
    t.throws(() => parseCidr(text), { instanceOf: PodnetError }, text);
  }
  t.true(contains(parseCidr("10.0.0.0/8"), parseIp("10.255.255.255")));
  t.false(contains(parseCidr("10.0.0.0/8"), parseIp("11.0.0.0")));
  t.false(contains(parseCidr("0.0.0.0/0"), parseIp("::1")));
  t.false(contains(parseCidr("::/0"), parseIp("10.0.0.1")));
  t.true(overlaps(parseCidr("10.0.0.0/8"), parseCidr("10.1.0.0/16")));
  t.false(overlaps(parseCidr("10.0.0.0/16"), parseCidr("10.1.0.0/16")));
  t.deepEqual(rangeOf(parseCidr("192.168.123.0/30")), { first: 0xc0a87b00n, last: 0xc0a87b03n });
});

test("the network of a prefix agrees with ipaddr.js", (t) => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.tuple(v4, fc.integer({ min: 0, max: 32 })),
        fc.tuple(v6, fc.integer({ min: 0, max: 128 })),
      ),
      ([text, length]) => {
        const network = networkOf(parseIpPrefix(`${parseIp(text)}/${length}`));
        t.is(parseCidr(network), network);
        // Our own form of it: for `::1.2.3.4` see above.
        t.true(ipaddr.parse(parseIp(text)).match(ipaddr.parseCIDR(network)));
      },
    ),
  );
});

test("masks, loopback", (t) => {
  t.is(dottedMask(24), "255.255.255.0");
  t.is(dottedMask(0), "0.0.0.0");
  t.is(dottedMask(32), "255.255.255.255");
  t.is(dottedMask(17), "255.255.128.0");
  t.true(isLoopback(parseIp("127.0.0.53")));
  t.true(isLoopback(parseIp("::1")));
  t.false(isLoopback(parseIp("128.0.0.1")));
});

test("Ethernet addresses", (t) => {
  t.is(parseMac("52:54:00:AB:cd:EF"), "52:54:00:ab:cd:ef" as never);
  for (const text of [
    "",
    "52:54:00:ab:cd",
    "52-54-00-ab-cd-ef",
    "52:54:00:ab:cd:eg",
    "52:54:00:ab:cd:ef:00",
  ]) {
    t.throws(() => parseMac(text), { instanceOf: PodnetError }, text);
  }
  for (const text of ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"]) {
    t.is(
      t.throws(() => parseUnicastMac(text, "mac"), { instanceOf: PodnetError })?.code,
      "MAC_INVALID",
    );
  }
  t.is(macFromRandom(Uint8Array.of(1, 2, 3, 4)), "52:54:01:02:03:04" as never);
});
