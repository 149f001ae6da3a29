import { addIngress } from "../../../linux/rtnetlink/qdisc.ts";
import { deepStrictEqual } from "node:assert";
import { parseCidr, parseIpPrefix } from "../../../core/address.ts";
import { parseAck, ackError } from "../../../linux/rtnetlink/ack.ts";
import { addAddress, parseAddress, scopeOfAddress } from "../../../linux/rtnetlink/address.ts";
import { parseAttributes } from "../../../linux/rtnetlink/attributes.ts";
import { parsePortVlans } from "../../../linux/rtnetlink/links/bridge-vlan.ts";
import { parseCounters } from "../../../linux/rtnetlink/counters.ts";
import { parseEvent } from "../../../linux/rtnetlink/event.ts";
import { addFdb, parseFdb } from "../../../linux/rtnetlink/fdb.ts";
import { newBridge, newVxlan } from "../../../linux/rtnetlink/links/link-requests.ts";
import { parseGroup, parseLink, parseLinkState } from "../../../linux/rtnetlink/links/link.ts";
import { encodeMessage, parseMessages } from "../../../linux/rtnetlink/message.ts";
import { parseNeighbour, replaceNeighbour } from "../../../linux/rtnetlink/neighbour.ts";
import { addRoute } from "../../../linux/rtnetlink/route-requests.ts";
import { parseRoute } from "../../../linux/rtnetlink/route.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { type Target, valueOf } from "../engine/target.ts";
import {
  attributeLengths,
  attributeReference,
  messageLengths,
  messageReference,
  payload,
} from "./rtnetlink-bytes.ts";

const folder = "linux/rtnetlink";
const refusals = ["NETLINK_FAILED"] as const;
const mac = "52:54:00:12:34:56" as never;

/**
 * A family of attribute messages: header size, requests to start from, and what must hold of the
 * value.
 */
function attributeTarget(
  name: string,
  files: readonly string[],
  header: number,
  seeds: readonly Uint8Array[],
  run: (bytes: Uint8Array) => void,
  except: readonly string[] = [],
): Target {
  return {
    name,
    files: files.map((file) => `${folder}/${file}.ts`),
    except,
    seeds,
    words: ["bridge", "vxlan", "tun", "\0\0\0\0"],
    generate: payload(header),
    lengths: (bytes) => attributeLengths(bytes, header),
    run,
  };
}

const raw = new Writer();
const links = [
  newBridge({
    name: "hyper0",
    mac,
    mtu: 1500,
    bridge: {
      stpState: 0,
      forwardDelay: 0,
      ageingTime: 5,
      vlanFiltering: true,
      mcastSnooping: false,
    },
  }).payload,
  newVxlan({
    name: "vx0" as never,
    vxlan: {
      id: 5,
      local: "10.0.0.1",
      remote: "10.0.0.2",
      port: 4789,
      ttl: 3,
      learning: true,
      ageing: 300,
      udpCsum: true,
      gbp: true,
    },
  } as never).payload,
  linkMessage(
    "tun",
    new Writer()
      .attributeU8(3, 1)
      .attributeU32(1, 0)
      .attributeU8(4, 1)
      .attributeU8(5, 1)
      .attributeU8(6, 1)
      .attributeU8(7, 1)
      .finish(),
    0,
  ),
  linkMessage("tun", new Writer().attributeU8(3, 2).finish(), 7),
];

/** RTM_NEWLINK as a kernel sends it for a link that is a bridge's port. */
function linkMessage(kind: string, data: Uint8Array, family: number): Uint8Array {
  const port = new Writer()
    .attributeU8(1, 3)
    .attributeU16(2, 32)
    .attributeU32(3, 100)
    .attributeU8(33, 1)
    .finish();
  const info = new Writer()
    .attributeText(1, kind)
    .attribute(2, data)
    .attributeText(4, "bridge")
    .attribute(5, port)
    .finish();
  return new Writer()
    .u8(family)
    .u8(0)
    .u16(1)
    .i32(9)
    .u32(0x10043)
    .u32(0)
    .attributeText(3, "tap0")
    .attributeU8(16, 6)
    .attributeU32(4, 1500)
    .attributeU32(50, 68)
    .attributeU32(51, 65521)
    .attribute(1, new Uint8Array(6))
    .attributeU32(27, 73)
    .attributeText(20, "podnet:x")
    .attributeU32(10, 3)
    .attributeU32(5, 2)
    .attributeU32(37, 0)
    .attribute(52, new Writer().attributeText(53, "long-name").finish())
    .attribute(12, port)
    .attribute(18, info)
    .finish();
}

