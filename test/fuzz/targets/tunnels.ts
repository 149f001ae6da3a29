import { deepStrictEqual, ok } from "node:assert";
import { NativeMemory, type Vectors } from "../../../linux/native-memory.ts";
import { isIntact } from "../../../network/overlay/udp/coalesce.ts";
import { type Counters, noCounters } from "../../../network/overlay/udp/counters.ts";
import { Egress } from "../../../network/overlay/udp/egress.ts";
import { Ingress } from "../../../network/overlay/udp/ingress.ts";
import { headerLength, lowerTtl, readPacketLength } from "../../../network/overlay/udp/ipv4.ts";
import { offloadHeader, writeTcpOffload } from "../../../network/overlay/udp/offload.ts";
import { PeerTable } from "../../../network/overlay/udp/peer-table.ts";
import { longestAnswer, writeUnreachable } from "../../../network/overlay/udp/unreachable.ts";
import type { Random } from "../engine/random.ts";
import { choosing, chosen, type Target } from "../engine/target.ts";

/** Where packets are fed from: as the tunnel has them, behind two bytes and their header. */
const memory = new NativeMemory(1 << 17);
/** The tun's. */
const taken = new NativeMemory(1 << 17);
const start = 12;
const host = 0x0100_007f;

const copyOf = (bytes: Uint8Array): NativeMemory => {
  const copy = new NativeMemory((bytes.length + 3) & ~3);
  copy.bytes.set(bytes);
  return copy;
};

/** What is at pieces of the memories that pieces may be in. */
function flat(
  pieces: readonly (readonly [number, number])[],
  places: readonly NativeMemory[],
): Buffer {
  return Buffer.concat(
    pieces.map(([address, length]) => {
      const place = places.find(
        (each) => address >= each.address && address + length <= each.address + each.bytes.length,
      );
      ok(place !== undefined, "a piece is where packets are");
      return place.bytes.slice(address - place.address, address - place.address + length);
    }),
  );
}

/** The tunnel's way out; what leaves it is kept. */
function egress(counters: Counters): { readonly way: Egress; readonly sent: () => Buffer[] } {
  const sent: Buffer[] = [];
  let length = 0;
  let pieces: (readonly [number, number])[] = [];
  const end = (): void => {
    if (pieces.length > 0) sent.push(flat(pieces, [taken, way.headers]));
    deepStrictEqual(sent.at(-1)?.length ?? 0, length);
    pieces = [];
  };
  const peers = new PeerTable();
  // Half of all addresses belong to a host.
  peers.set(0, 1, host);
  const answer = new NativeMemory(longestAnswer);
  const way: Egress = new Egress({
    peers,
    counters,
    outlet: {
      begin: (to, bytes) => {
        end();
        deepStrictEqual(to, host);
        length = bytes;
      },
      piece: (address, bytes) => void pieces.push([address, bytes]),
      flush: end,
    },
    onUnroutable: (packet, at, total) => {
      const size = writeUnreachable(packet, at, total, answer, 0, 0x0a4d_0100);
      if (size > 0) deepStrictEqual(readPacketLength(answer, 0, longestAnswer), size);
    },
  });
  return {
    way,
    sent: () => {
      way.flush();
      return sent;
    },
  };
}

/** What a datagram is to be behind two tunnels' ends, but for what may differ. */
function expected(bytes: Uint8Array, hops: number): Buffer {
  const copy = copyOf(bytes);
  for (let i = 0; i < hops; i++) lowerTtl(copy, 0);
  return comparable(copy.bytes.subarray(0, bytes.length));
}

/** (What must not be cut into fragments has no number that means anything.) */
function comparable(bytes: Uint8Array): Buffer {
  const copy = Buffer.from(bytes);
  if ((copy.readUInt16BE(6) & 0x4000) !== 0) copy.fill(0, 4, 6).fill(0, 10, 12);
  return copy;
}

