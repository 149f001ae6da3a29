import { PodnetError } from "../../core/errors.ts";
import type { UnixConnection } from "../../linux/sockets/unix-socket.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command, commandName } from "../protocol/codes.ts";
import { CtlDecoder, type CtlItem, encodeCtlFrame } from "../protocol/ctl-frame.ts";
import { malformed } from "../protocol/fields.ts";
import { type MainEnded, parseMainEnded } from "../protocol/main-process.ts";
import { type ProcessEvent, parseProcessEvent } from "../protocol/process-messages.ts";
import { parseNext, refusal } from "../protocol/replies.ts";
import { abortError } from "../../core/aborting.ts";
import { systemClock } from "../../core/clock.ts";
import { TokenBucket } from "../../core/token-bucket.ts";
import { Flow, type FlowMode } from "./flow.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import { Link } from "./link.ts";
import { PendingCommands, type Reply } from "./pending.ts";

export interface ControlListener {
  ready(): void;
  /** Answers whether there is such a process. */
  processEvent(event: ProcessEvent): boolean;
  /** Answers whether it is the process that is followed. */
  mainEnded(end: MainEnded): boolean;
  /** Answers whether it is a container that is followed. */
  containerEnded(end: MainEnded): boolean;
  /** Once: the channel is closed. */
  closed(reason: PodnetError): void;
}

export interface CallOptions {
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  /** The purpose of the call, for messages: `the pod's routes`. */
  readonly what?: string;
}

interface Exchange {
  /** For messages. */
  readonly code: number;
  readonly accepts?: (reply: Reply) => boolean;
}

/** READY makes the host ask who is there: as much work as some hundred frames. */
const readyCost = 256;

/** A frame's cost against the guest's rate: one for its handling, and more for text to parse. */
function costOf(item: CtlItem): number {
  if (item.kind === "refused") return 1;
  return item.code === command.ready ? readyCost : 1 + item.payload.length / 256;
}

/** Counts a guest's violations of the protocol. */
export interface ControlCounters {
  /** Frames of a kind no guest sends, and NEXTs of nothing. */
  senselessFrames: number;
  /** Ends of processes that are not known. */
  strayEvents: number;
  /** Answers without a pending command, left over from before a restart. */
  staleReplies: number;
  /** Times READY was said. */
  readies: number;
}

export const noCounters: Readonly<ControlCounters> = {
  senselessFrames: 0,
  strayEvents: 0,
  staleReplies: 0,
  readies: 0,
};

/**
 * The control channel: commands out, one answer each, in order. Nothing is written but by `call`.
 */
export class Control {
  readonly counters: ControlCounters = { ...noCounters };
  readonly #link: Link<CtlItem>;
  readonly #limits: ChannelLimits;
  readonly #listener: ControlListener;
  readonly #pending: PendingCommands;
  readonly #flow = new Flow();
  readonly #strays: TokenBucket;
  #closed: PodnetError | undefined;

