import { joinBytes } from "../protocol/bytes.ts";
import { malformed } from "../protocol/fields.ts";

/**
 * How bytes may go out. `next`: as runv does it for a hyperstart, at most 512 bytes, and no more before
 * NEXT has accounted for every one of them. `free`: the socket alone sets the pace.
 * `identifying`: as `free`, and NEXTs are not counted, since some may be left over from before.
 */
export type FlowMode = "identifying" | "next" | "free";

const chunkSize = { identifying: 512, next: 512, free: 64 * 1024 } as const;

/** Queue of frames and account of NEXT. Pure: it says what to write, and is told what came. */
export class Flow {
  #mode: FlowMode = "identifying";
  #queue: Uint8Array[] = [];
  #queued = 0;
  /** Written and not yet accounted for by NEXT. */
  #unread = 0;

  /** Bytes waiting to be written. */
  get queued(): number {
    return this.#queued;
  }

  get mode(): FlowMode {
    return this.#mode;
  }

  /** Changes the mode between commands; the account starts at zero. */
  setMode(mode: FlowMode): void {
    this.#mode = mode;
    this.#unread = 0;
  }

  enqueue(frame: Uint8Array): void {
    this.#queue.push(frame);
    this.#queued += frame.length;
  }

  /** Forgets what is queued: the other end has started anew. */
  clear(): void {
    this.#queue = [];
    this.#queued = 0;
    this.#unread = 0;
  }

  /** The next bytes to write, several frames' if they fit; undefined when there are none or must not be. */
  take(): Uint8Array | undefined {
    if (this.#queued === 0 || (this.#mode === "next" && this.#unread > 0)) return undefined;
    const parts: Uint8Array[] = [];
    let room: number = chunkSize[this.#mode];
    let frame: Uint8Array | undefined;
    while (room > 0 && (frame = this.#queue[0]) !== undefined) {
      const part = frame.subarray(0, room);
      parts.push(part);
      room -= part.length;
      if (part.length === frame.length) this.#queue.shift();
      else this.#queue[0] = frame.subarray(part.length);
    }
    const chunk = parts.length === 1 ? (parts[0] as Uint8Array) : joinBytes(parts);
    this.#queued -= chunk.length;
    this.#unread += chunk.length;
    return chunk;
  }

  /** NEXT came. Throws `AGENT_PROTOCOL` when the guest claims bytes it was never sent. */
  consumed(count: number): void {
    if (this.#mode === "identifying") return;
    if (count > this.#unread)
      throw malformed(`The guest claims to have read ${count} bytes of ${this.#unread} sent`);
    this.#unread -= count;
  }
}