/** Datagrams, each behind its length: what is delivered, taken apart again, is what came. */
function incoming(bytes: Uint8Array): void {
  const counters = noCounters();
  const delivered: Buffer[] = [];
  const came: Buffer[] = [];
  memory.bytes.set(bytes, start);
  const way: Ingress = new Ingress({
    memory,
    counters,
    deliver: (pieces) => delivered.push(flat(listed(pieces), [memory, way.offload])) % 5 !== 0,
  });
  let datagrams = 0;
  for (let at = 0; at + 2 <= bytes.length; ) {
    const length = Math.min(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0), bytes.length - at - 2);
    const from = start + at + 2;
    const total = readPacketLength(memory, from, length);
    if (total > 0 && (memory.bytes[from + 8] ?? 0) > 1)
      came.push(Buffer.from(memory.bytes.slice(from, from + total)));
    way.take(from, length);
    datagrams++;
    at += 2 + length;
  }
  way.flush();
  deepStrictEqual(datagrams, came.length + counters.malformed + counters.expired);
  deepStrictEqual(counters.receivedPackets, came.length + counters.expired);
  // Two hops in all: what has no more ends here.
  const out = delivered.flatMap((packet) => {
    if (packet[1] === 0) {
      deepStrictEqual(packet.subarray(0, offloadHeader), Buffer.alloc(offloadHeader));
      return [comparable(packet.subarray(offloadHeader))];
    }
    return apart(packet).map(comparable);
  });
  let joined = 0;
  const hops = delivered.flatMap((packet) => {
    const count = packet[1] === 0 ? 1 : apart(packet).length;
    joined += count - 1;
    return Array.from({ length: count }, () => (count > 1 ? 2 : 1));
  });
  deepStrictEqual(
    out,
    came.map((each, i) => expected(each, hops[i] ?? 1)),
  );
  deepStrictEqual(joined, came.length - delivered.length);
}

/** Pieces as the kernel gets them. */
const listed = ({ count, memory: { view } }: Vectors): [number, number][] =>
  Array.from({ length: count }, (_, i) => [
    Number(view.getBigUint64(i * 16, true)),
    view.getUint32(i * 16 + 8, true),
  ]);

/**
 * A packet that was put together, as the way out would send it; with one hop more, for that takes
 * one.
 */
function apart(packet: Buffer): Buffer[] {
  const counters = noCounters();
  const { way, sent } = egress(counters);
  taken.bytes.set(packet, 2);
  // Whoever it is for.
  const whom = taken.bytes[start + 16] ?? 0;
  ok(packet.length - offloadHeader <= 65_535);
  taken.bytes[start + 8] = Math.max(taken.bytes[start + 8] ?? 0, 2);
  taken.bytes[start + 16] = whom & 0x7f;
  way.take(taken, 2, packet.length);
  const segments = sent().map((each) => Buffer.from(each));
  for (const each of segments) each[16] = whom;
  return segments;
}

/** What a tun gave: each datagram is one whole packet, and all have what it had. */
function outgoing(bytes: Uint8Array): void {
  const counters = noCounters();
  const { way, sent } = egress(counters);
  taken.bytes.set(bytes, 2);
  const packet = Buffer.from(bytes.subarray(offloadHeader));
  // (ECN alone is no way of cutting.)
  const isCut = ((bytes[1] ?? 0) & 0x7f) !== 0;
  way.take(taken, 2, bytes.length);
  const all = sent();
  const refused = counters.unsendable + counters.unroutable + counters.expired;
  deepStrictEqual(refused === 0, all.length > 0);
  deepStrictEqual(
    all.reduce((sum, each) => sum + each.length, 0),
    counters.sentBytes,
  );
  for (const each of all) {
    const copy = copyOf(each);
    deepStrictEqual(readPacketLength(copy, 0, each.length), each.length);
    if (isCut && headerLength(copy, 0) === 20) ok(isIntact(copy, 0, each.length));
  }
  const [first] = all;
  if (first === undefined || !isCut) return;
  const ip = (packet[0] ?? 0) & 15;
  const header = ip * 4 + ((packet[ip * 4 + 12] ?? 0) >> 4) * 4;
  deepStrictEqual(
    Buffer.concat(all.map((each) => each.subarray(header))),
    packet.subarray(header, packet.readUInt16BE(2)),
  );
}

