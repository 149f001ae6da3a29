import { setTimeout as delay } from "node:timers/promises";
import type { IpPrefix } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { guard, guarded } from "../../core/guard.ts";
import { assembleFilter } from "../../linux/packets/packet-filter.ts";
import { PacketStream } from "../../linux/packets/packet-stream.ts";
import { advertiseEveryS } from "./advertisement.ts";
import { advertise, answer, type Router } from "./answers.ts";
import { asksFilter } from "./asks-filter.ts";
import type { PortLease } from "./lease.ts";
import { parseAsk } from "./packets.ts";

export interface PortAnswersOptions {
  /**
   * The host's end of the guest's card: what comes in by it comes from this guest, what goes out
   * goes to it alone.
   */
  readonly link: IfName;
  readonly lease: PortLease;
  /**
   * Who the host is on the network now; undefined leaves the guest without an answer, and it asks
   * again.
   */
  router(): Promise<Router | undefined>;
  /** The guest has these addresses. Notified of again whenever it shows them. */
  taken(addresses: readonly IpPrefix[]): void;
  /** Something was not answered; `why` comes from a small set. */
  ignored(why: string): void;
  /** For people. */
  note(text: string): void;
  /** Nothing is answered for now: the socket is opened anew. Called once for failures in a row. */
  failed(error: unknown): void;
}

/**
 * Bytes of a question that are read: the largest a client makes fits into the smallest MTU of IPv6.
 */
const snapBytes = 2048;
/** Size of the kernel's queue of unread packets. */
const queueBytes = 128 << 10;
/** Questions looked at in a second. A client asks a handful of times in all. */
const mostPerS = 100;
/** How long what is known of the host's end is taken for true, milliseconds. */
const routerMs = 5000;

/**
 * Between a failure of the socket and the next one opened, milliseconds; doubled by each failure in
 * a row.
 */
const againMs = { least: 500, most: 30_000 } as const;

/**
 * Answers the guest at one port, from when it is made until it is disposed of or the port is gone.
 * A socket that fails is opened anew after a pause. The constructor throws `SYSCALL_FAILED`.
 */
export class PortAnswers implements Disposable {
  readonly #options: PortAnswersOptions;
  readonly #over = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;
  /** Undefined while no stream is open: after a failure, and at the end. */
  #packets: PacketStream | undefined;
  #router: { readonly until: number; readonly found: Promise<Router | undefined> } | undefined;
  #pauseMs: number = againMs.least;

  constructor(options: PortAnswersOptions) {
    this.#options = options;
    this.#packets = this.#open();
    if (options.lease.v6 !== undefined) {
      this.#timer = setInterval(
        guarded("dhcp", () => this.#advertise()),
        advertiseEveryS * 1000,
      );
      this.#timer.unref();
      void guard("dhcp", () => this.#advertise());
    }
    void guard("dhcp", () => this.#serve());
  }

  #open(): PacketStream {
    const filter = assembleFilter(asksFilter);
    return new PacketStream({ link: this.#options.link, snapBytes, queueBytes, filter });
  }

  /**
   * Closed by its only reader: a descriptor that is read must not become another file's meanwhile.
   */
  #close(): void {
    this.#packets?.[Symbol.dispose]();
    this.#packets = undefined;
  }

  async #serve(): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      try {
        this.#packets ??= this.#open();
        await this.#read(this.#packets, signal);
        // The port is gone, with its machine.
        this[Symbol.dispose]();
      } catch (error) {
        this.#close();
        if (!signal.aborted) await this.#rest(error, signal);
      }
    }
    this.#close();
  }

  /** Reports why nothing is answered, and waits until the socket may be opened anew. */
  async #rest(error: unknown, signal: AbortSignal): Promise<void> {
    if (isNoLink(error)) return this[Symbol.dispose]();
    const { failed, ignored } = this.#options;
    ignored("dhcp_socket");
    // Once, for as long as it fails.
    if (this.#pauseMs === againMs.least) failed(error);
    const ms = this.#pauseMs;
    this.#pauseMs = Math.min(2 * ms, againMs.most);
    await paused(ms, signal);
  }

  /** Returns when the port is gone. Throws `SYSCALL_FAILED`, `CANCELLED`. */
  async #read(packets: PacketStream, signal: AbortSignal): Promise<void> {
    let lost = 0;
    for (;;) {
      const frames = await packets.next(mostPerS, signal);
      if (frames === undefined) return;
      this.#works();
      for (const { bytes } of frames) await guard("dhcp", () => this.#take(bytes));
      if (packets.lost > lost) this.#options.ignored("dhcp_flood");
      lost = packets.lost;
      // However much a guest says, so much is listened to: what is not read is dropped by the
      // kernel.
      await delay((frames.length * 1000) / mostPerS, undefined, { signal, ref: false });
    }
  }

  #works(): void {
    if (this.#pauseMs === againMs.least) return;
    this.#pauseMs = againMs.least;
    this.#options.note("answered again");
  }

  async #take(frame: Uint8Array): Promise<void> {
    const { lease, taken, ignored, note } = this.#options;
    const ask = parseAsk(frame);
    if (ask === undefined) return;
    // Packets of another sender behind the guest, a container say, are ignored unless they are
    // requests.
    if (ask.kind === "shows" && ask.from !== lease.mac) return;
    const router = await this.#whoIs();
    if (router === undefined || this.#over.signal.aborted) return;
    const said = answer(ask, lease, router);
    if (said.ignored !== undefined) ignored(said.ignored);
    if (said.note !== undefined) note(said.note);
    // A guest that has not heard it asks again.
    if (said.frame !== undefined) this.#packets?.send(said.frame);
    if (said.taken !== undefined && said.taken.length > 0) taken(said.taken);
  }

  async #advertise(): Promise<void> {
    const router = await this.#whoIs();
    if (router === undefined || this.#over.signal.aborted) return;
    const { frame } = advertise(this.#options.lease, router);
    if (frame !== undefined) this.#packets?.send(frame);
  }

  #whoIs(): Promise<Router | undefined> {
    const now = performance.now();
    if (this.#router === undefined || this.#router.until < now) {
      const found = this.#options.router().then((router) => {
        // A bridge gets its link-local address a moment after its first port.
        if (router?.linkLocal === undefined) this.#router = undefined;
        return router;
      });
      this.#router = { until: now + routerMs, found };
    }
    return this.#router.found;
  }

  [Symbol.dispose](): void {
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    clearInterval(this.#timer);
  }
}

/** Resolves after a time, or when the signal aborts. */
async function paused(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, { signal, ref: false });
  } catch {
    // It has aborted.
  }
}

/** The port is gone, and not its socket alone. */
const isNoLink = (error: unknown): boolean =>
  isPodnetError(error, "SYSCALL_FAILED") && error.details["errno"] === "ENODEV";
