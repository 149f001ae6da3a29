import { type Ip, ipToBytes, type Mac, macToBytes, parseIp } from "../../core/address.ts";
import type { RawFrame } from "./frames.ts";

/** Frames byte by byte, with what their sender says of itself chosen freely. */

const bytes = (...parts: readonly (number | string | Uint8Array | readonly number[])[]): Buffer =>
  Buffer.concat(
    parts.map((part) =>
      typeof part === "number"
        ? Buffer.of(part)
        : typeof part === "string"
          ? Buffer.from(part, "hex")
          : Buffer.from(part),
    ),
  );
const u16 = (value: number): readonly number[] => [value >> 8, value & 255];
const mac = (text: string): Uint8Array => macToBytes(text as Mac);
const ip = (text: string): Uint8Array => ipToBytes(parseIp(text) satisfies Ip);

export interface Head {
  readonly dst: string;
  readonly src: string;
  readonly vlans?: readonly number[];
}

/** A frame; its text follows the payload, as padding does. */
export function frame(
  { dst, src, vlans = [] }: Head,
  type: number,
  payload: Uint8Array,
  text: string,
): RawFrame {
  const tags = vlans.flatMap((vlan) => [...u16(0x8100), ...u16(vlan)]);
  const whole = bytes(mac(dst), mac(src), tags, u16(type), payload, Buffer.from(`${text};`));
  return { raw: whole.toString("hex"), text: `${text};` };
}

export interface Resolution {
  readonly operation: 1 | 2;
  readonly senderMac: string;
  readonly sender: string;
  readonly target: string;
}

export const arp = (
  head: Head,
  { operation, senderMac, sender, target }: Resolution,
  text: string,
): RawFrame =>
  frame(
    head,
    0x0806,
    bytes(
      "000108000604",
      u16(operation),
      mac(senderMac),
      ip(sender),
      mac("02:00:00:00:00:00"),
      ip(target),
    ),
    text,
  );

/** IPv6 with any next header; `length` is of what it says of itself. */
export const six = (
  head: Head,
  { saddr, daddr, next }: { readonly saddr: string; readonly daddr: string; readonly next: number },
  payload: Uint8Array,
  text: string,
): RawFrame =>
  frame(
    head,
    0x86dd,
    bytes("60000000", u16(payload.length), next, 255, ip(saddr), ip(daddr), payload),
    text,
  );

export const four = (
  head: Head,
  {
    saddr,
    daddr,
    protocol,
    fragment = 0,
  }: {
    readonly saddr: string;
    readonly daddr: string;
    readonly protocol: number;
    /** Flags and offset. */
    readonly fragment?: number;
  },
  payload: Uint8Array,
  text: string,
): RawFrame => {
  const start = bytes(0x45, 0, u16(20 + payload.length), u16(7), u16(fragment), 64, protocol);
  const ends = bytes(ip(saddr), ip(daddr));
  const sum = checksumOf(bytes(start, 0, 0, ends));
  return frame(head, 0x0800, bytes(start, u16(sum), ends, payload), text);
};

function checksumOf(data: Buffer): number {
  let total = 0;
  for (let at = 0; at < data.length; at += 2) total += data.readUInt16BE(at);
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return ~total & 0xffff;
}

/** A message of neighbor discovery: type, target, and options one after the other. */
export const discovery = (type: number, target: string | undefined, ...options: string[]): Buffer =>
  bytes(type, 0, u16(0), "00000000", target === undefined ? "" : ip(target), options.join(""));

/** An option with a MAC: 1 is the sender's, 2 the target's. */
export const linkOption = (type: 1 | 2, of: string): string =>
  `0${type}01${of.replaceAll(":", "")}`;

export const udp = (from: number, to: number, length = 8): Buffer =>
  bytes(u16(from), u16(to), u16(length), u16(0));

/** An IPv6 fragment header. */
export const fragmentOf = (next: number, offset: number, more: boolean): Buffer =>
  bytes(next, 0, u16((offset << 3) | (more ? 1 : 0)), "00000001");

/** An extension header of eight bytes, of padding. */
export const extension = (next: number): Buffer => bytes(next, 0, "010400000000");

/** A report of no groups (MLDv2) behind a hop-by-hop header; bridges look at its checksum. */
export function groupReport(saddr: string, daddr: string): Buffer {
  const message = bytes(143, 0, u16(0), "00000000");
  const pseudo = bytes(ip(saddr), ip(daddr), u16(0), u16(message.length), u16(0), u16(58));
  message.writeUInt16BE(checksumOf(bytes(pseudo, message)), 2);
  return bytes("3a00050200000100", message);
}
