import { closeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { connect, lastErrno, recv, send, socket } from "../../linux/ffi/libc.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { type Poll, pollFd } from "../../linux/ffi/poll.ts";
import type { Machine } from "./lab.ts";

const afInet = 2;
const sockRaw = 3;
const nonBlock = 0o4000;
const icmp = 1;
/** Milliseconds between two requests. */
const everyMs = 2;

/**
 * Sends echo requests from a machine until one is answered, and resolves with that moment
 * (`performance.now()`). A `ping` that is started for it costs more than a pod of the pool does.
 */
export async function firstEcho(from: Machine, address: string): Promise<number> {
  const fd = withNetns(from.path, () => socket(afInet, sockRaw | nonBlock, icmp));
  if (fd < 0) throw new Error(`A raw socket needs root (errno ${lastErrno()})`);
  let poll: Poll | undefined;
  try {
    // struct sockaddr_in: the socket hears this address alone.
    const to = Buffer.alloc(16);
    to.writeUInt16LE(afInet, 0);
    to.set(address.split(".").map(Number), 4);
    if (connect(fd, to, to.length) < 0) throw new Error(`No way to ${address}`);
    const answered = Promise.withResolvers<number>();
    poll = pollFd(fd, "readable", () => {
      const packet = Buffer.alloc(256);
      // After the IPv4 header: 0 is an echo reply.
      while (recv(fd, packet, packet.length, 0) > 0)
        if (packet[20] === 0) answered.resolve(performance.now());
    });
    for (let sequence = 1; sequence < 30_000; sequence++) {
      const request = echoRequest(sequence);
      send(fd, request, request.length, 0);
      const at = await Promise.race([answered.promise, delay(everyMs)]);
      if (at !== undefined) return at;
    }
    throw new Error(`${address} never answered`);
  } finally {
    poll?.close();
    closeSync(fd);
  }
}

/** An ICMP echo request (RFC 792) without data. */
function echoRequest(sequence: number): Buffer {
  const packet = Buffer.alloc(8);
  packet[0] = 8;
  packet.writeUInt16BE(sequence, 6);
  const sum = 0x0800 + sequence;
  packet.writeUInt16BE(~((sum & 0xffff) + (sum >>> 16)) & 0xffff, 2);
  return packet;
}
