/** A message as it goes over TCP: its length before it (RFC 1035 section 4.2.2). */
export function framed(message: Uint8Array): Uint8Array {
  const bytes = Buffer.alloc(2 + message.length);
  bytes.writeUInt16BE(message.length);
  bytes.set(message, 2);
  return bytes;
}

/** Puts the messages of a TCP connection together. */
export class MessageStream {
  readonly #longest: number;
  #waiting = Buffer.alloc(0);
  #tooLong = false;

  /** A message that says it is longer ends the stream. */
  constructor(longest: number) {
    this.#longest = longest;
  }

  /** The other end announced a longer message than allowed: its further data is ignored. */
  get tooLong(): boolean {
    return this.#tooLong;
  }

  /** Takes bytes, and answers the messages that are whole with them. */
  push(bytes: Uint8Array): Uint8Array[] {
    if (this.#tooLong) return [];
    this.#waiting = Buffer.concat([this.#waiting, bytes]);
    const messages: Uint8Array[] = [];
    while (this.#waiting.length >= 2) {
      const length = this.#waiting.readUInt16BE();
      if (length > this.#longest) {
        this.#tooLong = true;
        this.#waiting = Buffer.alloc(0);
        break;
      }
      if (this.#waiting.length < 2 + length) break;
      messages.push(Uint8Array.from(this.#waiting.subarray(2, 2 + length)));
      this.#waiting = this.#waiting.subarray(2 + length);
    }
    return messages;
  }
}