const link = attributeTarget(
  "rtnetlink-link",
  ["links/link", "links/link-kind", "links/bridge-port", "optional", "reader"],
  16,
  links,
  (bytes) => {
    const value = valueOf(refusals, () => parseLink(bytes));
    if (value !== undefined && value.name.length > bytes.length)
      throw new Error("A name out of nothing");
    if (value !== undefined)
      for (const [key, state] of Object.entries(parseLinkState(bytes)))
        if (value[key as keyof typeof value] !== state) throw new Error(`${key} differs`);
    if (value !== undefined && parseGroup(bytes) !== value.group)
      throw new Error("Another group than the link's");
  },
  ["writeBridge", "writeVxlan", "writeBridgePort", "isPortMessage"],
);

const counted = (size: number): Uint8Array =>
  new Writer()
    .u8(0)
    .u8(0)
    .u16(1)
    .i32(9)
    .u32(0x10043)
    .u32(0)
    .attributeText(3, "tap0")
    .attribute(
      23,
      Uint8Array.from({ length: size }, (_, i) => i),
    )
    .finish();
const counters = attributeTarget(
  "rtnetlink-counters",
  ["counters"],
  16,
  [counted(192), counted(64), counted(63), ...links],
  (bytes) => {
    const value = valueOf(refusals, () => parseCounters(bytes));
    for (const count of Object.values(value?.counters ?? {}))
      if (count < 0n || count >= 2n ** 64n) throw new Error(`A count of ${count}`);
  },
  ["getCounters", "getTapCounters", "header"],
);

const vlans = attributeTarget(
  "rtnetlink-vlans",
  ["links/bridge-vlan"],
  8,
  [
    // RTM_NEWVLAN as a kernel sends it: VLAN 10 without tags, 20 to 30 with.
    new Writer()
      .u8(7)
      .u8(0)
      .u16(0)
      .u32(9)
      .nested(1, (entry) => entry.attribute(1, Uint8Array.of(6, 0, 10, 0)))
      .nested(1, (entry) => entry.attribute(1, Uint8Array.of(0, 0, 20, 0)).attributeU16(2, 30))
      .finish(),
  ],
  (bytes) => {
    const value = valueOf(refusals, () => parsePortVlans(bytes, 9));
    if (value !== undefined && 4 * value.length > bytes.length)
      throw new Error("VLANs out of nothing");
  },
  ["getPortVlans", "addPortVlan", "deletePortVlan", "change"],
);

const address = attributeTarget(
  "rtnetlink-address",
  ["address", "scope"],
  8,
  [
    addAddress(2, "192.168.123.1/24" as never, {
      broadcast: "192.168.123.255" as never,
      label: "hyper0",
      noDad: true,
    }).payload,
    addAddress(2, "fd00::1/64" as never).payload,
  ],
  (bytes) => {
    valueOf(refusals, () => scopeOfAddress(bytes));
    const value = valueOf(refusals, () => parseAddress(bytes));
    if (value !== undefined) deepStrictEqual(parseIpPrefix(value.prefix), value.prefix);
  },
  ["ifaddrmsg", "addAddress", "deleteAddress", "getAddresses", "scopeNumber"],
);

const hop = (index: number, gateway: Uint8Array): Uint8Array =>
  new Writer()
    .u16(8 + 4 + gateway.length)
    .u8(0)
    .u8(1)
    .i32(index)
    .attribute(5, gateway)
    .finish();
