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

export interface ControlEvents {
  /** READY has been said. */
  opened(): void;
  /** The host has gone: what it asked for last is of no use to anyone. */
  lost(): void;
}

/**
 * The control channel: READY when it opens, NEXT for what was read, one ACK or ERROR per command,
 * in their order (hyperstart has no request ids). A command may take its time; the next one waits,
 * the rest of the agent does not.
 */
export class Control {
  readonly #port: Port;
  readonly #handlers: ReadonlyMap<number, Handler>;
  readonly #events: ControlEvents;
  readonly #buffer = new Uint8Array(chunk);
  readonly #queue: Queued[] = [];
  readonly #deadline: FrameDeadline;
  #decoder = new CtlDecoder();
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

  /** Writes what is queued now, as far as the host takes it. */
  flush(): void {
    this.#port.flush();
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

  /**
   * hyperstart reads a header, then its body, each as far as it has arrived, and says NEXT after
   * each.
   */
  #read(): void {
    while (!this.#full) {
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
    this.#listen();
  }

  get #full(): boolean {
    return this.#queue.length >= queueLimit.commands || this.#queuedBytes >= queueLimit.bytes;
  }

  #take(item: CtlItem): void {
    const bytes = item.kind === "frame" ? item.payload.length : 0;
    this.#queue.push({ item, bytes, session: this.#session });
    this.#queuedBytes += bytes;
    if (!this.#working) void this.#work();
  }

  async #work(): Promise<void> {
    this.#working = true;
    for (;;) {
      const next = this.#queue.shift();
      if (next === undefined) break;
      this.#queuedBytes -= next.bytes;
      const frame = await this.#answer(next.item);
      if (next.session === this.#session) this.#reply(frame);
      if (!this.#full) this.#listen();
    }
    this.#working = false;
  }

  #reply({ frame, after }: { frame: Uint8Array; after?: (() => void) | undefined }): void {
    this.#port.send(frame);
    if (after !== undefined) this.#afterwards.push(after);
    this.#port.flush();
  }

  async #answer(item: CtlItem): Promise<{ frame: Uint8Array; after?: (() => void) | undefined }> {
    try {
      const { payload, after } = await this.#obey(item);
      return { frame: encodeCtlFrame(command.ack, payload), after };
    } catch (thrown) {
      return { frame: encodeCtlFrame(command.error, failurePayload(item.code, thrown)) };
    }
  }

  async #obey(item: CtlItem): Promise<Reply> {
    if (item.kind === "refused")
      throw new PodnetError("AGENT_PROTOCOL", `Frame length ${item.length} is ${item.reason}`);
    const handler = this.#handlers.get(item.code);
    if (handler === undefined)
      throw new PodnetError("UNSUPPORTED", `${commandName(item.code)} is not supported`);
    return await handler(item.payload);
  }
}
