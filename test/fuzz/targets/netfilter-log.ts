import { deepStrictEqual, ok } from "node:assert";
import { ipToBytes, parseIp } from "../../../core/address.ts";
import { parseLogRecord, parsePacket } from "../../../linux/netfilter-log/record.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { chosen, choosing, type Target, valueOf } from "../engine/target.ts";

const ends = (source: string, destination: string): number[] => [
  ...ipToBytes(parseIp(source)),
  ...ipToBytes(parseIp(destination)),
];
const ports = [0x9c, 0x40, 1, 187];
const head4 = (protocol: number, fragment: number): number[] => {
  const flags = [fragment >> 8, fragment & 255];
  return [0x45, 0, 0, 40, 0, 0, ...flags, 64, protocol, 0, 0];
};
const four = (protocol: number, fragment: number, ...rest: number[]): Uint8Array =>
  Uint8Array.of(...head4(protocol, fragment), ...ends("10.0.0.2", "192.0.2.7"), ...rest);
const six = (next: number, ...rest: number[]): Uint8Array =>
  Uint8Array.of(0x60, 0, 0, 0, 0, 0, next, 64, ...ends("fd00::2", "2001:db8::7"), ...rest);
const packets = [
  four(6, 0, ...ports),
  four(17, 1, ...ports),
  four(1, 0, 8, 0, 0, 0),
  six(17, ...ports),
  six(0, 17, 0, 1, 4, 0, 0, 0, 0, ...ports),
  six(44, 17, 0, 0, 9, 0, 0, 0, 9, ...ports),
  six(60, 43, 1),
];
const record = (packet: Uint8Array): Uint8Array =>
  new Writer()
    .u32(2)
    .attributeText(10, "podnet egress")
    .attribute(2, Uint8Array.of(0x7f, 1, 2, 3))
    .attribute(4, Uint8Array.of(0, 0, 0, 9))
    .attribute(9, packet)
    .finish();

const check = (found: ReturnType<typeof parsePacket>): void => {
  if (found === undefined) return;
  ok(found.protocol >= 0 && found.protocol < 256);
  for (const port of [found.sourcePort, found.destinationPort])
    ok(port === undefined || (port >= 0 && port < 65_536));
  deepStrictEqual(ipToBytes(found.source).length, ipToBytes(found.destination).length);
};

/** What the kernel logs of packets that guests have made. */
export const netfilterLog: Target = {
  name: "netfilter-log",
  files: ["linux/netfilter-log/record.ts"],
  except: ["bindGroup", "gatherFor", "toGroup"],
  seeds: [
    ...packets.map((packet) => chosen(0, packet)),
    ...packets.map((packet) => chosen(1, record(packet))),
    chosen(1, new Writer().u32(2).finish()),
  ],
  run: choosing([
    (bytes) => check(parsePacket(bytes)),
    (bytes) => {
      const found = valueOf(["NETLINK_FAILED"], () => parseLogRecord(bytes));
      if (found === undefined) return;
      ok(found.mark >= 0 && found.mark < 2 ** 32);
      check(found.packet);
    },
  ]),
};
