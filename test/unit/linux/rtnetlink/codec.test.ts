import test from "ava";
import { parseMac } from "../../../../core/address.ts";
import { ackError, parseAck } from "../../../../linux/rtnetlink/ack.ts";
import { parseAddress } from "../../../../linux/rtnetlink/address.ts";
import { parseAttributes } from "../../../../linux/rtnetlink/attributes.ts";
import { errnoName } from "../../../../linux/rtnetlink/errno.ts";
import { parseEvent } from "../../../../linux/rtnetlink/event.ts";
import { parseFdb } from "../../../../linux/rtnetlink/fdb.ts";
import { parseLink } from "../../../../linux/rtnetlink/links/link.ts";
import { deleteGroup, getLink, getLinks } from "../../../../linux/rtnetlink/links/link-requests.ts";
import {
  encodeMessage,
  encodeRequest,
  parseMessages,
} from "../../../../linux/rtnetlink/message.ts";
import { parseNeighbour } from "../../../../linux/rtnetlink/neighbour.ts";
import { parseRoute } from "../../../../linux/rtnetlink/route.ts";
import { Writer } from "../../../../linux/rtnetlink/writer.ts";

const hex = (text: string): Uint8Array =>
  Uint8Array.from(Buffer.from(text.replaceAll(" ", ""), "hex"));
const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const brokenMessage = { code: "NETLINK_FAILED", message: /^Malformed netlink message/ } as const;

test("a message is a header of sixteen bytes and a payload padded to four", (t) => {
  const message = { type: 16, flags: 5, seq: 7, portId: 9, payload: hex("0102030405") };
  const bytes = encodeMessage(message);
  t.is(toHex(bytes), toHex(hex("15000000 1000 0500 07000000 09000000 0102030405 000000")));
  t.deepEqual(parseMessages(bytes), [message]);
});

test("several messages are read from one datagram, the last without padding", (t) => {
  const one = encodeMessage({ type: 16, flags: 0, seq: 1, portId: 0, payload: hex("01") });
  const both = new Uint8Array([...one, ...one.subarray(0, 17)]);
  t.deepEqual(
    parseMessages(both).map(({ payload }) => toHex(payload)),
    ["01", "01"],
  );
});

test("a message with a length that lies is refused", (t) => {
  t.deepEqual(parseMessages(hex("")), []);
  for (const bytes of [
    hex("10000000"),
    hex("0f000000 1000 0000 00000000 00000000"),
    hex("00000000 1000 0000 00000000 00000000"),
    hex("11000000 1000 0000 00000000 00000000"),
    hex("ffffffff 1000 0000 00000000 00000000"),
  ])
    t.throws(() => parseMessages(bytes), brokenMessage);
});

test("attributes are written with length, type, value and padding", (t) => {
  const writer = new Writer()
    .attributeU8(1, 2)
    .attributeU16(2, 0x0304)
    .attributeU16be(3, 0x0304)
    .attributeU32(4, 0x01020304)
    .attributeText(5, "ab")
    .nested(6, (nest) => nest.attributeFlag(7, true).attributeFlag(8, undefined));
  t.is(
    toHex(writer.finish()),
    "0500010002000000" +
      "0600020004030000" +
      "0600030003040000" +
      "0800040004030201" +
      "0700050061620000" +
      "0c000680" +
      "0500070001000000",
  );
});

test("attributes are read with their flags masked, unknown ones kept, the last of a kind winning", (t) => {
  const attributes = parseAttributes(hex("08000140 05000000 0800ff3f 01000000 08000100 06000000"));
  t.is(attributes.u32(1), 6);
  t.is(attributes.all(1).length, 2);
  t.is(attributes.u32(0x3fff), 1);
  t.is(attributes.u32(9), undefined);
});

test("attributes that do not fit are refused, too few bytes at the end passed over", (t) => {
  t.is(parseAttributes(hex("0500010002000000 0500")).list.length, 1);
  t.is(parseAttributes(hex("")).list.length, 0);
  for (const bytes of ["03000100", "00000100", "09000100 00000000", "ffff0100"])
    t.throws(() => parseAttributes(hex(bytes)), brokenMessage);
  t.throws(() => parseAttributes(hex("0500010001000000")).u32(1), brokenMessage);
});

test("an attribute too large for its length field is refused before it is written", (t) => {
  t.throws(() => new Writer().attribute(1, new Uint8Array(65_532)), { instanceOf: RangeError });
  const large = new Uint8Array(40_000);
  t.throws(() => new Writer().nested(1, (w) => w.attribute(2, large).attribute(3, large)), {
    instanceOf: RangeError,
  });
});

