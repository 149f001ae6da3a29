import { writeSync } from "node:fs";
import test from "ava";
import { parseIfName } from "../../core/names.ts";
import { tapCounters } from "../../daemon/traffic/counters.ts";
import { run } from "../../linux/processes/command.ts";
import type { Frame } from "../../linux/packets/packet-socket.ts";
import { PacketStream } from "../../linux/packets/packet-stream.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";

const never = new AbortController().signal;
const link = parseIfName("tap0");
const ip = (...args: readonly string[]): Promise<unknown> => run(["ip", ...args]);

test.before(() => ownNetns());

/** A tap that is up and says nothing by itself: what passes it is what this test sends. */
async function quietTap() {
  const tap = openTap(link);
  await ip("link", "set", "dev", link, "addrgenmode", "none");
  await ip("link", "set", "dev", link, "up");
  return tap;
}

/** An Ethernet frame of an unused type, of so many bytes, numbered. */
function frame(number: number, size = 60, tag?: number): Uint8Array {
  const bytes = Buffer.alloc(size, number);
  bytes.set([0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2]);
  if (tag === undefined) bytes.writeUInt16BE(0x88b5, 12);
  else {
    bytes.writeUInt16BE(0x8100, 12);
    bytes.writeUInt16BE(tag, 14);
    bytes.writeUInt16BE(0x88b5, 16);
  }
  return bytes;
}

/** Sends as a guest would: behind a virtio header of ten zeros. */
const send = (fd: number, bytes: Uint8Array): void => {
  writeSync(fd, Buffer.concat([Buffer.alloc(10), bytes]));
};

async function take(stream: PacketStream, count: number): Promise<Frame[]> {
  const frames: Frame[] = [];
  while (frames.length < count) {
    const more = await stream.next(count - frames.length, AbortSignal.timeout(5000));
    if (more === undefined) throw new Error("The link is gone");
    frames.push(...more);
  }
  return frames;
}

test.serial("frames come whole or cut, with their length and the kernel's time", async (t) => {
  await using tap = await quietTap();
  using whole = new PacketStream({ link, snapBytes: 2048 });
  using cut = new PacketStream({ link, snapBytes: 64 });
  const before = BigInt(Date.now()) * 1_000_000n;
  send(tap.fd, frame(1, 1400));
  const [first] = await take(whole, 1);
  t.deepEqual(Buffer.from(first?.bytes ?? []), Buffer.from(frame(1, 1400)));
  t.is(first?.length, 1400);
  t.true((first?.timeNs ?? 0n) >= before - 1_000_000_000n);
  const [short] = await take(cut, 1);
  t.deepEqual(Buffer.from(short?.bytes ?? []), Buffer.from(frame(1, 1400).subarray(0, 64)));
  t.is(short?.length, 1400);
  t.is(whole.lost + cut.lost, 0);
});

test.serial("a VLAN tag that the kernel took out is where it was", async (t) => {
  await using tap = await quietTap();
  using stream = new PacketStream({ link, snapBytes: 2048 });
  send(tap.fd, frame(7, 80, 10));
  const [tagged] = await take(stream, 1);
  t.deepEqual(Buffer.from(tagged?.bytes ?? []), Buffer.from(frame(7, 80, 10)));
  t.is(tagged?.length, 80);
});

test.serial("nothing of other links is taken", async (t) => {
  await using tap = await quietTap();
  await using other = openTap(parseIfName("tap1"));
  await ip("link", "set", "dev", "tap1", "addrgenmode", "none");
  await ip("link", "set", "dev", "tap1", "up");
  using stream = new PacketStream({ link, snapBytes: 2048 });
  send(other.fd, frame(1));
  send(tap.fd, frame(2));
  t.is((await take(stream, 1))[0]?.bytes[20], 2);
  await t.throwsAsync(stream.next(1, AbortSignal.timeout(50)), { code: "DEADLINE_EXCEEDED" });
});

