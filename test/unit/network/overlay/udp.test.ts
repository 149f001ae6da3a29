import fc from "fast-check";
import test from "ava";
import { parseCidr, parseIp } from "../../../../core/address.ts";
import { NativeMemory } from "../../../../linux/native-memory.ts";
import { overlayChangeText } from "../../../../network/overlay/change.ts";
import { folded, sumOf } from "../../../../network/overlay/udp/checksum.ts";
import { noCounters } from "../../../../network/overlay/udp/counters.ts";
import { Egress } from "../../../../network/overlay/udp/egress.ts";
import { Ingress } from "../../../../network/overlay/udp/ingress.ts";
import { lowerTtl, sealHeader } from "../../../../network/overlay/udp/ipv4.ts";
import { offloadHeader, writeTcpOffload } from "../../../../network/overlay/udp/offload.ts";
import { PeerTable } from "../../../../network/overlay/udp/peer-table.ts";
import { planTunnel, planTunnelPeers } from "../../../../network/overlay/udp/plan.ts";
import { writeUnreachable } from "../../../../network/overlay/udp/unreachable.ts";

/** As RFC 1071 says it: two bytes at a time. */
function plainSum(bytes: Uint8Array): number {
  let sum = 0;
  for (const [i, byte] of bytes.entries()) sum += i % 2 === 0 ? byte << 8 : byte;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}

const at = 12;

/** A TCP packet with these data, in memory as a tun's read has it, its checksum left to others. */
function segments(data: number, size: number): { memory: NativeMemory; length: number } {
  const memory = new NativeMemory(70_000);
  const { bytes, view } = memory;
  const total = 40 + data;
  bytes.fill(0);
  bytes[at] = 0x45;
  view.setUint16(at + 2, total);
  view.setUint16(at + 4, 0xffff);
  bytes[at + 6] = 0x40;
  bytes[at + 8] = 64;
  bytes[at + 9] = 6;
  view.setUint32(at + 12, 0x0a4d_0102);
  view.setUint32(at + 16, 0x0a4d_0202);
  view.setUint32(at + 24, 0xffff_fff0);
  bytes[at + 32] = 0x50;
  bytes[at + 33] = 0x18;
  for (let i = 0; i < data; i++) bytes[at + 40 + i] = (i * 7) & 255;
  sealHeader(memory, at, 20);
  writeTcpOffload(memory, 2, { header: 40, size, start: 20 });
  return { memory, length: offloadHeader + total };
}

/** What leaves by the way out, one buffer a datagram. */
function sent(memory: NativeMemory, length: number): Buffer[] {
  const all: Buffer[] = [];
  const peers = new PeerTable();
  peers.set(0x0a4d_0200, 24, 7);
  const way: Egress = new Egress({
    peers,
    counters: noCounters(),
    outlet: {
      begin: () => void all.push(Buffer.alloc(0)),
      piece: (address, size) => {
        const from = [memory, way.headers].find(
          (each) => address >= each.address && address < each.address + each.bytes.length,
        ) as NativeMemory;
        const start = address - from.address;
        all.push(Buffer.concat([all.pop() as Buffer, from.bytes.slice(start, start + size)]));
      },
      flush: () => {},
    },
    onUnroutable: () => {},
  });
  way.take(memory, 2, length);
  return all;
}

test("sums are those of RFC 1071, at whatever place and of whatever length", (t) => {
  const memory = new NativeMemory(4096);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(7), (data, place) => {
      memory.bytes.fill(0xa5);
      memory.bytes.set(data, place);
      return sumOf(memory, place, data.length) === plainSum(data);
    }),
    { examples: [[Uint8Array.of(255, 255), 1]] },
  );
  memory.bytes.fill(0xff);
  t.is(sumOf(memory, 1, 4001), plainSum(memory.bytes.subarray(1, 4002)));
});

test("a hop less is a header whose checksum is right, as counted anew", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 20, maxLength: 20 }), (header) => {
      const memory = new NativeMemory(20);
      memory.bytes.set(header);
      memory.bytes[8] = Math.max(2, header[8] ?? 0);
      sealHeader(memory, 0, 20);
      const lowered = lowerTtl(memory, 0);
      const mended = memory.view.getUint16(10);
      sealHeader(memory, 0, 20);
      // (Zero has two ways of being written.)
      return lowered && mended % 0xffff === memory.view.getUint16(10) % 0xffff;
    }),
  );
  for (const ttl of [0, 1]) {
    const memory = new NativeMemory(20);
    memory.bytes[8] = ttl;
    t.false(lowerTtl(memory, 0), "no hop is left, and none comes after zero");
  }
});

test("one connection's segments leave as their sender would have sent them, and come together again", (t) => {
  const { memory, length } = segments(3000, 1400);
  const all = sent(memory, length);
  t.deepEqual(
    all.map((each) => each.length),
    [1440, 1440, 240],
  );
  t.deepEqual(
    all.map((each) => each.readUInt16BE(4)),
    [0xffff, 0, 1],
    "numbered on",
  );
  t.deepEqual(
    all.map((each) => each.readUInt32BE(24)),
    [0xffff_fff0, 1384, 2784],
  );
  t.deepEqual(
    all.map((each) => each[33]),
    [0x10, 0x10, 0x18],
    "the last alone pushes",
  );
  for (const each of all) {
    t.is(each[8], 63);
    t.is(plainSum(each.subarray(0, 20)), 0xffff);
    const pseudo = Buffer.concat([each.subarray(12, 20), Buffer.from([0, 6, 0, 0])]);
    pseudo.writeUInt16BE(each.length - 20, 10);
    t.is(plainSum(Buffer.concat([pseudo, each.subarray(20)])), 0xffff);
  }
  // The other end: as one, but for two hops.
  t.deepEqual(delivered(all), [[0x18, 3040, 1400]]);
  // One whose checksum is wrong stays alone, for the kernel to refuse; what follows it as well, for
  // it is not next.
  const [first, second, third] = all.map((each) => Buffer.from(each)) as [Buffer, Buffer, Buffer];
  second[1000] = (second[1000] ?? 0) ^ 1;
  t.deepEqual(delivered([first, second, third]), [
    [0x10, 1440, 0],
    [0x10, 1440, 0],
    [0x18, 240, 0],
  ]);
  t.deepEqual(delivered([second, third]), [
    [0x10, 1440, 0],
    [0x18, 240, 0],
  ]);
});