test("requests ask for an ack, dumps end by themselves", (t) => {
  const flags = (request: Parameters<typeof encodeRequest>[0]): number =>
    parseMessages(encodeRequest(request, 1))[0]?.flags as number;
  t.is(flags(getLink(1)), 0x05);
  t.is(flags(getLinks()), 0x301);
});

test("a success is error zero", (t) => {
  const [ack] = parseMessages(
    hex("24000000 0200 0001 01000000 63000000 00000000 14000000 1000 0500 01000000 00000000"),
  );
  t.deepEqual(parseAck(ack as NonNullable<typeof ack>), { errno: 0 });
});

test("an error comes with the kernel's words and the place of the fault", (t) => {
  // RTM_SETLINK refused with EINVAL, capped: header of the request only, then NLMSGERR_ATTR_MSG and
  // _OFFS.
  const payload = new Writer().i32(-22).raw(hex("28000000 1000 0500 01000000 00000000"));
  payload.attributeText(1, "mtu less than device minimum").attributeU32(2, 32);
  const ack = parseAck({ type: 2, flags: 0x300, seq: 1, portId: 0, payload: payload.finish() });
  t.deepEqual(ack, { errno: 22, text: "mtu less than device minimum", offset: 32 });
  const error = ackError('Cannot set MTU of "eth0"', ack);
  t.is(error.message, 'Cannot set MTU of "eth0": EINVAL (mtu less than device minimum)');
  t.deepEqual(error.details, {
    errno: "EINVAL",
    kernel: "mtu less than device minimum",
    offset: 32,
  });
});

test("without capping the words follow the whole request", (t) => {
  const request = encodeRequest(getLink(7), 1);
  const payload = new Writer().i32(-1).raw(request).attributeText(1, "no");
  const ack = parseAck({ type: 2, flags: 0x200, seq: 1, portId: 0, payload: payload.finish() });
  t.deepEqual(ack, { errno: 1, text: "no" });
  t.regex(ackError("Cannot", ack).hint ?? "", /root/);
});

test("the end of a dump can be an error too", (t) => {
  const done = (text: string, flags = 2): unknown =>
    parseAck({ type: 3, flags, seq: 1, portId: 0, payload: hex(text) });
  t.deepEqual(done(""), { errno: 0 });
  t.deepEqual(done("00000000"), { errno: 0 });
  t.deepEqual(done("f0ffffff"), { errno: 16 });
  t.deepEqual(done("f0ffffff 0300", 0x202), { errno: 16 }, "too few bytes for an attribute");
});

test("a kernel's text cannot break a log line", (t) => {
  const error = ackError("Cannot add", { errno: 17, text: 'a"\n\u001b[31m' });
  t.is(error.message, "Cannot add: EEXIST (a\\u0022\\u000a\\u001b[31m)");
});

test("error numbers have names, unknown ones a number", (t) => {
  t.is(errnoName(17), "EEXIST");
  t.is(errnoName(54), "EXFULL");
  t.is(errnoName(4095), "E4095");
});

test("group 0 cannot be deleted: every link is born in it", (t) => {
  for (const group of [0, -1, 1.5, Number.NaN, 2 ** 32])
    t.throws(() => deleteGroup(group), { code: "INVALID_ARGUMENT" });
});

test("a link is read: a port of a bridge", (t) => {
  const payload = new Writer().u8(0).u8(0).u16(1).i32(7).u32(0x11043).u32(0);
  payload.attributeText(3, "tap0").attributeU32(4, 1400).attributeU32(10, 2).attributeU32(27, 73);
  payload.attribute(1, hex("52540000 0009")).attribute(20, hex("706f64"));
  payload
    .attributeU8(16, 6)
    .nested(52, (list) => list.attributeText(53, "x").attributeText(53, "y"));
  payload.nested(18, (info) => {
    info.attributeText(1, "tun");
    info.nested(2, (data) => data.attributeU8(3, 2).attributeU8(5, 1).attributeU32(1, 1000));
    info.attributeText(4, "bridge");
    info.nested(5, (port) => port.attributeU8(33, 1).attributeU8(8, 0).attributeU8(1, 3));
  });
  t.deepEqual(parseLink(payload.finish()), {
    index: 7,
    name: "tap0",
    up: true,
    running: true,
    carrier: true,
    loopback: false,
    operState: "up",
    mtu: 1400,
    mac: parseMac("52:54:00:00:00:09"),
    group: 73,
    alias: "pod",
    altNames: ["x", "y"],
    master: 2,
    kind: "tun",
    tun: {
      type: "tap",
      ownerUid: 1000,
      packetInfo: false,
      vnetHeader: true,
      persistent: false,
      multiQueue: false,
    },
    port: { state: 3, isolated: true, learning: false },
  });
});