test.serial(
  "what is not read is dropped by the kernel and counted; the rest is there in order",
  async (t) => {
    await using tap = await quietTap();
    using stream = new PacketStream({ link, snapBytes: 2048 });
    const sent = 20_000;
    for (let i = 0; i < sent; i++) {
      const bytes = frame(0, 1000);
      new DataView(bytes.buffer, bytes.byteOffset).setUint32(20, i);
      send(tap.fd, bytes);
    }
    const got: number[] = [];
    for (;;) {
      const frames = await stream.next(Infinity, AbortSignal.timeout(200)).catch(() => undefined);
      if (frames === undefined) break;
      t.true(frames.length <= 64);
      for (const { bytes } of frames)
        got.push(new DataView(bytes.buffer, bytes.byteOffset).getUint32(20));
    }
    t.true(stream.lost > 1000, `${stream.lost}`);
    t.is(got.length + stream.lost, sent);
    t.deepEqual(
      got,
      got.toSorted((a, b) => a - b),
    );
  },
);

test.serial(
  "a link that goes down and up again goes on; one that is gone ends it, also if made anew",
  async (t) => {
    await using tap = await quietTap();
    using stream = new PacketStream({ link, snapBytes: 2048 });
    const waiting = stream.next(1, AbortSignal.timeout(10_000));
    await ip("link", "set", "dev", link, "down");
    await ip("link", "set", "dev", link, "up");
    send(tap.fd, frame(3));
    t.is((await waiting)?.[0]?.bytes[20], 3);
    const last = stream.next(1, AbortSignal.timeout(10_000));
    await tap.close();
    t.is(await last, undefined);
    await using _anew = await quietTap();
    t.is(await stream.next(1, never), undefined);
  },
);

test.serial("an abandoned wait leaves a stream that can be read on", async (t) => {
  await using tap = await quietTap();
  using stream = new PacketStream({ link, snapBytes: 2048 });
  await t.throwsAsync(stream.next(1, AbortSignal.timeout(20)), { code: "DEADLINE_EXCEEDED" });
  send(tap.fd, frame(4));
  t.is((await take(stream, 1))[0]?.bytes[20], 4);
});

test.serial("a link that is not there is an error that says so", (t) => {
  const error = t.throws(() => new PacketStream({ link: parseIfName("none"), snapBytes: 64 }), {
    code: "SYSCALL_FAILED",
  });
  t.like(error, { details: { errno: "ENODEV", syscall: "SIOCGIFINDEX" } });
});

test.serial("counters of taps: one by one and from the list, as ip reports them", async (t) => {
  using netlink = Rtnetlink.open();
  await using tap = await quietTap();
  for (let i = 0; i < 5; i++) send(tap.fd, frame(i, 500));
  const one = (await tapCounters(netlink, [link])).get(link);
  t.is(one?.counters.rxPackets, 5n);
  t.is(one?.counters.rxBytes, 2500n);
  const many = Array.from({ length: 20 }, (_, i) => parseIfName(`none${i}`));
  const list = await tapCounters(netlink, [...many, link]);
  t.deepEqual([...list.keys()], [link]);
  t.deepEqual(list.get(link), one);
  const { stdout } = await run(["ip", "-j", "-s", "link", "show", "dev", link]);
  const [shown] = JSON.parse(stdout) as [
    { ifindex: number; stats64: Record<"rx" | "tx", Record<string, number>> },
  ];
  const { rx, tx } = shown.stats64;
  t.is(one?.index, shown.ifindex);
  t.deepEqual(
    [rx["bytes"], rx["packets"], rx["errors"], rx["dropped"], tx["bytes"], tx["dropped"]],
    [2500, 5, 0, Number(one?.counters.rxDropped), Number(one?.counters.txBytes), 0],
  );
  t.is((await tapCounters(netlink, [])).size, 0);
});