/**
 * Flags, length and size of segments of each packet that the kernel is given for these datagrams.
 */
function delivered(datagrams: readonly Buffer[]): number[][] {
  const memory = new NativeMemory(1 << 16);
  const all: number[][] = [];
  const way: Ingress = new Ingress({
    memory,
    counters: noCounters(),
    deliver: () => {
      const { view, bytes } = memory;
      all.push([
        bytes[first + 33] ?? 0,
        view.getUint16(first + 2),
        way.offload.view.getUint16(4, true),
      ]);
      return true;
    },
  });
  let place = 0;
  let first = 0;
  for (const datagram of datagrams) {
    memory.bytes.set(datagram, place);
    const before = all.length;
    way.take(place, datagram.length);
    if (all.length > before || place === 0) first = place;
    place += datagram.length;
  }
  way.flush();
  return all;
}

test("a packet for no host is answered from the overlay's first address, but never ICMP nor a later fragment", (t) => {
  const answer = new NativeMemory(200);
  const write = (change: (memory: NativeMemory) => void = () => {}): number => {
    const { memory } = segments(100, 0);
    change(memory);
    return writeUnreachable(memory, at, 140, answer, 0, 0x0a4d_0000);
  };
  t.is(write(), 56);
  const bytes = Buffer.from(answer.bytes.slice(0, 56));
  // Version, length, hops, protocol; from and to; "network unreachable"; what it is about.
  t.is(bytes.toString("hex", 0, 4), "45000038");
  t.deepEqual([bytes[8], bytes[9]], [8, 1]);
  t.is(bytes.toString("hex", 12, 22), "0a4d00000a4d01020300");
  t.is(bytes.toString("hex", 28, 32), "4500008c");
  t.is(plainSum(bytes.subarray(0, 20)), 0xffff);
  t.is(plainSum(bytes.subarray(20)), 0xffff);
  t.is(
    write(({ bytes: packet }) => {
      packet[at + 9] = 1;
    }),
    0,
  );
  t.is(
    write(({ view }) => view.setUint16(at + 6, 1)),
    0,
  );
});

test("the longest prefix has an address, and none has what no host has", (t) => {
  const peers = new PeerTable();
  const address = 0xc0a8_0901;
  t.is(peers.find(address), undefined);
  peers.set(0xc0a8_0000, 16, 1);
  t.is(peers.find(address), 1, "what was known of it is known anew");
  peers.set(0xc0a8_0900, 24, 2);
  t.is(peers.find(address), 2);
  t.is(peers.find(0xc0a8_0801), 1);
  peers.delete(0xc0a8_0900, 24);
  t.is(peers.find(address), 1);
  peers.delete(0xc0a8_0000, 16);
  peers.delete(0xc0a8_0000, 17);
  t.is(peers.find(address), undefined);
  peers.set(0, 0, 3);
  t.is(peers.find(0xffff_ffff), 3);
});

test("a tunnel stays while it is as it is to be, works, and has its device", (t) => {
  const birth = { publicIp: parseIp("192.0.2.1"), port: 8285, answersFrom: parseIp("10.77.0.0") };
  const open = { birth, device: "flannel0" as never, broken: undefined };
  const plan = (...parameters: Parameters<typeof planTunnel>): string[] =>
    planTunnel(...parameters).map(overlayChangeText);
  const anew = ["tunnel - a on flannel0", "tunnel + a at 192.0.2.1:8285"];
  t.deepEqual(plan("a", birth, open, true), []);
  t.deepEqual(plan("a", birth, undefined, false), anew.slice(1));
  t.deepEqual(plan("a", undefined, open, true), anew.slice(0, 1));
  t.deepEqual(plan("a", birth, open, false), anew, "its device has gone");
  t.deepEqual(plan("a", birth, { ...open, broken: "EBADFD" }, true), anew);
  for (const other of [
    { publicIp: parseIp("192.0.2.9") },
    { port: 1 },
    { answersFrom: parseIp("10.0.0.0") },
  ])
    t.deepEqual(plan("a", birth, { ...open, birth: { ...birth, ...other } }, true), anew);
  const one = parseCidr("10.77.1.0/24");
  const two = parseCidr("10.77.2.0/24");
  const wanted = new Map([[one, parseIp("192.0.2.1")]]);
  const observed = new Map([
    [one, parseIp("192.0.2.3")],
    [two, parseIp("192.0.2.2")],
  ]);
  t.deepEqual(planTunnelPeers("a", wanted, observed).map(overlayChangeText), [
    "peer + 10.77.1.0/24 at 192.0.2.1",
    "peer - 10.77.2.0/24",
  ]);
  t.deepEqual(planTunnelPeers("a", undefined, observed), [], "another backend's");
  t.is(folded(0x1_ffff), 1);
});
