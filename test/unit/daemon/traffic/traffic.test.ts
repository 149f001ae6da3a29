import test from "ava";
import { create } from "@bufbuild/protobuf";
import {
  CaptureRequestSchema,
  StatsRequestSchema,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateCapture, validateStats } from "../../../../api/validate/traffic.ts";
import { pcapHeader, pcapRecord } from "../../../../daemon/traffic/pcap.ts";
import { machineRates, type MachineSample } from "../../../../daemon/traffic/machine-rates.ts";
import { ratesBetween, type Sample } from "../../../../daemon/traffic/rates.ts";
import { TrafficTotals } from "../../../../daemon/traffic/totals.ts";
import type { DiskUsage } from "../../../../hypervisor/driver.ts";
import { parseCpuStat, parseHeldMemory } from "../../../../hypervisor/jail/cgroup-usage.ts";
import { parseCpuMs, parseStat } from "../../../../linux/processes/proc.ts";
import { parseControl, withTag } from "../../../../linux/packets/packet-control.ts";
import type { LinkCounters } from "../../../../linux/rtnetlink/counters.ts";

const none: LinkCounters = {
  rxPackets: 0n,
  txPackets: 0n,
  rxBytes: 0n,
  txBytes: 0n,
  rxErrors: 0n,
  txErrors: 0n,
  rxDropped: 0n,
  txDropped: 0n,
};
const sample = (atMs: number, counters: Partial<LinkCounters>, index = 7): Sample => ({
  atMs,
  link: { index, name: "tap0", counters: { ...none, ...counters } },
});

test("rates are what grew, for each second", (t) => {
  const before = sample(1000, { rxBytes: 500n, txBytes: 10n, rxPackets: 5n, txPackets: 1n });
  const now = sample(3000, { rxBytes: 2500n, txBytes: 10n, rxPackets: 25n, txPackets: 2n });
  t.deepEqual(ratesBetween(before, now), {
    rxBytes: 1000,
    rxPackets: 10,
    txBytes: 0,
    txPackets: 0.5,
  });
});

test("there are no rates where they would be wrong", (t) => {
  const before = sample(1000, { rxBytes: 500n, rxPackets: 5n });
  t.is(ratesBetween(undefined, before), undefined, "nothing before");
  t.is(
    ratesBetween(before, sample(2000, { rxBytes: 400n, rxPackets: 6n })),
    undefined,
    "went back",
  );
  t.is(ratesBetween(before, sample(2000, { rxBytes: 900n, rxPackets: 4n })), undefined, "one did");
  const anew = sample(2000, { rxBytes: 9_000_000n, rxPackets: 9000n }, 8);
  t.is(ratesBetween(before, anew), undefined, "another link of that name");
  t.is(ratesBetween(before, sample(1000, { rxBytes: 600n, rxPackets: 6n })), undefined, "no time");
  t.is(
    ratesBetween(before, sample(900, { rxBytes: 600n, rxPackets: 6n })),
    undefined,
    "time went back",
  );
});

test("a machine's rates: of the same run, never backwards, disk by disk", (t) => {
  const disk = { path: "/a", readBytes: 0, readRequests: 0, writeBytes: 0, writeRequests: 0 };
  const machine = (
    atMs: number,
    cpuMs: number,
    disks: readonly DiskUsage[] = [],
    startTime = "5",
  ): MachineSample => ({
    atMs,
    record: { pid: 7, startTime },
    usage: { cpuMs, memoryBytes: 1, disks },
  });
  const before = machine(1000, 100, [disk, { ...disk, path: "/b", writeBytes: 9 }]);
  const now = machine(3000, 600, [
    { ...disk, readBytes: 4096, writeBytes: 10 },
    { ...disk, path: "/b", writeBytes: 8 },
    { ...disk, path: "/c" },
  ]);
  t.deepEqual(machineRates(before, now), {
    cpuPercent: 25,
    disks: [{ readBytes: 2048, writeBytes: 5 }, undefined, undefined],
  });
  t.is(machineRates(undefined, now), undefined);
  t.is(machineRates(before, machine(3000, 600, [], "6")), undefined, "another run");
  t.is(machineRates(before, machine(3000, 99)), undefined, "went back");
  t.is(machineRates(before, machine(1000, 200)), undefined, "no time");
});

