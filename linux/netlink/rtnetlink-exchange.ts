import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { NetlinkSocket } from "./netlink-socket.ts";
import { type Ack, parseAck } from "../rtnetlink/ack.ts";
import {
  encodeRequest,
  isDump,
  NLM_F_DUMP_INTR,
  NLMSG_DONE,
  NLMSG_ERROR,
  NLMSG_NOOP,
  type NetlinkMessage,
  parseMessages,
  type Request,
} from "../rtnetlink/message.ts";

/** The kernel's answer to one request. */
export interface Answer {
  readonly ack: Ack;
  /** The objects asked for. */
  readonly messages: readonly NetlinkMessage[];
  /** A list changed while it was read, and may lack things or hold them twice. */
  readonly interrupted: boolean;
}

interface Pending {
  readonly dump: boolean;
  readonly messages: NetlinkMessage[];
  ack: Ack | undefined;
  interrupted: boolean;
}

/**
 * Requests and their answers over one socket. rtnetlink does the work, and queues the answer,
 * inside `send`; so the answer is read right after it, on the same thread, and no two exchanges
 * ever mix. Slow requests are sent on another thread; one is under way at a time.
 */
export class RtnetlinkExchange implements Disposable {
  readonly #socket = new NetlinkSocket();
  #seq = 0;
  #slow: Promise<unknown> = Promise.resolve();
  #slowCount = 0;
  #closed = false;
  /** By what the kernel knows the socket; 0 before the first answer. */
  #port = 0;

  /**
   * Port id of the socket, which the kernel names where it reports what was asked here; 0 before
   * the first answer.
   */
  get port(): number {
    return this.#port;
  }

  /** A slow request is under way or waits for its turn. */
  get busy(): boolean {
    return this.#slowCount > 0;
  }

  /** Sends requests in one datagram and gives their answers in the same order. */
  exchange(requests: readonly Request[]): readonly Answer[] {
    this.#checkOpen();
    const name = (): string => effectName(requests);
    return perform("netlink", name, () => {
      const { bytes, pending } = this.#encode(requests);
      this.#socket.send(bytes);
      return this.#collect(pending);
    });
  }

  /**
   * Exchanges without holding up this thread while the kernel works. Only one of the two may use an
   * instance.
   */
  exchangeSlowly(requests: readonly Request[]): Promise<readonly Answer[]> {
    this.#checkOpen();
    this.#slowCount++;
    const turn = this.#slow.then(async () => {
      try {
        return await performAsync("netlink", effectName(requests), async () => {
          const { bytes, pending } = this.#encode(requests);
          await this.#socket.sendAsync(bytes);
          return this.#collect(pending);
        });
      } finally {
        this.#slowCount--;
        if (this.#closed && this.#slowCount === 0) this.#socket.close();
      }
    });
    this.#slow = turn.catch(() => {});
    return turn;
  }

  /** Closes the socket, after the slow requests that are under way. */
  close(): void {
    this.#closed = true;
    if (this.#slowCount === 0) this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #checkOpen(): void {
    if (this.#closed) throw new PodnetError("INTERNAL", "The rtnetlink socket is closed");
  }

  #encode(requests: readonly Request[]): { bytes: Uint8Array; pending: Map<number, Pending> } {
    const pending = new Map<number, Pending>();
    const parts = requests.map((request) => {
      // 0 marks events, hence from 1 to 2³²-1 and round again.
      this.#seq = this.#seq === 0xffffffff ? 1 : this.#seq + 1;
      pending.set(this.#seq, {
        dump: isDump(request),
        messages: [],
        ack: undefined,
        interrupted: false,
      });
      return encodeRequest(request, this.#seq);
    });
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let offset = 0;
    for (const part of parts) {
      bytes.set(part, offset);
      offset += part.length;
    }
    return { bytes, pending };
  }

  #collect(pending: ReadonlyMap<number, Pending>): readonly Answer[] {
    for (let open = pending.size; open > 0; ) {
      const part = this.#socket.receive();
      if (typeof part === "string") throw noAnswer(part);
      for (const message of parseMessages(part)) {
        // Skips answers to an exchange that failed half way.
        const entry = pending.get(message.seq);
        if (entry !== undefined) this.#port = message.portId;
        if (entry?.ack === undefined && entry !== undefined && take(entry, message)) open--;
      }
    }
    return Array.from(pending.values(), ({ ack, messages, interrupted }) => ({
      ack: ack ?? { errno: 0 },
      messages,
      interrupted,
    }));
  }
}

/**
 * Name of a request, as in "Cannot set mtu 1500 of link "tap0"", without names and numbers: `set
 * mtu of link`.
 */
function effectName(requests: readonly Request[]): string {
  // Thousands of one kind begin alike, and are read once.
  const distinct = requests.filter((request, i) => {
    const last = requests[i - 1];
    return last?.type !== request.type || last.what.slice(0, 16) !== request.what.slice(0, 16);
  });
  const names = distinct.map(({ what }) =>
    what
      .replaceAll(/"[^"]*"/g, "")
      .split(/[\s,]+/)
      .filter((word) => /^[A-Za-z]+$/.test(word) && word !== "Cannot")
      .join(" "),
  );
  return [...new Set(names)].join(" + ");
}

/** Takes in one message; true when it was the last for its request. */
function take(entry: Pending, message: NetlinkMessage): boolean {
  if ((message.flags & NLM_F_DUMP_INTR) !== 0) entry.interrupted = true;
  switch (message.type) {
    case NLMSG_NOOP:
      return false;
    case NLMSG_DONE:
    case NLMSG_ERROR:
      entry.ack = parseAck(message);
      return true;
    default:
      entry.messages.push(message);
      return false;
  }
}

function noAnswer(reason: "empty" | "lost"): PodnetError {
  const [errno, why] =
    reason === "lost" ? ["ENOBUFS", "its answer was lost"] : ["ENODATA", "it did not answer"];
  return new PodnetError("NETLINK_FAILED", `Cannot ask the kernel: ${why}`, { details: { errno } });
}