test("a bridge's word about its port is no word about the link", (t) => {
  const payload = new Writer().u8(7).u8(0).u16(1).i32(7).u32(0).u32(0);
  payload.attributeText(3, "tap0").nested(12, (port) => port.attributeU8(33, 1));
  const event = parseEvent({ type: 17, flags: 0, seq: 0, portId: 0, payload: payload.finish() });
  t.like(event, { kind: "port", gone: true, link: { name: "tap0", port: { isolated: true } } });
});

test("a point-to-point address has a peer, and wide flags win over narrow ones", (t) => {
  const payload = new Writer().u8(2).u8(32).u8(0).u8(0).u32(3);
  payload.attribute(1, hex("0a000002")).attribute(2, hex("0a000001")).attributeU32(8, 0x280);
  t.like(parseAddress(payload.finish()), {
    prefix: "10.0.0.1/32",
    peer: "10.0.0.2",
    permanent: true,
    noPrefixRoute: true,
  });
  t.throws(
    () => parseAddress(new Writer().u8(2).u8(32).u8(0).u8(0).u32(3).finish()),
    brokenMessage,
  );
});

test("an address of another family than IP is passed over, in lists and events", (t) => {
  // AF_PHONET: one byte of address.
  const payload = new Writer().u8(35).u8(0).u8(0).u8(0).u32(3).attribute(2, hex("10")).finish();
  t.is(parseAddress(payload), undefined);
  t.is(parseEvent({ type: 20, flags: 0, seq: 0, portId: 0, payload }), undefined);
});

test("routes: default, by the other family's gateway, with several ways", (t) => {
  const header = (family: number, length: number): Writer =>
    new Writer().u8(family).u8(length).u8(0).u8(0).u8(254).u8(73).u8(0).u8(1).u32(0);
  t.like(parseRoute(header(10, 0).finish()), { family: 6, destination: "::/0", metric: 0 });
  const via = header(2, 16).attribute(1, hex("0a090000"));
  via.attribute(18, hex("0a00 fd000000000000000000000000000001"));
  t.like(parseRoute(via.finish()), {
    destination: "10.9.0.0/16",
    gateway: "fd00::1",
    protocol: 73,
  });
  const hops = header(2, 0).attribute(
    9,
    hex("10000401 02000000 08000500 0a000001 08000000 03000000"),
  );
  t.deepEqual(parseRoute(hops.finish())?.nextHops, [
    { gateway: "10.0.0.1", link: 2, weight: 2, onlink: true },
    { link: 3, weight: 1, onlink: false },
  ] as never);
  t.is(parseRoute(header(128, 0).finish()), undefined, "multicast routes are another matter");
  t.throws(() => parseRoute(header(2, 33).finish()), brokenMessage);
  t.throws(
    () => parseRoute(header(2, 0).attribute(9, hex("0000000000000000")).finish()),
    brokenMessage,
  );
});

test("neighbours and forwarding entries share a message and are told apart", (t) => {
  const neighbour = new Writer().u8(2).u8(0).u16(0).i32(3).u16(0x80).u8(0x80).u8(1);
  neighbour.attribute(1, hex("c0a87b09")).attribute(2, hex("525400000009"));
  t.like(parseNeighbour(neighbour.finish()), {
    index: 3,
    address: "192.168.123.9",
    mac: "52:54:00:00:00:09",
    state: "permanent",
    router: true,
  });
  t.is(parseFdb(neighbour.finish()), undefined);
  const entry = new Writer().u8(7).u8(0).u16(0).i32(3).u16(0x42).u8(2).u8(0);
  entry.attribute(2, hex("525400000009")).attribute(1, hex("7f000002")).attributeU16be(6, 4789);
  entry.attributeU16(5, 1).attributeU32(7, 42);
  t.like(parseFdb(entry.finish()), {
    table: "self",
    state: "static",
    remote: "127.0.0.2",
    port: 4789,
    vlan: 1,
    vni: 42,
  });
  t.is(parseNeighbour(entry.finish()), undefined);
});

test("messages of other kinds are no events", (t) => {
  for (const type of [3, 32, 40, 80, 1000])
    t.is(parseEvent({ type, flags: 0, seq: 0, portId: 0, payload: new Uint8Array(0) }), undefined);
});
