import { NativeMemory } from "../../../linux/native-memory.ts";
import type { Counters } from "./counters.ts";
import { fillChecksum, writeSegment } from "./segment.ts";
import { headerLength, lowerTtl, protocolTcp, readPacketLength } from "./ipv4.ts";
import {
  gsoNone,
  gsoTcp4,
  needsChecksum,
  offloadHeader,
  readOffload,
  tcpHeader,
  tcpOffset,
} from "./offload.ts";
import type { PeerTable } from "./peer-table.ts";

/** The outlet of datagrams: `DatagramOutlet` of linux/. */
interface Outlet {
  begin(host: number, length: number): void;
  piece(address: number, length: number): void;
  flush(): void;
}

export interface EgressOptions {
  readonly peers: PeerTable;
  readonly counters: Counters;
  readonly outlet: Outlet;
  /** Called with a packet that has no peer, unchanged. */
  readonly onUnroutable: (memory: NativeMemory, at: number, total: number) => void;
}

/** Headers of segments between two flushes, and the longest of them. */
const mostHeaders = 1024;
const longestHeader = 120;

/**
 * The outgoing direction: packets from the tun become datagrams, each with one IP packet that fits.
 */
export class Egress {
  /** The headers of segments that arrived as one packet. */
  readonly headers = new NativeMemory(mostHeaders * longestHeader);
  readonly #options: EgressOptions;
  #header = 0;

  constructor(options: EgressOptions) {
    this.#options = options;
  }

  /**
   * Takes the result of one read of the tun. The memory must not be changed before the next
   * `flush`.
   */
  take(memory: NativeMemory, at: number, length: number): void {
    const { peers, counters, outlet } = this.#options;
    const packet = at + offloadHeader;
    const total = readPacketLength(memory, packet, length - offloadHeader);
    const { flags, type, size, start, offset } = readOffload(memory, at);
    if (total === 0 || (type !== gsoNone && type !== gsoTcp4)) {
      counters.unsendable++;
      return;
    }
    const host = peers.find(memory.view.getUint32(packet + 16));
    if (host === undefined) {
      counters.unroutable++;
      this.#options.onUnroutable(memory, packet, total);
      return;
    }
    if (!lowerTtl(memory, packet)) {
      counters.expired++;
      return;
    }
    if (type === gsoTcp4) {
      this.#split(memory, packet, { total, size, host });
      return;
    }
    if ((flags & needsChecksum) !== 0 && !fillChecksum(memory, packet, total, { start, offset })) {
      counters.unsendable++;
      return;
    }
    counters.sentBytes += total;
    outlet.begin(host, total);
    outlet.piece(memory.address + packet, total);
  }

  /** Sends all that was taken. */
  flush(): void {
    this.#options.outlet.flush();
    this.#header = 0;
  }

  #split(memory: NativeMemory, at: number, { total, size, host }: Whole): void {
    const { counters, outlet } = this.#options;
    const tcp = at + headerLength(memory, at);
    const header = tcp - at + (((memory.bytes[tcp + tcpOffset] ?? 0) >> 4) << 2);
    const isTcp = memory.bytes[at + 9] === protocolTcp && header - (tcp - at) >= tcpHeader;
    if (!isTcp || header > total || size === 0) {
      counters.unsendable++;
      return;
    }
    const payload = total - header;
    // A segment without data counts as one.
    const count = Math.max(1, Math.ceil(payload / size));
    for (let index = 0; index < count; index++) {
      if (this.#header === mostHeaders) this.flush();
      const place = this.#header++ * longestHeader;
      const from = index * size;
      const data = Math.min(size, payload - from);
      writeSegment(memory, at, this.headers, place, {
        header,
        from,
        data,
        index,
        isLast: index === count - 1,
      });
      counters.sentBytes += header + data;
      outlet.begin(host, header + data);
      outlet.piece(this.headers.address + place, header);
      if (data > 0) outlet.piece(memory.address + at + header + from, data);
    }
  }
}

interface Whole {
  readonly total: number;
  readonly size: number;
  readonly host: number;
}