test("control groups of both versions, and what of their memory counts", (t) => {
  t.is(
    parseHeldMemory("104857600\n", "anon 1\ninactive_file 4857600\nactive_file 5\n"),
    100_000_000,
  );
  t.is(parseHeldMemory("4096\n", "inactive_file 8192\n"), 0);
  t.is(parseHeldMemory("4096\n", "total_inactive_file 8192\n"), 4096, "of groups below");
  t.is(parseHeldMemory("max\n", ""), undefined);
  t.is(parseCpuStat("usage_usec 1500000\nuser_usec 1\n"), 1500);
  t.is(parseCpuStat("user_usec 1\n"), undefined);
  t.is(parseCpuMs(parseStat("1 (a (b) c) S 0 1 1 0 -1 0 1 2 3 4 150 50 7 8 20 0 1 0 12 99")), 2000);
  t.is(parseCpuMs(parseStat("")), undefined);
});

test("counters beyond what a number holds still give rates", (t) => {
  const much = 2n ** 63n;
  const rates = ratesBetween(sample(0, { txBytes: much }), sample(1000, { txBytes: much + 8n }));
  t.is(rates?.txBytes, 8);
});

test("totals never fall: taps come, go and come anew", (t) => {
  const totals = new TrafficTotals();
  const at = (...links: readonly (readonly [name: string, index: number, rx: bigint])[]) =>
    totals.add(
      new Map(
        links.map(([name, index, rxBytes]) => [
          name,
          { index, name, counters: { ...none, rxBytes, txPackets: 1n } },
        ]),
      ),
    );
  t.is(at(["a", 1, 1000n]).txBytes, 0, "what passed before was counted by another");
  t.is(at(["a", 1, 1500n]).txBytes, 500);
  t.is(at(["a", 1, 1500n], ["b", 2, 70n]).txBytes, 570, "one that came since counts whole");
  t.is(at(["b", 2, 80n]).txBytes, 580);
  t.is(at(["a", 3, 5n], ["b", 2, 80n]).txBytes, 585, "anew");
  t.is(at(["b", 2, 10n]).txBytes, 585, "went back");
  t.is(at().rxPackets, 2, "of b, and of a anew");
});

test("a pcap file: its header, and a packet with nanoseconds, cut", (t) => {
  t.is(
    Buffer.from(pcapHeader(262_144)).toString("hex"),
    "4d3cb2a10200040000000000000000000000040001000000",
  );
  const record = pcapRecord({
    timeNs: 1_700_000_000_123_456_789n,
    bytes: Uint8Array.of(1, 2, 3),
    length: 60,
  });
  t.is(Buffer.from(record).toString("hex"), "00f1536515cd5b07030000003c000000010203");
  // A time after 2106 must not make the file unreadable.
  t.is(
    pcapRecord({ timeNs: 2n ** 40n * 1_000_000_000n, bytes: new Uint8Array(0), length: 0 }).length,
    16,
  );
});

/** A control message as the kernel pads it. */
function controlMessage(level: number, type: number, data: Uint8Array): Buffer {
  const bytes = Buffer.alloc((16 + data.length + 7) & ~7);
  bytes.writeBigUInt64LE(BigInt(16 + data.length), 0);
  bytes.writeInt32LE(level, 8);
  bytes.writeInt32LE(type, 12);
  bytes.set(data, 16);
  return bytes;
}
function timestamp(seconds: bigint, nanoseconds: bigint): Buffer {
  const data = Buffer.alloc(16);
  data.writeBigInt64LE(seconds, 0);
  data.writeBigInt64LE(nanoseconds, 8);
  return controlMessage(1, 35, data);
}
function auxiliary(status: number, tci: number, tpid: number): Buffer {
  const data = Buffer.alloc(20);
  data.writeUInt32LE(status, 0);
  data.writeUInt16LE(tci, 16);
  data.writeUInt16LE(tpid, 18);
  return controlMessage(263, 8, data);
}

