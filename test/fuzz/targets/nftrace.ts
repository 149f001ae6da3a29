import { ok } from "node:assert";
import { type Ip, ipToBytes, isIp } from "../../../core/address.ts";
import { parseTrace } from "../../../linux/nftrace/message.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { type Target, valueOf } from "../engine/target.ts";
import { attributeLengths, payload } from "./rtnetlink-bytes.ts";

const NFT_MSG_TRACE = 0xa11;

const be32 = (value: number): Uint8Array => {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
};

/** A header of IPv4 or IPv6 with ports, as far as the kernel says it. */
const network = (source: string, destination: string, protocol: number): Uint8Array => {
  const isSix = source.includes(":");
  const bytes = new Uint8Array(isSix ? 40 : 20);
  bytes[0] = isSix ? 0x60 : 0x45;
  bytes[isSix ? 6 : 9] = protocol;
  bytes.set(ipToBytes(source as Ip), isSix ? 8 : 12);
  bytes.set(ipToBytes(destination as Ip), isSix ? 24 : 16);
  return bytes;
};

interface Said {
  readonly family: number;
  readonly type: number;
  readonly code: number;
  readonly target?: string;
  readonly header?: Uint8Array;
}

const seed = ({ family, type, code, target, header }: Said): Uint8Array => {
  const writer = new Writer()
    .u8(family)
    .u8(0)
    .u16(0)
    .attributeText(1, "podnet_policy")
    .attributeText(2, "forward")
    .attribute(4, be32(type))
    .attribute(6, be32(0x1234abcd))
    .attribute(3, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 9]))
    .attribute(14, be32(1));
  if (type === 1) writer.attribute(16, be32(code));
  else
    writer.nested(5, (verdict) => {
      verdict.attribute(1, be32(code));
      if (target !== undefined) verdict.attributeText(2, target);
    });
  if (header !== undefined)
    writer.attribute(8, header).attribute(9, Uint8Array.of(0x9c, 0x40, 1, 187, 1, 2, 3, 4));
  return writer.finish();
};

/** What the kernel says about a packet that is traced. */
export const nftrace: Target = {
  name: "nftrace-message",
  files: ["linux/nftrace/message.ts"],
  seeds: [
    seed({ family: 1, type: 3, code: 1, header: network("192.0.2.1", "192.0.2.2", 6) }),
    seed({ family: 7, type: 3, code: -3 >>> 0, target: "port" }),
    seed({ family: 10, type: 1, code: 0, header: network("2001:db8::1", "2001:db8::2", 58) }),
    seed({ family: 2, type: 2, code: -5 >>> 0, header: network("192.0.2.1", "192.0.2.2", 17) }),
    seed({ family: 2, type: 3, code: 1, header: Uint8Array.of(0x45, 0) }),
    seed({ family: 2, type: 3, code: 1, header: Uint8Array.of(0x15, 0) }),
  ],
  generate: payload(4),
  lengths: (bytes) => attributeLengths(bytes, 4),
  run: (bytes) => {
    const read = valueOf(["NETLINK_FAILED"], () => parseTrace(NFT_MSG_TRACE, bytes));
    if (read === undefined) return;
    ok(read.id >= 0 && read.id < 2 ** 32);
    ok(read.handle === undefined || read.handle < 2n ** 64n);
    ok(read.mark !== 0);
    const { packet } = read;
    if (packet === undefined) return;
    ok(isIp(packet.source) && isIp(packet.destination));
    for (const port of [packet.sourcePort, packet.destinationPort])
      ok(port === undefined || (port >= 0 && port < 65_536));
    ok(parseTrace(NFT_MSG_TRACE + 1, bytes) === undefined);
  },
};