/** An IPv4 route's message as far as its attributes; its type is the last byte before the flags. */
const unicastRoute = (flags: number): Writer =>
  Uint8Array.of(2, 0, 0, 0, 254, 4, 0, 1)
    .reduce((head, byte) => head.u8(byte), new Writer())
    .u32(flags);
const route = attributeTarget(
  "rtnetlink-route",
  ["route"],
  12,
  [
    addRoute({
      destination: "10.1.0.0/16",
      gateway: "10.0.0.1",
      link: 2,
      metric: 5,
      source: "10.0.0.2",
      mtu: 1400,
    } as never).payload,
    addRoute({ destination: "::/0", gateway: "fd00::1", link: 2 } as never).payload,
    unicastRoute(4)
      .attribute(
        9,
        new Uint8Array(
          Buffer.concat([hop(2, Uint8Array.of(10, 0, 0, 1)), hop(3, Uint8Array.of(10, 0, 0, 2))]),
        ),
      )
      .finish(),
    unicastRoute(0)
      .attribute(18, Uint8Array.of(10, 0, ...new Uint8Array(16)))
      .attribute(8, new Writer().attributeU32(2, 1400).finish())
      .finish(),
  ],
  (bytes) => {
    const value = valueOf(refusals, () => parseRoute(bytes));
    if (value !== undefined) deepStrictEqual(parseCidr(value.destination), value.destination);
  },
);

const neighbours = attributeTarget(
  "rtnetlink-neighbour",
  ["neighbour", "fdb"],
  12,
  [
    replaceNeighbour({ index: 2, address: "10.0.0.2" as never, mac }).payload,
    addFdb({
      index: 2,
      mac,
      table: "self",
      vlan: 3,
      remote: "10.0.0.9" as never,
      port: 8472,
      vni: 7,
      sticky: true,
    }).payload,
    addFdb({ index: 2, mac, table: "master", state: "permanent" }).payload,
    addFdb({ index: 2, mac, table: "master", state: "dynamic" }).payload,
  ],
  (bytes) => {
    valueOf(refusals, () => parseNeighbour(bytes));
    valueOf(refusals, () => parseFdb(bytes));
  },
  [
    "replaceNeighbour",
    "deleteNeighbour",
    "getNeighbours",
    "encode",
    "addFdb",
    "deleteFdb",
    "getFdb",
  ],
);

const attributeList = attributeTarget(
  "rtnetlink-attributes",
  ["attributes"],
  0,
  [
    raw
      .attributeU8(1, 1)
      .attributeU16(2, 2)
      .attributeU32(3, 3)
      .attributeText(4, "text")
      .attribute(5, new Uint8Array(16))
      .finish(),
    new Writer().attributeU32(100, 5).attributeU32(100, 6).finish(),
  ],
  (bytes) => {
    // From an odd place too: payloads of a datagram may begin anywhere.
    const odd = new Uint8Array(Buffer.concat([Buffer.of(0), bytes])).subarray(1);
    const read = valueOf(refusals, () => parseAttributes(bytes));
    deepStrictEqual(
      read?.list.map(({ type, value }) => [type, value.length]),
      attributeReference(bytes),
    );
    const shifted = valueOf(refusals, () => parseAttributes(odd));
    deepStrictEqual(shifted?.list, read?.list);
    if (read === undefined) return;
    const copy = new Writer();
    for (const { type, value } of read.list) copy.attribute(type, value);
    deepStrictEqual(parseAttributes(copy.finish()).list, read.list);
    for (const type of new Set([1, 2, 3, 4, 5, 100, ...read.list.map((one) => one.type)])) {
      deepStrictEqual(
        read.all(type),
        read.list.filter((one) => one.type === type).map((one) => one.value),
      );
      deepStrictEqual(read.get(type), read.all(type).at(-1));
      for (const kind of [
        "u8",
        "u16",
        "u16be",
        "u32",
        "i32",
        "bool",
        "text",
        "ip",
        "mac",
        "nested",
      ] as const)
        valueOf(refusals, () => read[kind](type));
    }
  },
);

const event = (type: number, body: Uint8Array): Uint8Array =>
  encodeMessage({ type, flags: 0, seq: 0, portId: 0, payload: body });

