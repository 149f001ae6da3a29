import { setTimeout as delay } from "node:timers/promises";
import { abortable } from "../../core/aborting.ts";
import { PodnetError } from "../../core/errors.ts";
import { type Poll, pollFd } from "../ffi/poll.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { NFNLGRP_NFTRACE, parseTrace, type TraceMessage } from "./message.ts";
import { parseMessages } from "../rtnetlink/message.ts";

/** Bounds what waits in the kernel: some 4,000 messages. */
const receiveBuffer = 1 << 20;
/** Gives other work its turn: another program may have packets traced, too. */
const mostDatagrams = 64;

/**
 * What the kernel says about traced packets in the network namespace of the calling thread, from
 * now on and read only as fast as it is asked for.
 */
export class TraceStream implements Disposable {
  readonly #socket: NetlinkSocket;
  readonly #poll: Poll;
  readonly #opened: DisposableStack;
  #readable = Promise.withResolvers<void>();

  /** Throws `SYSCALL_FAILED`. */
  constructor() {
    using opened = new DisposableStack();
    this.#socket = opened.adopt(
      new NetlinkSocket({ family: "netfilter", groups: [NFNLGRP_NFTRACE], receiveBuffer }),
      (socket) => socket.close(),
    );
    this.#poll = opened.adopt(
      pollFd(this.#socket.fd, "readable", () => {
        // It would call for as long as there is something to read.
        this.#poll.stop();
        this.#readable.resolve();
      }),
      (poll) => poll.close(),
    );
    this.#poll.stop();
    this.#opened = opened.move();
  }

  /**
   * The next messages in their order; none when none has come for `waitMs`. Throws `CANCELLED`,
   * `SYSCALL_FAILED`, and `NETLINK_FAILED` when the kernel had to drop some, or for one that is not
   * understood.
   */
  async next(waitMs: number, signal: AbortSignal): Promise<readonly TraceMessage[]> {
    this.#readable = Promise.withResolvers();
    const messages = this.#take();
    if (messages.length > 0) return messages;
    const over = new AbortController();
    this.#poll.start();
    try {
      await abortable(
        Promise.race([
          this.#readable.promise,
          delay(waitMs, undefined, { signal: over.signal }).catch(() => {}),
        ]),
        signal,
        "The trace",
      );
    } finally {
      over.abort();
      this.#poll.stop();
    }
    return this.#take();
  }

  #take(): readonly TraceMessage[] {
    const messages: TraceMessage[] = [];
    for (let i = 0; i < mostDatagrams; i++) {
      const part = this.#socket.receive();
      if (part === "empty") break;
      if (part === "lost") throw lost();
      for (const { type, payload } of parseMessages(part))
        messages.push(...[parseTrace(type, payload)].filter((message) => message !== undefined));
    }
    return messages;
  }

  [Symbol.dispose](): void {
    this.#opened.dispose();
  }
}

const lost = (): PodnetError =>
  new PodnetError("NETLINK_FAILED", "The kernel dropped messages of the trace", {
    hint: "Another program traces many packets on this host: end it, or try again",
    details: { errno: "ENOBUFS" },
  });