  constructor(
    connection: UnixConnection,
    { limits, time }: { readonly limits: ChannelLimits; readonly time: GuestTime },
    listener: ControlListener,
  ) {
    this.#pending = new PendingCommands(time);
    this.#limits = limits;
    this.#listener = listener;
    this.#strays = new TokenBucket(limits.strayEvents, systemClock);
    this.#link = new Link(connection, {
      name: "control channel",
      frameMs: limits.frameMs,
      time,
      decoder: () => new CtlDecoder(limits.controlFrame),
      rate: limits.controlRate,
      cost: costOf,
      tooFastMs: limits.tooFastMs,
      tooFast: (is) => {
        if (is) this.abandon(malformed("The guest keeps sending more frames than it may"));
      },
      listener: {
        item: (item) => this.#guarded(() => this.#take(item)),
        drained: () => this.#pump(),
        closed: (reason) => this.#end(reason),
      },
    });
  }

  /** Sends a command and returns its ACK's payload. Throws `AGENT_REFUSED` for ERROR. */
  async call(code: number, payload: Uint8Array, options: CallOptions): Promise<Uint8Array> {
    const reply = await this.request(code, payload, options);
    if (reply.kind === "error") throw refusal(options.what ?? commandName(code), reply.payload);
    return reply.payload;
  }

  /**
   * Sends a command and returns its answer. `accepts` picks the answer while identifying, when
   * others may be left over: those it refuses are dropped and counted. Throws `AGENT_TIMEOUT`,
   * `AGENT_DISCONNECTED`, `CANCELLED`.
   */
  request(
    code: number,
    payload: Uint8Array = noBytes,
    options: CallOptions & { accepts?: (reply: Reply) => boolean },
  ): Promise<Reply> {
    return this.exchange(encodeCtlFrame(code, payload), { code, ...options });
  }

  /** Sends several commands at once, of which `accepts` picks the one answer that counts. */
  exchange(
    frames: Uint8Array,
    { code, deadlineMs, signal, accepts }: CallOptions & Exchange,
  ): Promise<Reply> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (signal.aborted) return Promise.reject(abortError(signal, commandName(code)));
    if (this.#flow.mode === "identifying" && accepts === undefined)
      return Promise.reject(
        new PodnetError("AGENT_DISCONNECTED", "The guest's agent is starting anew"),
      );
    const { outstanding, queuedBytes } = this.#limits;
    if (this.#pending.size >= outstanding || this.#flow.queued + frames.length > queuedBytes)
      return Promise.reject(
        new PodnetError("AGENT_TIMEOUT", `The guest has ${this.#pending.size} commands to answer`, {
          hint: "The guest does not keep up; look at its console",
        }),
      );
    const answer = this.#pending.add({ code, deadlineMs, signal, accepts });
    this.#flow.enqueue(commandName(code), frames);
    this.#pump();
    return answer;
  }

  /**
   * The other end has started anew: what waits for an answer fails with `reason`, what is queued is
   * dropped.
   */
  restart(reason: PodnetError): void {
    this.#flow.clear();
    this.#flow.setMode("identifying");
    this.#pending.failAll(reason);
  }

  setFlow(mode: FlowMode): void {
    this.#flow.setMode(mode);
    this.#pump();
  }

  /** Cuts the guest off. */
  abandon(reason: PodnetError): void {
    this.#link.close();
    this.#end(reason);
  }

  #pump(): void {
    while (this.#closed === undefined && !this.#link.congested) {
      const chunk = this.#flow.take();
      if (chunk === undefined) return;
      this.#link.write(chunk.bytes, chunk.names.join(" + "));
    }
  }

  #take(item: CtlItem): void {
    if (item.kind === "refused")
      throw malformed(
        `The guest announced a control frame of ${item.length} bytes (limit ${this.#limits.controlFrame})`,
      );
    const { code, payload } = item;
    switch (code) {
      case command.ready:
        this.counters.readies++;
        return this.#listener.ready();
      case command.next: {
        const count = parseNext(payload);
        if (count === 0) return this.#senseless("a NEXT of 0 bytes");
        this.#flow.consumed(count);
        return this.#pump();
      }
      case command.ack:
      case command.error:
        return this.#reply({ kind: code === command.ack ? "ack" : "error", payload });
      case command.processAsyncEvent:
        return this.#known(this.#listener.processEvent(parseProcessEvent(payload)));
      case command.mainEnded:
        return this.#known(this.#listener.mainEnded(parseMainEnded(payload)));
      case command.containerEnded:
        return this.#known(this.#listener.containerEnded(parseMainEnded(payload)));
      default:
        return this.#senseless(`an unknown ${commandName(code)}`);
    }
  }

  /** A process has ended that is known, or not. */
  #known(isKnown: boolean): void {
    if (isKnown) return;
    this.counters.strayEvents++;
    if (!this.#strays.take())
      throw malformed("The guest reports the ends of processes that are not known");
  }

  #senseless(what: string): void {
    if (++this.counters.senselessFrames > this.#limits.senselessFrames)
      throw malformed(`The guest sends frames that mean nothing, the last ${what}`);
  }

  #reply(reply: Reply): void {
    if (this.#pending.answer(reply)) return;
    // Left-over answers are no breach while the ends are finding each other; later they are.
    if (
      this.#flow.mode !== "identifying" ||
      ++this.counters.staleReplies > this.#limits.outstanding
    )
      throw malformed("The guest answered a command it was not given");
  }

  /**
   * Runs what handles a guest's bytes; a breach of protocol costs the guest its channel, nothing
   * else.
   */
  #guarded(body: () => void): void {
    try {
      body();
    } catch (error) {
      const reason =
        error instanceof PodnetError ? error : malformed("The guest broke the protocol", "", error);
      this.abandon(reason);
    }
  }

  #end(reason: PodnetError): void {
    if (this.#closed !== undefined) return;
    this.#closed = reason;
    this.#pending.failAll(reason);
    this.#listener.closed(reason);
  }
}