const messages: Target = {
  name: "rtnetlink-messages",
  files: [`${folder}/message.ts`, `${folder}/event.ts`],
  except: ["encodeRequest", "isGet", "isDump"],
  seeds: [
    ...links.map((body, i) => event(16 + (i & 1), body)),
    event(20, addAddress(2, "fd00::1/64" as never).payload),
    event(21, addAddress(2, "10.0.0.1/24" as never).payload),
    event(24, addRoute({ destination: "10.1.0.0/16", link: 2 } as never).payload),
    event(25, addRoute({ destination: "10.1.0.0/16", link: 2 } as never).payload),
    event(28, addFdb({ index: 2, mac, table: "self" }).payload),
    event(29, replaceNeighbour({ index: 2, address: "10.0.0.2" as never, mac }).payload),
    // Queues and filters: both directions of RTM_NEWQDISC and RTM_NEWTFILTER.
    ...[36, 37, 44, 45].map((type) => event(type, addIngress(2).payload)),
    new Uint8Array(
      Buffer.concat([event(16, links[0] as Uint8Array), event(99, new Uint8Array(3))]),
    ),
  ],
  lengths: messageLengths,
  generate: (random) =>
    new Uint8Array(
      Buffer.concat(
        random.list(1 + random.below(3), () =>
          event(14 + random.below(18), payload(random.pick([8, 12, 16]))(random)),
        ),
      ),
    ),
  longest: 4096,
  run: (bytes) => {
    const list = valueOf(refusals, () => parseMessages(bytes));
    deepStrictEqual(
      list?.map(({ payload: { length } }) => length),
      messageReference(bytes),
    );
    for (const message of list ?? []) {
      valueOf(refusals, () => parseEvent(message));
      const [again] = parseMessages(encodeMessage(message));
      deepStrictEqual(again, { ...message, payload: new Uint8Array(message.payload) });
    }
  },
};

const text = new Writer()
  .attributeText(1, "mtu less than device minimum")
  .attributeU32(2, 20)
  .attributeU32(5, 3)
  .attributeU32(6, 4)
  .finish();
const verdict = (errno: number, size: number, rest: Uint8Array): Uint8Array =>
  new Uint8Array(
    Buffer.concat([
      new Writer().i32(errno).u32(size).finish(),
      new Uint8Array(Math.max(0, size - 4)),
      rest,
    ]),
  );

/** The first two bytes are the message's type and flags. */
const acks: Target = {
  name: "rtnetlink-ack",
  files: [`${folder}/ack.ts`, `${folder}/errno.ts`],
  seeds: [
    Uint8Array.of(2, 2, ...verdict(-17, 16, text)),
    Uint8Array.of(2, 3, ...verdict(-22, 16, text)),
    Uint8Array.of(2, 0, ...verdict(0, 16, new Uint8Array(0))),
    Uint8Array.of(2, 0, ...verdict(-1, 16, new Uint8Array(0))),
    Uint8Array.of(3, 2, 0, 0, 0, 0, ...text),
    Uint8Array.of(3, 0),
    Uint8Array.of(9, 0, 0, 0, 0, 0),
  ],
  lengths: (bytes) => [{ at: 6, bytes: 4, littleEndian: true }, ...attributeLengths(bytes, 26)],
  run: (bytes) => {
    const message = {
      type: bytes[0] ?? 0,
      flags: ((bytes[1] ?? 0) & 3) << 8,
      seq: 1,
      portId: 0,
      payload: bytes.subarray(2),
    };
    const ack = valueOf(refusals, () => parseAck(message));
    if (ack === undefined) return;
    if (ack.errno < 0) throw new Error(`An error number of ${ack.errno}`);
    const { message: words } = ackError("Cannot do it", ack);
    if (words.length > 200 || /[\u0000-\u001f]/.test(words)) throw new Error(words);
  },
};

export const rtnetlink: readonly Target[] = [
  link,
  counters,
  vlans,
  address,
  route,
  neighbours,
  attributeList,
  messages,
  acks,
];
