import { NativeMemory, Vectors } from "../../../linux/native-memory.ts";
import { isIntact, isNext, readJoinable } from "./coalesce.ts";
import type { Counters } from "./counters.ts";
import { ipHeader, lowerTtl, pseudoSum, readPacketLength, sealHeader } from "./ipv4.ts";
import {
  flagPush,
  offloadHeader,
  tcpChecksum,
  tcpFlags,
  writeNoOffload,
  writeTcpOffload,
} from "./offload.ts";

/**
 * Most that an IP packet says of its length, and most pieces the kernel takes at once (UIO_MAXIOV).
 */
const longestPacket = 65_535;
const mostPieces = 1024;

export interface IngressOptions {
  readonly memory: NativeMemory;
  readonly counters: Counters;
  /**
   * Gives the kernel one packet, in pieces, a `virtio_net_hdr` first; false when it would not have
   * it.
   */
  readonly deliver: (pieces: Vectors) => boolean;
}

/**
 * The way in: each datagram is an IP packet for this host's kernel. Segments of one connection that
 * follow each other are given to it as one. All come in the order they came.
 */
export class Ingress {
  /** The header in front of a delivered packet. */
  readonly offload = new NativeMemory(offloadHeader);
  readonly #options: IngressOptions;
  readonly #pieces = new Vectors(mostPieces);
  /** The packet that waits for more to join, if `#count` is not 0. */
  #first = 0;
  #header = 0;
  #total = 0;
  #size = 0;
  #count = 0;
  #isOpen = false;
  #isIntact = false;
  #isPushed = false;

  constructor(options: IngressOptions) {
    this.#options = options;
  }

  /** Takes a datagram. It is not to be touched before the next `flush`. */
  take(at: number, length: number): void {
    const { memory, counters } = this.#options;
    const total = readPacketLength(memory, at, length);
    if (total === 0) {
      counters.malformed++;
      return;
    }
    counters.receivedPackets++;
    counters.receivedBytes += total;
    if (!lowerTtl(memory, at)) {
      counters.expired++;
      return;
    }
    const header = readJoinable(memory, at, total);
    if (this.#mayJoin(at, total, header)) this.#join(at, total - header);
    else {
      this.flush();
      this.#begin(at, total, header);
    }
  }

  /** Delivers what waits. */
  flush(): void {
    if (this.#count === 0) return;
    const { memory, counters, deliver } = this.#options;
    const at = this.#first;
    if (this.#count === 1) writeNoOffload(this.offload, 0);
    else {
      const start = ipHeader;
      writeTcpOffload(this.offload, 0, { header: this.#header, size: this.#size, start });
      memory.view.setUint16(at + 2, this.#total);
      sealHeader(memory, at, ipHeader);
      const tcp = at + ipHeader;
      if (this.#isPushed)
        memory.bytes[tcp + tcpFlags] = (memory.bytes[tcp + tcpFlags] as number) | flagPush;
      memory.view.setUint16(tcp + tcpChecksum, pseudoSum(memory, at, this.#total - ipHeader));
    }
    if (!deliver(this.#pieces)) counters.undelivered += this.#count;
    this.#count = 0;
  }

  #begin(at: number, total: number, header: number): void {
    const { memory } = this.#options;
    this.#first = at;
    this.#header = header;
    this.#total = total;
    this.#size = total - header;
    this.#count = 1;
    this.#isPushed = header > 0 && this.#pushes(at);
    this.#isOpen = header > 0 && !this.#isPushed;
    this.#isIntact = false;
    this.#pieces.count = 0;
    this.#pieces.add(this.offload.address, offloadHeader);
    this.#pieces.add(memory.address + at, total);
  }

  #mayJoin(at: number, total: number, header: number): boolean {
    if (this.#count === 0 || !this.#isOpen || header === 0 || header !== this.#header) return false;
    const { memory } = this.#options;
    const data = total - header;
    if (data > this.#size || this.#total + data > longestPacket) return false;
    if (this.#pieces.count === mostPieces) return false;
    const before = { header, count: this.#count, data: this.#total - header };
    if (!isNext(memory, this.#first, at, before)) return false;
    // The first packet is checked only when there is a second: the kernel checks a single packet
    // itself.
    this.#isIntact ||= isIntact(memory, this.#first, this.#total);
    if (this.#isIntact) return isIntact(memory, at, total);
    this.#isOpen = false;
    return false;
  }

  #join(at: number, data: number): void {
    this.#pieces.add(this.#options.memory.address + at + this.#header, data);
    this.#total += data;
    this.#count++;
    this.#isPushed = this.#pushes(at);
    this.#isOpen = data === this.#size && !this.#isPushed;
  }

  #pushes(at: number): boolean {
    return ((this.#options.memory.bytes[at + ipHeader + tcpFlags] as number) & flagPush) !== 0;
  }
}
