import { joinBytes } from "../protocol/bytes.ts";
import { malformed } from "../protocol/fields.ts";

/**
 * Flow control of outgoing bytes. `next`: as runv does it for a hyperstart, at most 512 bytes, and
 * no more before NEXT has accounted for every one of them. `free`: the socket alone sets the pace.
 * `identifying`: as `free`, and NEXTs are not counted, since some may be left over from before.
 */
export type FlowMode = "identifying" | "next" | "free";

const chunkSize = { identifying: 512, next: 512, free: 64 * 1024 } as const;

interface Frame {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** Bytes to write, and the names of the frames they are of. */
export interface Chunk {
  readonly bytes: Uint8Array;
  readonly names: readonly string[];
}

/**
 * Queue of frames and account of NEXT. Pure: it returns the bytes to write, and is given what
 * arrived.
 */
export class Flow {
  #mode: FlowMode = "identifying";
  #queue: Frame[] = [];
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

  enqueue(name: string, bytes: Uint8Array): void {
    this.#queue.push({ name, bytes });
    this.#queued += bytes.length;
  }

  /** Forgets what is queued: the other end has started anew. */
  clear(): void {
    this.#queue = [];
    this.#queued = 0;
    this.#unread = 0;
  }

  /**
   * The next bytes to write, of several frames if they fit; undefined when there are none or none
   * may be written.
   */
  take(): Chunk | undefined {
    if (this.#queued === 0 || (this.#mode === "next" && this.#unread > 0)) return undefined;
    const parts: Uint8Array[] = [];
    const names: string[] = [];
    let room: number = chunkSize[this.#mode];
    let frame: Frame | undefined;
    while (room > 0 && (frame = this.#queue[0]) !== undefined) {
      const part = frame.bytes.subarray(0, room);
      parts.push(part);
      names.push(frame.name);
      room -= part.length;
      if (part.length === frame.bytes.length) this.#queue.shift();
      else this.#queue[0] = { name: frame.name, bytes: frame.bytes.subarray(part.length) };
    }
    const bytes = parts.length === 1 ? (parts[0] as Uint8Array) : joinBytes(parts);
    this.#queued -= bytes.length;
    this.#unread += bytes.length;
    return { bytes, names };
  }

  /** NEXT came. Throws `AGENT_PROTOCOL` when the guest claims bytes it was never sent. */
  consumed(count: number): void {
    if (this.#mode === "identifying") return;
    if (count > this.#unread)
      throw malformed(`The guest claims to have read ${count} bytes of ${this.#unread} sent`);
    this.#unread -= count;
  }
}
