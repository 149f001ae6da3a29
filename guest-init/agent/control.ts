import { noBytes } from "../protocol/bytes.ts";
import { command, commandName } from "../protocol/codes.ts";
import { CtlDecoder, type CtlItem, encodeCtlFrame, encodeNext } from "../protocol/ctl-frame.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Loop } from "./loop.ts";
import { FrameDeadline } from "./frame-deadline.ts";
import { Port } from "./port.ts";
import { type Handler, type Reply, failurePayload } from "./reply.ts";

/**
 * Commands taken ahead of the one at work; beyond either limit the host's bytes wait at the host.
 */
const queueLimit = { commands: 64, bytes: 2 * 1024 * 1024 } as const;
const chunk = 16384;

interface Queued {
  readonly item: CtlItem;
  readonly bytes: number;
  /** Connection it came on: an answer is for that one alone. */
  readonly session: number;
}

/** An answer, and what happens once it is sent. */
interface Answer {
  readonly frame: Uint8Array;
  readonly after?: () => void;
}

const plainAck = encodeCtlFrame(command.ack);

const acknowledged = ({ payload, after }: Reply): Answer => ({
  frame: payload === undefined ? plainAck : encodeCtlFrame(command.ack, payload),
  ...(after === undefined ? {} : { after }),
});

export interface ControlEvents {
  /** READY has been said. */
  opened(): void;
  /** The host has gone: what it asked for last is of no use to anyone. */
  lost(): void;
}

/**
 * The control channel: READY when it opens, NEXT for what was read until HELLO, one ACK or ERROR
 * per command, in their order (hyperstart has no request ids). A command may take its time; the
 * next one waits, the rest of the agent does not.
 */
export class Control {
  readonly #port: Port;
  readonly #handlers: ReadonlyMap<number, Handler>;
  readonly #events: ControlEvents;
  readonly #buffer = new Uint8Array(chunk);
  readonly #queue: Queued[] = [];
  readonly #deadline: FrameDeadline;
  #decoder = new CtlDecoder();
  /** Bytes that have come and are not taken, in the buffer. */
  #rest: Uint8Array = noBytes;
  /** The host agreed on the extension. */
  #extended = false;
  #queuedBytes = 0;
  #working = false;
  #session = 0;
  #announced = false;
  #afterwards: (() => void)[] = [];

