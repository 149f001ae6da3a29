import type { TracedHeader, TraceMessage } from "../../linux/nftrace/message.ts";

/** What the kernel said about one packet, in order. */
export interface PacketMessages {
  /** As the guest sent it. */
  readonly sent: TracedHeader | undefined;
  readonly messages: readonly TraceMessage[];
}

interface Open {
  readonly sent: TracedHeader | undefined;
  readonly messages: TraceMessage[];
  /** The ids of the packet in each layer. */
  readonly ids: Set<number>;
}

/**
 * Sorts messages by packet: those that a table has marked, and no others that are traced on the
 * host. A packet has another id once its bridge has given it to the host (the id is made of the
 * link that it came by); there its headers show which it is.
 */
export class TracedPackets {
  readonly #table: string;
  #open: Open[] = [];

  constructor(table: string) {
    this.#table = table;
  }

  get count(): number {
    return this.#open.length;
  }

  /** Whether it is about a packet of ours. */
  add(message: TraceMessage): boolean {
    const { id, table, handle, packet } = message;
    if (table === this.#table) {
      if (handle !== undefined) this.#open.push({ sent: packet, messages: [], ids: new Set([id]) });
      return true;
    }
    // The newest: the kernel uses ids again.
    const of =
      this.#open.findLast(({ ids }) => ids.has(id)) ??
      this.#open.findLast(({ sent }) => isOne(sent, packet));
    of?.ids.add(id);
    of?.messages.push(message);
    return of !== undefined;
  }

  /** All packets so far, which are forgotten. */
  take(): readonly PacketMessages[] {
    const all = this.#open;
    this.#open = [];
    return all;
  }
}

/** The destination may have been translated; the source is so last of all. */
const isOne = (a: TracedHeader | undefined, b: TracedHeader | undefined): boolean =>
  a !== undefined &&
  a.source === b?.source &&
  a.protocol === b.protocol &&
  a.sourcePort === b.sourcePort &&
  a.serial === b.serial;
