import { unreadable } from "../unreadable.ts";

/** A file that is read at any place: Node's `FileHandle` is one. */
export interface ReadableFile {
  read: (
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ) => Promise<{ bytesRead: number }>;
}

/** Bytes that are read from front to back. */
export interface ByteSource {
  /** Bytes read or skipped so far. */
  readonly position: number;
  /** So many bytes; undefined at the end. Throws `IMAGE_UNREADABLE` when the end comes within. */
  exactly: (bytes: number) => Promise<Uint8Array | undefined>;
  /** At least one byte, and at most so many. Throws `IMAGE_UNREADABLE` at the end. */
  some: (most: number) => Promise<Uint8Array>;
  skip: (bytes: number) => Promise<void>;
}

const nothing = new Uint8Array(0);

const cutShort = () => unreadable("The archive ends too early");

/** Reads a stream. */
export class StreamSource implements ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #chunk: Uint8Array = nothing;
  position = 0;

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  async exactly(bytes: number): Promise<Uint8Array | undefined> {
    if (this.#chunk.length >= bytes) return this.#take(bytes);
    const parts: Uint8Array[] = [];
    for (let missing = bytes; missing > 0; ) {
      if (this.#chunk.length === 0 && !(await this.#next())) {
        if (missing === bytes) return undefined;
        throw cutShort();
      }
      const part = this.#take(Math.min(missing, this.#chunk.length));
      parts.push(part);
      missing -= part.length;
    }
    return Buffer.concat(parts);
  }

  async some(most: number): Promise<Uint8Array> {
    if (this.#chunk.length === 0 && !(await this.#next())) throw cutShort();
    return this.#take(Math.min(most, this.#chunk.length));
  }

  async skip(bytes: number): Promise<void> {
    for (let left = bytes; left > 0; ) left -= (await this.some(left)).length;
  }

  /** Reads what is left, so that the source sees its own end. */
  async drain(): Promise<void> {
    this.#chunk = nothing;
    while (await this.#next()) this.#chunk = nothing;
  }

  #take(bytes: number): Uint8Array {
    const taken = this.#chunk.subarray(0, bytes);
    this.#chunk = this.#chunk.subarray(bytes);
    this.position += bytes;
    return taken;
  }

  async #next(): Promise<boolean> {
    for (;;) {
      const { done, value } = await this.#chunks.next();
      if (done === true) return false;
      this.#chunk = value;
      if (value.length > 0) return true;
    }
  }
}

/** Reads a file, and passes over what is skipped. */
export class FileSource implements ByteSource {
  readonly #file: ReadableFile;
  readonly #end: number;
  position: number;

  constructor(file: ReadableFile, begin: number, end: number) {
    this.#file = file;
    this.position = begin;
    this.#end = end;
  }

  async exactly(bytes: number): Promise<Uint8Array | undefined> {
    if (this.position >= this.#end) return undefined;
    if (this.position + bytes > this.#end) throw cutShort();
    const buffer = Buffer.allocUnsafe(bytes);
    for (let had = 0; had < bytes; ) {
      const { bytesRead } = await this.#file.read(buffer, had, bytes - had, this.position + had);
      if (bytesRead === 0) throw cutShort();
      had += bytesRead;
    }
    this.position += bytes;
    return buffer;
  }

  async some(most: number): Promise<Uint8Array> {
    const found = await this.exactly(Math.min(most, 2 ** 18, this.#end - this.position));
    if (found === undefined) throw cutShort();
    return found;
  }

  skip(bytes: number): Promise<void> {
    if (this.position + bytes > this.#end) return Promise.reject(cutShort());
    this.position += bytes;
    return Promise.resolve();
  }
}

/** Bytes of a part of a file. */
export async function* rangeOf(
  file: ReadableFile,
  begin: number,
  bytes: number,
): AsyncGenerator<Uint8Array> {
  const source = new FileSource(file, begin, begin + bytes);
  while (source.position < begin + bytes) yield await source.some(2 ** 18);
}