  constructor(
    loop: Loop,
    find: () => string | undefined,
    handlers: ReadonlyMap<number, Handler>,
    events: ControlEvents,
  ) {
    this.#handlers = handlers;
    this.#events = events;
    this.#deadline = new FrameDeadline(loop, () => this.#forgetHalf());
    this.#port = new Port(loop, find, {
      opened: () => {
        this.#ready();
        events.opened();
      },
      readable: () => this.#read(),
      lost: () => this.#lost(),
      doubted: () => this.#forgetHalf(),
      drained: () => this.#drained(),
    });
  }

  /** Opens the port if it is there; otherwise tries again later, or when called again. */
  open(): boolean {
    return this.#port.open();
  }

  /** Sends an unsolicited event: PROCESSASYNCEVENT. */
  report(code: number, payload: Uint8Array): void {
    this.#port.send(encodeCtlFrame(code, payload));
  }

  /**
   * The host agreed on the extension: it counts no NEXT, which would be a message for each command.
   */
  extend(): void {
    this.#extended = true;
  }

  /** Writes what is queued now, as far as the host takes it. */
  flush(): void {
    this.#port.flush();
  }

  /** The port, while nothing of what has come is left, and nothing is to be sent; else -1. */
  get waitingPort(): number {
    const isIdle = this.#extended && !this.#working && this.#queue.length === 0;
    return isIdle && this.#rest.length === 0 && !this.#decoder.pending ? this.#port.idle : -1;
  }

  #ready(): void {
    this.#announced = false;
    // Data that is there already was meant for an earlier agent: virtio ports keep it across a
    // restart.
    while (this.#port.read(this.#buffer) !== undefined);
    this.#port.send(encodeCtlFrame(command.ready));
    // Sent at once rather than in the next round: when a pod starts, the host waits only for this.
    this.#port.flush();
  }

  #lost(): void {
    this.#session++;
    this.#extended = false;
    this.#rest = noBytes;
    this.#forgetHalf();
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    this.#port.reading(true);
    this.#events.lost();
    // A host that was not there yet has not heard it; one that comes back does not expect it again.
    if (!this.#announced) this.#port.send(encodeCtlFrame(command.ready));
  }

  /** The next byte begins a frame. */
  #forgetHalf(): void {
    this.#decoder = new CtlDecoder();
    this.#deadline.arm(false);
  }

  /**
   * Reads on, unless there is too much to do; then the host's bytes wait, and the deadline of a
   * frame with them.
   */
  #listen(): void {
    this.#port.reading(!this.#full);
    this.#deadline.arm(!this.#full && this.#decoder.pending);
  }

  #drained(): void {
    this.#announced = true;
    const afterwards = this.#afterwards;
    this.#afterwards = [];
    for (const run of afterwards) run();
  }

  #read(): void {
    if (this.#extended) this.#readAll();
    else this.#readPieces();
    this.#listen();
  }

  /** What has come, as much as there is: the host does not wait for NEXT. */
  #readAll(): void {
    while (!this.#full) {
      if (this.#rest.length === 0) {
        const count = this.#port.read(this.#buffer);
        if (count === undefined) return;
        this.#rest = this.#buffer.subarray(0, count);
      }
      const { items, taken } = this.#decoder.cut(
        this.#rest,
        queueLimit.commands - this.#queue.length,
      );
      const whole = taken === this.#rest.length;
      this.#rest = whole ? noBytes : this.#rest.subarray(taken);
      for (const item of items) this.#take(item);
      // The kernel says when there is more.
      if (whole) return;
    }
  }

  /**
   * hyperstart reads a header, then its body, each as far as it has arrived, and says NEXT after
   * each.
   */
  #readPieces(): void {
    while (!this.#full && !this.#extended) {
      let consumed = 0;
      let wanted = this.#decoder.wanted;
      const found: CtlItem[] = [];
      while (wanted > 0) {
        const count = this.#port.read(this.#buffer.subarray(0, Math.min(wanted, chunk)));
        if (count === undefined) break;
        consumed += count;
        wanted -= count;
        found.push(...this.#decoder.push(this.#buffer.subarray(0, count)));
      }
      if (consumed === 0) break;
      this.#port.send(encodeNext(consumed));
      for (const item of found) this.#take(item);
      if (wanted > 0) break;
    }
  }

  get #full(): boolean {
    return this.#queue.length >= queueLimit.commands || this.#queuedBytes >= queueLimit.bytes;
  }

  #take(item: CtlItem): void {
    const bytes = item.kind === "frame" ? item.payload.length : 0;
    this.#queue.push({ item, bytes, session: this.#session });
    this.#queuedBytes += bytes;
    this.#work();
  }

  /** Commands one after the other; one that takes its time goes on here when it is done. */
  #work(): void {
    while (!this.#working) {
      const next = this.#queue.shift();
      if (next === undefined) return;
      this.#queuedBytes -= next.bytes;
      this.#working = true;
      const answer = this.#answer(next.item);
      if (answer instanceof Promise) void this.#await(next, answer);
      else this.#reply(next, answer);
    }
  }

  async #await(command: Queued, answer: Promise<Answer>): Promise<void> {
    this.#reply(command, await answer);
    this.#work();
    this.#readOn();
  }

  /** There is room again for what has come and was not taken. */
  #readOn(): void {
    if (this.#full) return;
    if (this.#rest.length > 0) this.#read();
    else this.#listen();
  }

  #reply({ session }: Queued, { frame, after }: Answer): void {
    this.#working = false;
    if (session !== this.#session) return;
    if (after !== undefined) {
      this.#port.send(frame);
      this.#afterwards.push(after);
      this.#port.flush();
    } else this.#port.sendNow(frame);
  }

  #answer(item: CtlItem): Answer | Promise<Answer> {
    const refused = (thrown: unknown): Answer => ({
      frame: encodeCtlFrame(command.error, failurePayload(item.code, thrown)),
    });
    try {
      const reply = this.#obey(item);
      return reply instanceof Promise ? reply.then(acknowledged, refused) : acknowledged(reply);
    } catch (thrown) {
      return refused(thrown);
    }
  }

  #obey(item: CtlItem): Reply | Promise<Reply> {
    if (item.kind === "refused")
      throw new PodnetError("AGENT_PROTOCOL", `Frame length ${item.length} is ${item.reason}`);
    const handler = this.#handlers.get(item.code);
    if (handler === undefined)
      throw new PodnetError("UNSUPPORTED", `${commandName(item.code)} is not supported`);
    return handler(item.payload);
  }
}
