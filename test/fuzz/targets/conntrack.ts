import { deepStrictEqual, ok } from "node:assert";
import { type Ip, ipToBytes } from "../../../core/address.ts";
import {
  addressBytes,
  askCount,
  nameFlow,
  parseCount,
  parseFlow,
  sourceBytes,
} from "../../../linux/conntrack/flow.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { type Target, valueOf } from "../engine/target.ts";
import { attributeLengths, payload } from "./rtnetlink-bytes.ts";

/** Of ports, or of ICMP, which has none. */
const direction = (source: string, destination: string, ports?: readonly [number, number]) => {
  const first = source.includes(":") ? 3 : 1;
  return (nest: Writer): void => {
    nest
      .nested(1, (ip) =>
        ip
          .attribute(first, ipToBytes(source as Ip))
          .attribute(first + 1, ipToBytes(destination as Ip)),
      )
      .nested(2, (proto) => {
        proto.attributeU8(1, ports === undefined ? 1 : 17);
        if (ports !== undefined) proto.attributeU16be(2, ports[0]).attributeU16be(3, ports[1]);
      });
  };
};
const seed = (family: number, ...ends: Parameters<typeof direction>): Uint8Array =>
  new Writer()
    .u8(family)
    .u8(0)
    .u16(0)
    .nested(1, direction(...ends))
    .nested(2, direction(ends[1], ends[0], ends[2]))
    .attributeU32(3, 0x188)
    .attributeU16be(18, 7)
    .attribute(12, Uint8Array.of(1, 2, 3, 4))
    .finish();

const flow: Target = {
  name: "conntrack-flow",
  files: ["linux/conntrack/flow.ts"],
  except: ["flowsFrom", "flowsOf"],
  seeds: [
    seed(2, "192.0.2.20", "192.0.2.1", [40_000, 8080]),
    seed(10, "2001:db8::20", "2001:db8::1", [40_000, 8080]),
    seed(2, "192.0.2.20", "192.0.2.1"),
  ],
  generate: payload(4),
  lengths: (bytes) => attributeLengths(bytes, 4),
  run: (bytes) => {
    // Read before it is known to be whole.
    for (const side of ["original", "reply"] as const) sourceBytes(Buffer.from(bytes), side);
    const read = valueOf(["NETLINK_FAILED"], () => parseFlow(bytes));
    if (read === undefined) return;
    const { protocol, original, reply } = read;
    ok(protocol >= 0 && protocol < 256);
    for (const port of [original, reply].flatMap((each) => [each.sourcePort, each.destinationPort]))
      ok(port === undefined || (port >= 0 && port < 65_536));
    // What a flow is named by says the same of where it came from.
    const named = parseFlow(
      new Uint8Array(Buffer.concat([nameFlow(read), again(read.name.tuple)])),
    );
    deepStrictEqual(named?.original, original);
    const source = sourceBytes(Buffer.from(nameFlow(read)), "original");
    ok(source === undefined || source.length === 4 || source.length === 16);
    ok(addressBytes(original.source).length >= 4);
    deepStrictEqual(named?.name.id, read.name.id);
  },
};

/** A reply like the original, without which nothing is a flow. */
const again = (tuple: Uint8Array): Uint8Array =>
  new Writer().nested(2, (nest) => nest.raw(tuple)).finish();

const count: Target = {
  name: "conntrack-count",
  files: ["linux/conntrack/flow.ts"],
  except: [
    "flowsFrom",
    "flowsOf",
    "nameFlow",
    "parseFlow",
    "direction",
    "sourceBytes",
    "nestedType",
    "addressBytes",
  ],
  seeds: [
    new Writer()
      .raw(askCount())
      .attribute(1, Uint8Array.of(0xff, 0, 1, 2))
      .attribute(2, Uint8Array.of(0, 4, 0, 0))
      .finish(),
  ],
  generate: payload(4),
  lengths: (bytes) => attributeLengths(bytes, 4),
  run: (bytes) => {
    const flows = valueOf(["NETLINK_FAILED"], () => parseCount(bytes));
    ok(flows === undefined || (Number.isInteger(flows) && flows >= 0 && flows < 2 ** 32));
  },
};

export const conntrack: readonly Target[] = [flow, count];