interface Made {
  readonly data?: number;
  readonly at?: number;
  readonly flags?: number;
  readonly ttl?: number;
  readonly id?: number;
  readonly fragment?: number;
  readonly options?: number;
  readonly protocol?: number;
  readonly to?: number;
  /** Other bytes than as they are. */
  readonly bytes?: Readonly<Record<number, number>>;
  /** Its checksums are wrong. */
  readonly broken?: boolean;
}

/** A TCP packet. */
function tcp(made: Made = {}): Buffer {
  const { data = 8, at = 0, flags = 0x10, ttl = 9, id = 0, fragment = 0x4000, options = 0 } = made;
  const packet = Buffer.alloc(40 + options + data, 7);
  packet.writeUInt32BE(0x4500_0000 | packet.length, 0);
  packet.writeUInt16BE(id, 4);
  packet.writeUInt16BE(fragment, 6);
  packet[8] = ttl;
  packet[9] = made.protocol ?? 6;
  packet.writeUInt16BE(0, 10);
  packet.writeUInt32BE(0x0a4d_0102, 12);
  packet.writeUInt32BE((((made.to ?? 0x0a) << 24) | 0x4d_0202) >>> 0, 16);
  packet.writeUInt32BE(1000 + at, 24);
  packet[32] = (5 + options / 4) << 4;
  packet[33] = flags;
  packet.writeUInt16BE(0, 36);
  for (const [place, byte] of Object.entries(made.bytes ?? {})) packet[Number(place)] = byte;
  if (made.broken === true) return packet;
  packet.writeUInt16BE(sum(packet.subarray(0, 20)), 10);
  const pseudo = Buffer.concat([packet.subarray(12, 20), Buffer.from([0, packet[9] ?? 0, 0, 0])]);
  pseudo.writeUInt16BE(packet.length - 20, 10);
  packet.writeUInt16BE(sum(Buffer.concat([pseudo, packet.subarray(20)])), 36);
  return packet;
}

/** As RFC 1071 has it, two bytes at a time. */
function sum(bytes: Buffer): number {
  let total = 0;
  for (let i = 0; i < bytes.length; i++) total += (bytes[i] ?? 0) << (i % 2 === 0 ? 8 : 0);
  while (total > 0xffff) total = (total & 0xffff) + (total >>> 16);
  return ~total & 0xffff;
}

const datagrams = (...all: readonly Buffer[]): Uint8Array =>
  chosen(
    0,
    Buffer.concat(
      all.flatMap((each) => [Buffer.from([each.length >> 8, each.length & 255]), each]),
    ),
  );

const whole = (packet: Buffer, size: number, type?: number): Uint8Array => {
  const offload = copyOf(new Uint8Array(offloadHeader));
  if (size > 0) writeTcpOffload(offload, 0, { header: 40, size, start: 20 });
  if (type !== undefined) offload.bytes[1] = type;
  return chosen(1, Buffer.concat([offload.bytes.subarray(0, offloadHeader), packet]));
};

/** To be summed up from byte 20 on, but not taken apart. */
const unsummed = (packet: Buffer, from = 20): Uint8Array => {
  const made = whole(packet, 8, 0);
  made[1 + 6] = from;
  return made;
};

/** Each differs from the one before it in one thing that keeps them apart. */
const apartFrom = (second: Made): Uint8Array => datagrams(tcp(), tcp({ at: 8, ...second }));

