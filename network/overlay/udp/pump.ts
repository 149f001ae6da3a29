import { DatagramIntake } from "../../../linux/sockets/datagram-intake.ts";
import { DatagramOutlet } from "../../../linux/sockets/datagram-outlet.ts";
import { takeInto, writePieces } from "../../../linux/files/descriptor.ts";
import { NativeMemory, Vectors } from "../../../linux/native-memory.ts";
import type { Counters } from "./counters.ts";
import { Egress } from "./egress.ts";
import { Ingress } from "./ingress.ts";
import { offloadHeader } from "./offload.ts";
import type { PeerTable } from "./peer-table.ts";
import { longestAnswer, writeUnreachable } from "./unreachable.ts";

/**
 * The number of reads of the tun before their packets are sent, and the largest size of one read: a
 * packet behind its header.
 */
const reads = 16;
/** (Two bytes before each, so that the packet begins at a multiple of four.) */
const readGap = 2;
const readSize = 65_552;
/** Messages of one system call, and the most one has. */
const messages = 32;
const messageSize = 65_536;
/** The errors after which a later call may succeed. */
const passing: readonly unknown[] = ["EAGAIN", "EINTR"];

export interface PumpOptions {
  readonly tun: number;
  readonly socket: number;
  /** The port that peers listen at. */
  readonly port: number;
  /** The source address of ICMP errors, as a number. */
  readonly answersFrom: number;
  readonly peers: PeerTable;
  readonly counters: Counters;
}

/**
 * Both ways of a tunnel, in turns that never wait: from the tun to peers, and from peers to the
 * tun.
 */
export class Pump {
  readonly #options: PumpOptions;
  readonly #read = new NativeMemory(reads * readSize);
  readonly #outlet: DatagramOutlet;
  readonly #intake: DatagramIntake;
  readonly #egress: Egress;
  readonly #ingress: Ingress;
  readonly #answer = new NativeMemory(offloadHeader + readGap + longestAnswer);

  constructor(options: PumpOptions) {
    this.#options = options;
    const { socket, port, peers, counters, answersFrom } = options;
    this.#outlet = new DatagramOutlet({ fd: socket, port, messages: 64, pieces: 1024 });
    this.#intake = new DatagramIntake(socket, messages, messageSize);
    this.#egress = new Egress({
      peers,
      counters,
      outlet: this.#outlet,
      onUnroutable: (memory, at, total) => {
        const place = readGap + offloadHeader;
        const length = writeUnreachable(memory, at, total, this.#answer, place, answersFrom);
        if (length > 0) this.#deliver(this.#answerPieces(length));
      },
    });
    this.#ingress = new Ingress({
      memory: this.#intake.memory,
      counters,
      deliver: (pieces) => this.#deliver(pieces),
    });
  }

  /**
   * Sends packets from the tun, up to a turn's limit. Returns the name of the error if the tunnel
   * is broken.
   */
  send(): string | undefined {
    const { tun, counters } = this.#options;
    let broken: string | undefined;
    for (let slot = 0; slot < reads; slot++) {
      const at = slot * readSize + readGap;
      const got = takeInto(tun, this.#read.address + at, readSize - readGap);
      if (typeof got === "string") {
        if (!passing.includes(got)) broken = got;
        break;
      }
      this.#egress.take(this.#read, at, got);
    }
    this.#egress.flush();
    counters.sentPackets = this.#outlet.sent;
    counters.lost = this.#outlet.lost;
    return broken;
  }

  /** Delivers packets from peers, up to a turn's limit. */
  receive(): string | undefined {
    const intake = this.#intake;
    const count = intake.receive();
    if (typeof count === "string") return count;
    for (let message = 0; message < count; message++) {
      const length = intake.lengthOf(message);
      const size = intake.segmentOf(message);
      const place = intake.place(message);
      // (An empty datagram is one, too, and no packet.)
      for (let from = 0; from === 0 || from < length; from += size || 1)
        this.#ingress.take(place + from, Math.min(size, length - from));
    }
    this.#ingress.flush();
    return undefined;
  }

  #answerPieces(length: number): Vectors {
    const pieces = new Vectors(1);
    pieces.add(this.#answer.address + readGap, offloadHeader + length);
    return pieces;
  }

  #deliver(pieces: Vectors): boolean {
    return typeof writePieces(this.#options.tun, pieces) === "number";
  }
}
