import { readSync, writeSync } from "node:fs";
import { familyOf, type Ip, ipToBytes } from "../../core/address.ts";
import { type Poll, pollFd } from "../../linux/ffi/poll.ts";

/**
 * struct virtio_net_hdr: what a tap with IFF_VNET_HDR puts before each frame unless asked
 * otherwise.
 */
const vnetHeader = 10;
const ethernetHeader = 14;
const ETH_ARP = 0x0806;
const ETH_IPV4 = 0x0800;
const arpReply = 2;
const ICMP = 1;
const broadcast = Uint8Array.from({ length: 6 }, () => 0xff);

/**
 * The guest's end of a tap: answers ARP and ICMP echo for the addresses it was given (IPv4), so
 * that a stand-in can be pinged, and says who it is when it gets them. Everything else is read and
 * dropped.
 */
export class TapEnd {
  readonly #fd: number;
  readonly #mac: Uint8Array;
  readonly #poll: Poll;
  #addresses: readonly Uint8Array[] = [];

  /** `fd` stays the caller's, who closes it after `close`. */
  constructor(fd: number, mac: string) {
    this.#fd = fd;
    this.#mac = Uint8Array.from(mac.split(":"), (byte) => Number.parseInt(byte, 16));
    const buffer = new Uint8Array(65_600);
    this.#poll = pollFd(fd, "readable", () => {
      try {
        this.#answer(buffer.subarray(vnetHeader, readSync(fd, buffer)));
      } catch {
        // Its link is down or gone; the descriptor is closed by whoever plugged it.
      }
    });
  }

  answerFor(addresses: readonly Ip[]): void {
    this.#addresses = addresses.filter((ip) => familyOf(ip) === 4).map(ipToBytes);
    for (const own of this.#addresses) this.#send(this.#arp(arpReply, own, broadcast, own));
  }

  close(): void {
    this.#poll.close();
  }

  #answer(frame: Uint8Array): void {
    const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
    if (frame.length < ethernetHeader) return;
    const kind = view.getUint16(12);
    if (kind === ETH_ARP && frame.length >= 42 && view.getUint16(20) === 1) {
      const own = this.#own(frame.subarray(38, 42));
      if (own !== undefined)
        this.#send(this.#arp(arpReply, own, frame.slice(22, 28), frame.slice(28, 32)));
    }
    if (kind === ETH_IPV4 && frame.length >= 42 && frame[14] === 0x45 && frame[23] === ICMP) {
      if (frame[34] === 8 && this.#own(frame.subarray(30, 34)) !== undefined) this.#pong(frame);
    }
  }

  #own(address: Uint8Array): Uint8Array | undefined {
    return this.#addresses.find((own) => own.every((byte, i) => byte === address[i]));
  }

  #arp(operation: number, own: Uint8Array, toMac: Uint8Array, toIp: Uint8Array): Uint8Array {
    const head = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation];
    return Uint8Array.of(...toMac, ...this.#mac, ...head, ...this.#mac, ...own, ...toMac, ...toIp);
  }

  /** The request, turned round: exchanging the addresses leaves the IP checksum as it is. */
  #pong(request: Uint8Array): void {
    const frame = request.slice();
    frame.set(request.subarray(6, 12), 0);
    frame.set(this.#mac, 6);
    frame.set(request.subarray(30, 34), 26);
    frame.set(request.subarray(26, 30), 30);
    const view = new DataView(frame.buffer);
    frame[34] = 0;
    view.setUint16(36, 0);
    const end = Math.min(frame.length, ethernetHeader + view.getUint16(16));
    view.setUint16(36, checksum(frame.subarray(34, end)));
    this.#send(frame.subarray(0, end));
  }

  #send(frame: Uint8Array): void {
    const packet = new Uint8Array(vnetHeader + frame.length);
    packet.set(frame, vnetHeader);
    try {
      writeSync(this.#fd, packet);
    } catch {
      // EIO: the link is down.
    }
  }
}

/** RFC 1071. */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2)
    sum += ((bytes[i] as number) << 8) + (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
