import { guard, guarded } from "../../core/guard.ts";
import { type Poll, pollFd } from "../ffi/poll.ts";
import { NetlinkSocket } from "./netlink-socket.ts";
import { type EventGroup, eventGroups } from "../rtnetlink/constants.ts";
import { parseEvent, type RtnetlinkEvent } from "../rtnetlink/event.ts";
import { type NetlinkMessage, parseMessages } from "../rtnetlink/message.ts";

export interface WatchOptions {
  readonly groups: readonly EventGroup[];
  /** Bytes the kernel may queue; 8 MiB unless given. */
  readonly receiveBuffer?: number;
  /**
   * Selects events to skip unread, by the port id of the requester; 0 where the kernel does not
   * report it.
   */
  readonly passOver?: (portId: number) => boolean;
}

export interface RtnetlinkWatch extends Disposable {
  /** How many times events were lost: a resync followed each. */
  readonly losses: number;
  close(): void;
}

// Gives other work its turn in a storm of events; what is left makes the descriptor readable again
// at once.
const datagramsPerTurn = 64;
/** After an error that is not expected, milliseconds. */
const restMs = 1000;

/**
 * Calls `listener` for every change in the network namespace the calling thread is in, in order. It
 * does not keep the process alive.
 *
 * When more happens than the kernel can queue it drops events: `onResync` is then called once,
 * after the events that were kept. A mirror of the kernel's state must then be listed anew; changes
 * made after that arrive as events again.
 */
export function watchRtnetlink(
  options: WatchOptions,
  listener: (event: RtnetlinkEvent) => void,
  onResync: () => void,
): RtnetlinkWatch {
  return new EventWatch(options, listener, onResync);
}

class EventWatch implements RtnetlinkWatch {
  readonly #socket: NetlinkSocket;
  readonly #poll: Poll;
  readonly #listener: (event: RtnetlinkEvent) => void;
  readonly #onResync: () => void;
  readonly #passOver: (portId: number) => boolean;
  readonly #opened: DisposableStack;
  #losses = 0;
  #lossPending = false;

  constructor(
    options: WatchOptions,
    listener: (event: RtnetlinkEvent) => void,
    onResync: () => void,
  ) {
    this.#listener = listener;
    this.#onResync = onResync;
    this.#passOver = options.passOver ?? (() => false);
    using opened = new DisposableStack();
    const socket = new NetlinkSocket({
      groups: options.groups.map((group) => eventGroups[group]),
      ...(options.receiveBuffer === undefined ? {} : { receiveBuffer: options.receiveBuffer }),
    });
    this.#socket = opened.adopt(socket, () => socket.close());
    const poll = pollFd(
      socket.fd,
      "readable",
      guarded(
        "netlink",
        () => this.#read(),
        () => this.#rest(),
      ),
    );
    this.#poll = opened.adopt(poll, () => poll.close());
    poll.unref();
    this.#opened = opened.move();
  }

  get losses(): number {
    return this.#losses;
  }

  close(): void {
    this.#opened.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #closed(): boolean {
    return this.#opened.disposed;
  }

  #read(): void {
    for (let i = 0; i < datagramsPerTurn && !this.#closed; i++) {
      const part = this.#socket.receive();
      if (part === "empty") {
        this.#resyncIfLost();
        return;
      }
      if (part === "lost") this.#noteLoss();
      else this.#deliver(part);
    }
    // The queue may be empty by now, and then nothing would wake us for the resync.
    if (this.#lossPending && !this.#closed) setImmediate(guarded("netlink", () => this.#read()));
  }

  /**
   * After an overrun the kernel goes on dropping until the queue has been emptied, so the resync
   * waits for that.
   */
  #resyncIfLost(): void {
    if (!this.#lossPending) return;
    this.#lossPending = false;
    guard("netlink", () => this.#onResync());
  }

  /** Reads nothing for a while: an error that stays would be met without end. */
  #rest(): void {
    this.#poll.stop();
    setTimeout(
      guarded("netlink", () => {
        if (!this.#closed) this.#noteLoss();
      }),
      restMs,
    ).unref();
  }

  #noteLoss(): void {
    this.#losses++;
    this.#lossPending = true;
    // libuv stops watching a descriptor with an error pending, without a word (1.51).
    this.#poll.stop();
    this.#poll.start();
    this.#poll.unref();
  }

  #deliver(part: Uint8Array): void {
    for (const message of this.#parse(part)) {
      if (this.#closed) return;
      if (this.#passOver(message.portId)) continue;
      const event = this.#parseEvent(message);
      if (event === undefined) continue;
      // An event that was not taken is an event lost.
      guard(
        "netlink",
        () => this.#listener(event),
        () => this.#noteLoss(),
      );
    }
  }

  #parse(part: Uint8Array): readonly NetlinkMessage[] {
    try {
      return parseMessages(part);
    } catch {
      // An event that cannot be read is an event lost.
      this.#noteLoss();
      return [];
    }
  }

  #parseEvent(message: NetlinkMessage): RtnetlinkEvent | undefined {
    try {
      return parseEvent(message);
    } catch {
      this.#noteLoss();
      return undefined;
    }
  }
}
