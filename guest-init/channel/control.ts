import { PodnetError } from "../../core/errors.ts";
import type { UnixConnection } from "../../linux/unix-socket.ts";
import { noBytes } from "../protocol/bytes.ts";
import { command, commandName } from "../protocol/codes.ts";
import { CtlDecoder, type CtlItem, encodeCtlFrame } from "../protocol/ctl-frame.ts";
import { malformed } from "../protocol/fields.ts";
import { type ProcessEvent, parseProcessEvent } from "../protocol/process-messages.ts";
import { parseNext, refusal } from "../protocol/replies.ts";
import { abortError } from "../../core/aborting.ts";
import { Flow, type FlowMode } from "./flow.ts";
import type { GuestTime } from "./guest-time.ts";
import type { ChannelLimits } from "./limits.ts";
import { Link } from "./link.ts";
import { PendingCommands, type Reply } from "./pending.ts";

export interface ControlListener {
  ready(): void;
  processEvent(event: ProcessEvent): void;
  /** Once: the channel is closed. */
  closed(reason: PodnetError): void;
}

export interface CallOptions {
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  /** What the caller wants, for messages: `the pod's routes`. */
  readonly what?: string;
}

interface Exchange {
  /** For messages. */
  readonly code: number;
  readonly accepts?: (reply: Reply) => boolean;
}

/** What a guest did that it should not have, counted. */
export interface ControlCounters {
  /** Frames of a kind no guest sends. */
  unknownFrames: number;
  /** Answers nobody waited for, left over from before a restart. */
  staleReplies: number;
  /** Times READY was said. */
  readies: number;
}

/** The control channel: commands out, one answer each, in order. Nothing is written but by `call`. */
export class Control {
  readonly counters: ControlCounters = { unknownFrames: 0, staleReplies: 0, readies: 0 };
  readonly #link: Link<CtlItem>;
  readonly #limits: ChannelLimits;
  readonly #listener: ControlListener;
  readonly #pending: PendingCommands;
  readonly #flow = new Flow();
  #closed: PodnetError | undefined;

  constructor(
    connection: UnixConnection,
    { limits, time }: { readonly limits: ChannelLimits; readonly time: GuestTime },
    listener: ControlListener,
  ) {
    this.#pending = new PendingCommands(time);
    this.#limits = limits;
    this.#listener = listener;
    this.#link = new Link(connection, {
      name: "control channel",
      frameMs: limits.frameMs,
      time,
      decoder: () => new CtlDecoder(limits.controlFrame),
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
   * Sends a command and returns its answer. `accepts` picks the answer while identifying, when others
   * may be left over: those it refuses are dropped and counted.
   * Throws `AGENT_TIMEOUT`, `AGENT_DISCONNECTED`, `CANCELLED`.
   */
  request(
    code: number,
    payload: Uint8Array = noBytes,
    options: CallOptions & { accepts?: (reply: Reply) => boolean },
  ): Promise<Reply> {
    return this.exchange(encodeCtlFrame(code, payload), { code, ...options });
  }

  /** The same for several commands at once, of which `accepts` picks the one answer that counts. */
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

  /** The other end has started anew: what waits for an answer fails with `reason`, what is queued is dropped. */
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
      case command.next:
        this.#flow.consumed(parseNext(payload));
        return this.#pump();
      case command.ack:
      case command.error:
        return this.#reply({ kind: code === command.ack ? "ack" : "error", payload });
      case command.processAsyncEvent:
        return this.#listener.processEvent(parseProcessEvent(payload));
      default:
        this.counters.unknownFrames++;
        if (this.counters.unknownFrames > this.#limits.unknownFrames)
          throw malformed(`The guest sends unknown frames, the last of ${commandName(code)}`);
    }
  }

  #reply(reply: Reply): void {
    if (this.#pending.settle(reply)) return;
    // Left-over answers are no breach while the ends are finding each other; later they are.
    if (
      this.#flow.mode !== "identifying" ||
      ++this.counters.staleReplies > this.#limits.outstanding
    )
      throw malformed("The guest answered a command it was not given");
  }

  /** Runs what handles a guest's bytes; a breach of protocol costs the guest its channel, nothing else. */
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