const generate = (random: Random): Uint8Array => {
  const data = 1 + random.below(9);
  const packets = Array.from({ length: 1 + random.below(6) }, (_, i) =>
    tcp({
      data: random.once(8) ? random.below(12) : data,
      at: random.once(8) ? random.below(40) : i * data,
      flags: random.once(6) ? random.below(256) : 0x10,
      ttl: random.once(10) ? random.below(4) : 9,
      id: random.once(2) ? i : 0,
      fragment: random.once(4) ? random.pick([0, 0x2000, 0x3fff]) : 0x4000,
      options: random.once(3) ? 12 : 0,
      broken: random.once(9),
    }),
  );
  if (random.once(2)) return datagrams(...packets);
  return whole(tcp({ data: random.below(60), to: random.below(200) }), random.below(12));
};

const tunnel: Target = {
  name: "tunnel-packets",
  files: [
    "network/overlay/udp/ipv4.ts",
    "network/overlay/udp/offload.ts",
    "network/overlay/udp/coalesce.ts",
    "network/overlay/udp/segment.ts",
    "network/overlay/udp/checksum.ts",
    "network/overlay/udp/unreachable.ts",
  ],
  seeds: [
    datagrams(tcp(), tcp({ at: 8 }), tcp({ at: 16 }), tcp({ at: 24, data: 3, flags: 0x18 })),
    datagrams(tcp({ options: 12, data: 7 }), tcp({ options: 12, data: 7, at: 7 })),
    datagrams(
      tcp({ fragment: 0 }),
      tcp({ fragment: 0, id: 1, at: 8 }),
      tcp({ fragment: 0, at: 16 }),
    ),
    datagrams(tcp({ options: 4, bytes: { 40: 1 } }), tcp({ options: 4, at: 8, bytes: { 40: 2 } })),
    datagrams(tcp({ broken: true }), tcp({ at: 8 })),
    datagrams(tcp({ data: 2, protocol: 17 }), tcp({ data: 0 }), tcp({ ttl: 1 }), tcp({ flags: 1 })),
    datagrams(Buffer.alloc(3), tcp().subarray(0, 39), tcp({ bytes: { 0: 0x65 } })),
    datagrams(tcp({ bytes: { 0: 0x44 } }), tcp({ bytes: { 0: 0x46 } }), tcp({ bytes: { 2: 9 } })),
    datagrams(
      tcp({ bytes: { 32: 0x40 } }),
      tcp({ bytes: { 32: 0xf0 } }),
      tcp({ bytes: { 3: 30 } }),
    ),
    apartFrom({ broken: true }),
    apartFrom({ at: 9 }),
    apartFrom({ fragment: 0 }),
    apartFrom({ fragment: 0x2000 }),
    apartFrom({ ttl: 8 }),
    apartFrom({ to: 0x0b }),
    ...[1, 21, 28, 34, 38].map((place) => apartFrom({ bytes: { [place]: 1 } })),
    apartFrom({ bytes: { 32: 0x60 }, data: 12 }),
    apartFrom({ bytes: { 32: 0x51 } }),
    // (Sums whose carry has to come back: one hop less turns 0xfeff into zero.)
    datagrams(tcp({ broken: true, bytes: { 10: 0xff, 11: 0xff } })),
    whole(tcp({ data: 30, flags: 0x99 }), 8),
    whole(tcp({ data: 0 }), 8),
    whole(tcp(), 0),
    whole(tcp({ to: 0xc0 }), 0),
    whole(tcp({ to: 0xc0, protocol: 1 }), 0),
    whole(tcp({ to: 0xc0, fragment: 1 }), 0),
    whole(tcp({ ttl: 1 }), 8),
    whole(tcp(), 8, 3),
    whole(tcp({ bytes: { 32: 0xf0 } }), 8),
    whole(tcp({ protocol: 17 }), 8),
    unsummed(tcp()),
    unsummed(tcp(), 200),
    unsummed(tcp(), 3),
    unsummed(tcp({ protocol: 17, data: 9 })),
    unsummed(tcp({ protocol: 17, broken: true }).fill(0, 20).fill(0xff, 20, 22)),
  ],
  generate,
  run: choosing([incoming, outgoing]),
};

export const tunnels: readonly Target[] = [tunnel];
