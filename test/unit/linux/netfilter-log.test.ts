import test from "ava";
import { ipToBytes, parseIp } from "../../../core/address.ts";
import { parseLogRecord, parsePacket } from "../../../linux/netfilter-log/record.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";

const [source, destination] = [parseIp("10.0.0.2"), parseIp("192.0.2.7")];
const [source6, destination6] = [parseIp("fd00::2"), parseIp("2001:db8::7")];
const ports = [0x9c, 0x40, 1, 187];

const head4 = (protocol: number, fragment: number): number[] => {
  const flags = [fragment >> 8, fragment & 255];
  return [0x45, 0, 0, 40, 0, 0, ...flags, 64, protocol, 0, 0];
};
const head6 = (next: number): number[] => [0x60, 0, 0, 0, 0, 0, next, 64];
const four = (protocol: number, fragment: number, ...rest: number[]): Uint8Array =>
  Uint8Array.of(
    ...head4(protocol, fragment),
    ...ipToBytes(source),
    ...ipToBytes(destination),
    ...rest,
  );
const six = (next: number, ...rest: number[]): Uint8Array =>
  Uint8Array.of(...head6(next), ...ipToBytes(source6), ...ipToBytes(destination6), ...rest);

test("a packet's start has its ends, protocol and ports", (t) => {
  const tcp = { source, destination, protocol: 6, sourcePort: 40_000, destinationPort: 443 };
  t.deepEqual(parsePacket(four(6, 0, ...ports)), tcp);
  t.deepEqual(parsePacket(four(6, 0x2000, ...ports)), tcp, "a first fragment");
  t.deepEqual(parsePacket(four(1, 0, 8, 0, 0, 0)), { source, destination, protocol: 1 });
  const udp6 = { source: source6, destination: destination6, protocol: 17 };
  const withPorts = { ...udp6, sourcePort: 40_000, destinationPort: 443 };
  t.deepEqual(parsePacket(six(17, ...ports)), withPorts);
  const options = [17, 0, 1, 4, 0, 0, 0, 0];
  t.deepEqual(parsePacket(six(0, ...options, ...ports)), withPorts, "behind an extension");
  t.deepEqual(parsePacket(six(44, 17, 0, 0, 1, 0, 0, 0, 9, ...ports)), withPorts);
});

test("a later fragment, and what is cut off, has no ports; what is no packet is none", (t) => {
  t.deepEqual(parsePacket(four(6, 1, ...ports)), { source, destination, protocol: 6 });
  t.deepEqual(parsePacket(four(6, 0, 0x9c)), { source, destination, protocol: 6 });
  const later = parsePacket(six(44, 17, 0, 0, 9, 0, 0, 0, 9, ...ports));
  t.deepEqual(later, { source: source6, destination: destination6, protocol: 17 });
  for (const bytes of [[], [0x45], four(6, 0).subarray(0, 19), six(6).subarray(0, 39), [0x55, 1]])
    t.is(parsePacket(Uint8Array.from(bytes)), undefined);
});

test("a record has the rule's words, its mark, links and packet", (t) => {
  const payload = new Writer()
    .u32(2)
    .attributeText(10, "podnet egress")
    .attribute(2, Uint8Array.of(0x7f, 1, 2, 3))
    .attribute(4, Uint8Array.of(0, 0, 0, 9))
    .attribute(9, four(17, 0, ...ports))
    .finish();
  t.deepEqual(parseLogRecord(payload), {
    prefix: "podnet egress",
    mark: 0x7f010203,
    inLink: 9,
    outLink: 0,
    packet: { source, destination, protocol: 17, sourcePort: 40_000, destinationPort: 443 },
  });
  t.throws(() => parseLogRecord(Uint8Array.of(2)), { code: "NETLINK_FAILED" });
});
