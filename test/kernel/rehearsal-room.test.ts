import { readdirSync, readSync, writeSync } from "node:fs";
import test from "ava";
import { type Ip, type IpPrefix, ipToBytes } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import { openRehearsalRoom } from "../../daemon/pods/pool/rehearsal-room.ts";
import { pollFd } from "../../linux/ffi/poll.ts";
import { run } from "../../linux/processes/command.ts";
import { internetChecksum } from "../../linux/sockets/icmp.ts";
import { openTap, type Tap } from "../../linux/tun.ts";
import { FrameTap } from "../lab/frame-tap.ts";
import { ownNetns } from "../lab/netns.ts";

test.before(() => ownNetns());

const self = "192.0.2.1/24" as IpPrefix;
const guest = "192.0.2.2" as Ip;
/** struct virtio_net_hdr, before each frame of a tap. */
const virtioHeader = 10;
const guestMac = Buffer.from("00005e005301", "hex");

const etherType = { arp: 0x0806, ipv4: 0x0800, experimental: 0x88b5 } as const;

/** A guest at a tap: it answers ARP and echo requests, and says what it was asked. */
function play(tap: Tap, answers: boolean) {
  const asked: string[] = [];
  const poll = pollFd(tap.fd, "readable", () => {
    const buffer = Buffer.alloc(4096);
    const frame = buffer.subarray(virtioHeader, readSync(tap.fd, buffer));
    const type = frame.readUInt16BE(12);
    if (type !== etherType.arp && type !== etherType.ipv4) return;
    asked.push(type === etherType.arp ? "arp" : "echo");
    if (answers) writeSync(tap.fd, type === etherType.arp ? arpReply(frame) : echoReply(frame));
  });
  return { asked, [Symbol.dispose]: () => poll.close() };
}

function framed(request: Buffer, change: (frame: Buffer) => void): Buffer {
  const reply = Buffer.concat([Buffer.alloc(virtioHeader), request]);
  const frame = reply.subarray(virtioHeader);
  request.copy(frame, 0, 6, 12);
  guestMac.copy(frame, 6);
  change(frame);
  return reply;
}

const arpReply = (request: Buffer): Buffer =>
  framed(request, (frame) => {
    frame.writeUInt16BE(2, 20);
    request.copy(frame, 32, 22, 32);
    guestMac.copy(frame, 22);
    frame.set(ipToBytes(guest), 28);
  });

const echoReply = (request: Buffer): Buffer =>
  framed(request, (frame) => {
    request.copy(frame, 26, 30, 34);
    request.copy(frame, 30, 26, 30);
    const message = frame.subarray(34, 14 + frame.readUInt16BE(16));
    message[0] = 0;
    message.writeUInt16BE(0, 2);
    message.writeUInt16BE(internetChecksum(message), 2);
  });

/** A broadcast of a protocol for experiments (IEEE 802). */
function hello(text: string): Buffer {
  const message = Buffer.alloc(virtioHeader + 60);
  const frame = message.subarray(virtioHeader);
  frame.fill(0xff, 0, 6);
  guestMac.copy(frame, 6);
  frame.writeUInt16BE(etherType.experimental, 12);
  frame.write(text, 14);
  return message;
}

const linkOf = async (name: string): Promise<string> =>
  (await run(["ip", "-o", "address", "show", name], { okCodes: [0, 1] })).stdout +
  (await run(["ip", "-o", "link", "show", name], { okCodes: [0, 1] })).stdout;

test.serial("a guest is visited where nothing it sends reaches the host", async (t) => {
  const name = parseIfName("tap0");
  // Of all links of the host.
  using heard = FrameTap.open(0);
  using room = openRehearsalRoom(60_000);
  await using tap = room.within(() => openTap(name));
  t.is(await linkOf(name), "", "the host does not have it");
  using played = play(tap, true);
  await room.visit(name, self, guest);
  t.deepEqual(played.asked, ["arp", "echo", "echo"]);
  writeSync(tap.fd, hello("in the room"));
  await room.release(name);
  const link = await linkOf(name);
  t.regex(link, /state DOWN/);
  t.notRegex(link, /inet/);
  // From now on it is the host's.
  await run(["ip", "link", "set", name, "up"]);
  writeSync(tap.fd, hello("with the host"));
  const first = await heard.next((frame) => frame.readUInt16BE(12) === etherType.experimental);
  t.is(first.toString("latin1", 14, 27), "with the host");
});

test.serial("a guest that does not answer is waited for once, and not for long", async (t) => {
  const name = parseIfName("tap1");
  using room = openRehearsalRoom(200);
  await using tap = room.within(() => openTap(name));
  using played = play(tap, false);
  await room.visit(name, self, guest);
  t.true(played.asked.includes("arp"));
  t.false(played.asked.includes("echo"));
});

test.serial("a tap stays in the room when the host has a link of its name", async (t) => {
  const name = parseIfName("tap2");
  using room = openRehearsalRoom();
  await using _inside = room.within(() => openTap(name));
  await using _outside = openTap(name);
  await t.throwsAsync(room.release(name), { code: "NETLINK_FAILED", message: /tap2/ });
});

test.serial("nothing is left of a room that is closed", (t) => {
  const descriptors = (): number => readdirSync("/proc/self/fd").length;
  const before = descriptors();
  const room = openRehearsalRoom();
  t.true(descriptors() > before);
  room[Symbol.dispose]();
  room[Symbol.dispose]();
  t.is(descriptors(), before);
});
