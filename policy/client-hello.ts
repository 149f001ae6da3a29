import { canonicalName, type DomainName } from "./domain.ts";
import { Gathered, latin1 } from "./gathered.ts";

/** Why a ClientHello is refused. */
export type HelloRefusal =
  /** The connection does not begin as TLS does. */
  | "not-tls"
  /** It breaks a rule of TLS. */
  | "malformed"
  /** It is longer than any that a client sends. */
  | "too-long"
  /** Encrypted Client Hello: the name that can be read is not the one that is asked for. */
  | "hides-name"
  /** The name is not that of a host. */
  | "bad-name";

export type HelloRead =
  | { readonly kind: "more" }
  /** `name` is null when it asks for none. */
  | { readonly kind: "hello"; readonly name: DomainName | null }
  | { readonly kind: "refused"; readonly reason: HelloRefusal };

/**
 * Longest message that is read, bytes. One with a hybrid post-quantum key share has some 1,800, one
 * with FrodoKEM-1344 some 21,500.
 */
export const longestHello = 32_768;
/** Longest beginning of a connection that has it: a record of one byte takes six. */
const longestStart = 2 * longestHello;

// RFC 8446 sections 4 and 5.1, RFC 6066 section 3, RFC 9849 section 5.
const handshakeRecord = 22;
const longestRecord = 16_384;
const clientHello = 1;
const serverName = 0;
const hostName = 0;
const encryptedClientHello = 0xfe0d;

/**
 * Reads the name that a TLS client asks for from the beginning of its connection, which may come in
 * any pieces and any records. It needs no key: every version of TLS has SNI in the clear. Pure.
 */
export class ClientHelloReader {
  /** Everything that came, to be passed on. */
  readonly #start = new Gathered();
  readonly #message = new Gathered();
  /** Where in the start the next record begins. */
  #record = 0;
  #result: HelloRead = { kind: "more" };

  /** All bytes that came so far, with those behind the message. */
  get start(): Uint8Array {
    return this.#start.bytes;
  }

  /** Takes the next piece, of any length. What has been decided stays. */
  take(piece: Uint8Array): HelloRead {
    if (this.#result.kind !== "more") return this.#result;
    this.#start.add(piece);
    this.#result = this.#read();
    return this.#result;
  }

  #read(): HelloRead {
    const { bytes } = this.#start;
    for (;;) {
      const head = bytes.subarray(this.#record, this.#record + 5);
      if (!beginsRecord(head)) return refused(this.#record === 0 ? "not-tls" : "malformed");
      if (head.length < 5) return { kind: "more" };
      const length = uint16(head, 3);
      // A record of a handshake is never empty (RFC 8446 section 5.1).
      if (length === 0 || length > longestRecord) return refused("malformed");
      const end = this.#record + 5 + length;
      if (end > longestStart) return refused("too-long");
      if (bytes.length < end) return { kind: "more" };
      this.#message.add(bytes.subarray(this.#record + 5, end));
      this.#record = end;
      const read = readMessage(this.#message.bytes);
      if (read.kind !== "more") return read;
    }
  }
}

const refused = (reason: HelloRefusal): HelloRead => ({ kind: "refused", reason });
const uint16 = (bytes: Uint8Array, at: number): number =>
  ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);

/** A handshake, of a version 3.x, as far as it is there. */
const beginsRecord = (head: Uint8Array): boolean =>
  (head[0] ?? handshakeRecord) === handshakeRecord && (head[1] ?? 3) === 3;

const lengthOf = (head: Uint8Array): number => 4 + ((head[1] ?? 0) << 16) + uint16(head, 2);

function readMessage(bytes: Uint8Array): HelloRead {
  if (bytes.length < 4) return { kind: "more" };
  if (bytes[0] !== clientHello) return refused("malformed");
  const length = lengthOf(bytes);
  if (length > longestHello) return refused("too-long");
  if (bytes.length < length) return { kind: "more" };
  // A message that follows in the record would be one that no server has asked for yet.
  return bytes.length > length ? refused("malformed") : readBody(new Fields(bytes.subarray(4)));
}

/** Fields one after the other; all that is missing is noted in `short`. */
class Fields {
  readonly #bytes: Uint8Array;
  #at = 0;
  short = false;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  take(length: number): Uint8Array {
    this.short ||= this.#at + length > this.#bytes.length;
    const taken = this.#bytes.subarray(this.#at, this.#at + length);
    this.#at = Math.min(this.#at + length, this.#bytes.length);
    return taken;
  }

  uint8(): number {
    return this.take(1)[0] ?? 0;
  }

  uint16(): number {
    return uint16(this.take(2), 0);
  }

  /** What follows a length of one byte, or of two. */
  vector8(): Uint8Array {
    return this.take(this.uint8());
  }

  vector16(): Uint8Array {
    return this.take(this.uint16());
  }
}

/** RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2. */
function readBody(body: Fields): HelloRead {
  const version = body.uint16();
  body.take(32);
  const session = body.vector8();
  const suites = body.vector16();
  const compressions = body.vector8();
  const fits =
    version >> 8 === 3 &&
    session.length <= 32 &&
    suites.length >= 2 &&
    suites.length % 2 === 0 &&
    compressions.length > 0;
  if (body.short || !fits) return refused("malformed");
  // A client of TLS 1.2 may have no extensions at all.
  if (body.isAtEnd) return { kind: "hello", name: null };
  const extensions = new Fields(body.vector16());
  return body.short || !body.isAtEnd ? refused("malformed") : readExtensions(extensions);
}

function readExtensions(extensions: Fields): HelloRead {
  const seen = new Set<number>();
  let name: HelloRead = { kind: "hello", name: null };
  while (!extensions.isAtEnd) {
    const type = extensions.uint16();
    const value = extensions.vector16();
    // Of two servers' names each server could take another.
    if (extensions.short || seen.has(type)) return refused("malformed");
    seen.add(type);
    if (type === serverName) name = readServerName(new Fields(value));
  }
  // Whatever the readable name is, the server may be asked for another.
  return seen.has(encryptedClientHello) ? refused("hides-name") : name;
}

/** A list that has one host's name, and nothing else (RFC 6066 section 3). */
function readServerName(list: Fields): HelloRead {
  const names = new Fields(list.vector16());
  const type = names.uint8();
  const bytes = names.vector16();
  if (list.short || !list.isAtEnd || names.short || !names.isAtEnd || type !== hostName)
    return refused("malformed");
  const name = canonicalName(latin1(bytes));
  return name === undefined ? refused("bad-name") : { kind: "hello", name };
}