test("what the kernel says alongside a frame: its time, and the tag it took out", (t) => {
  const time = timestamp(1_700_000_000n, 5n);
  t.deepEqual(parseControl(Buffer.concat([time, auxiliary(1, 0, 0)])), {
    timeNs: 1_700_000_000_000_000_005n,
    tag: undefined,
  });
  const tagged = parseControl(Buffer.concat([auxiliary(0x51, 10, 0x88a8), time]));
  t.deepEqual(tagged.tag, { protocol: 0x88a8, control: 10 });
  t.deepEqual(parseControl(auxiliary(0x11, 10, 0)).tag, { protocol: 0x8100, control: 10 });
  t.deepEqual(parseControl(time.subarray(0, 20)), { timeNs: undefined, tag: undefined });
  t.deepEqual(parseControl(new Uint8Array(40)), { timeNs: undefined, tag: undefined });
});

test("a frame gets its tag back, and stays cut where it was to be", (t) => {
  const frame = Uint8Array.from({ length: 20 }, (_, i) => i);
  const tag = { protocol: 0x8100, control: 0x00_0a };
  const whole = withTag(frame, 20, { timeNs: 1n, tag });
  t.is(whole.length, 24);
  t.is(
    Buffer.from(whole.bytes).toString("hex"),
    "000102030405060708090a0b8100000a0c0d0e0f10111213",
  );
  const cut = withTag(frame, 1500, { timeNs: 1n, tag });
  t.deepEqual([cut.bytes.length, cut.length], [20, 1504]);
  const bare = withTag(frame, 1500, { timeNs: undefined, tag: undefined });
  t.deepEqual([bare.bytes.length, bare.length], [20, 1500]);
  t.true(bare.timeNs > 1_600_000_000_000_000_000n);
  t.is(withTag(frame.subarray(0, 8), 8, { timeNs: 1n, tag }).length, 8, "too short to hold one");
});

test("what may be asked of counters and captures", (t) => {
  const stats = (init: object) => validateStats(create(StatsRequestSchema, init));
  t.deepEqual(stats({}), { pod: undefined, everyMs: undefined });
  t.deepEqual(stats({ idOrName: "web", everyMs: 100 }), { pod: "web", everyMs: 100 });
  for (const everyMs of [1, 99, 3_600_001])
    t.like(
      t.throws(() => stats({ everyMs })),
      { code: "INVALID_ARGUMENT", field: "every_ms" },
    );
  const capture = (init: object) =>
    validateCapture(create(CaptureRequestSchema, { idOrName: "web", ...init }));
  t.deepEqual(capture({}), {
    pod: "web",
    guestName: undefined,
    snapBytes: 262_144,
    maxPackets: undefined,
  });
  t.deepEqual(capture({ guestName: "eth1", snapBytes: 64, maxPackets: 2n }), {
    pod: "web",
    guestName: "eth1",
    snapBytes: 64,
    maxPackets: 2n,
  });
  for (const [init, field] of [
    [{ idOrName: "" }, "id_or_name"],
    [{ guestName: "a b" }, "guest_name"],
    [{ guestName: "0123456789abcdef" }, "guest_name"],
    [{ snapBytes: 63 }, "snap_bytes"],
    [{ snapBytes: 262_145 }, "snap_bytes"],
  ] as const)
    t.like(
      t.throws(() => capture(init)),
      { code: "INVALID_ARGUMENT", field },
    );
});
