import { PodnetError } from "../../core/errors.ts";

const blockSize = 512;
/** Bytes of an entry that describes the next one: a long name, or pax records. */
const mostMeta = 64 * 1024;
/**
 * Zeros behind the end that fill up tar's last record: GNU's has 10 KiB by default, and can be set
 * to more.
 */
const mostPadding = 64 * 1024;

type TarKind = "file" | "directory" | "symlink" | "link" | "other";

/** One entry with the values of its header, which are not trusted. */
export interface TarEntry {
  readonly path: string;
  readonly kind: TarKind;
  /** Where a link leads. */
  readonly target: string;
  readonly mode: number;
  /** Seconds since 1970. */
  readonly mtime: number;
  /** Bytes of a file. */
  readonly size: number;
}

/** Takes what is in an archive, in its order. */
export interface TarSink {
  entry(entry: TarEntry): void;
  /** Bytes of the file that was begun last. */
  data(bytes: Uint8Array): void;
  /** The current file is complete. */
  done(): void;
}

const kinds: Readonly<Record<string, TarKind>> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "link",
  "2": "symlink",
  "3": "other",
  "4": "other",
  "5": "directory",
  "6": "other",
};

/**
 * Reads a tar archive (ustar, GNU, pax) as a stream, holding at most a block and a long name. Only
 * zeros may follow the archive's end. Throws `AGENT_PROTOCOL`.
 */
export class TarReader {
  readonly #sink: TarSink;
  readonly #block = new Uint8Array(blockSize);
  #filled = 0;
  /** Of the entry at hand: bytes to come, and what fills up its last block. */
  #left = 0;
  #padding = 0;
  #takesData = false;
  /** A long name or pax records, and what to do with them. */
  #meta: { readonly type: string; readonly parts: Uint8Array[] } | undefined;
  #next: { path?: string; target?: string; size?: number; mtime?: number } = {};
  #zeroBlocks = 0;
  #behind = 0;

  constructor(sink: TarSink) {
    this.#sink = sink;
  }

  /** The next bytes. */
  push(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.#zeroBlocks === 2) return this.#afterEnd(bytes.subarray(at));
      if (this.#left > 0) at += this.#content(bytes.subarray(at));
      else if (this.#padding > 0) at += this.#skip(bytes.length - at);
      else at += this.#header(bytes.subarray(at));
    }
  }

  /** The stream has ended: the archive has to be complete. */
  end(): void {
    if (this.#zeroBlocks < 2) throw broken("is cut short");
  }

  #afterEnd(bytes: Uint8Array): void {
    this.#behind += bytes.length;
    if (this.#behind > mostPadding || bytes.some((byte) => byte !== 0))
      throw broken("goes on after its end");
  }

  #skip(available: number): number {
    const count = Math.min(this.#padding, available);
    this.#padding -= count;
    return count;
  }

  #content(bytes: Uint8Array): number {
    const part = bytes.subarray(0, this.#left);
    this.#left -= part.length;
    if (this.#meta !== undefined) {
      this.#meta.parts.push(Uint8Array.from(part));
      if (this.#left === 0) this.#describe(this.#meta.type, Buffer.concat(this.#meta.parts));
    } else if (this.#takesData) {
      this.#sink.data(part);
      if (this.#left === 0) this.#sink.done();
    }
    return part.length;
  }

  #header(bytes: Uint8Array): number {
    const part = bytes.subarray(0, blockSize - this.#filled);
    this.#block.set(part, this.#filled);
    this.#filled += part.length;
    if (this.#filled < blockSize) return part.length;
    this.#filled = 0;
    if (this.#block.every((byte) => byte === 0)) this.#zeroBlocks++;
    else if (this.#zeroBlocks > 0) throw broken("goes on after a block of zeros");
    else this.#begin(this.#block);
    return part.length;
  }

  #begin(block: Uint8Array): void {
    if (!hasChecksum(block)) throw broken("has a header that is none");
    const type = String.fromCharCode(block[156] as number);
    const size = this.#next.size ?? numberAt(block, 124, 12);
    this.#left = size;
    this.#padding = (blockSize - (size % blockSize)) % blockSize;
    if (type === "L" || type === "K" || type === "x" || type === "g") {
      if (size > mostMeta || size === 0) throw broken(`describes an entry with ${size} bytes`);
      this.#meta = { type, parts: [] };
      return;
    }
    this.#meta = undefined;
    this.#entry(block, type, size);
    this.#next = {};
  }

  #entry(block: Uint8Array, type: string, size: number): void {
    const prefix = textAt(block, 257, 6) === "ustar" ? textAt(block, 345, 155) : "";
    const name = textAt(block, 0, 100);
    const path = this.#next.path ?? (prefix === "" ? name : `${prefix}/${name}`);
    const known = kinds[type];
    if (known === undefined) throw broken(`has an entry of an unknown type, "${path}"`);
    // As the archives before POSIX have it.
    const kind = known === "file" && path.endsWith("/") ? "directory" : known;
    if (kind !== "file" && size > 0) throw broken(`has bytes for "${path}", which is no file`);
    this.#takesData = kind === "file";
    this.#sink.entry({
      path,
      kind,
      target: this.#next.target ?? textAt(block, 157, 100),
      mode: numberAt(block, 100, 8),
      mtime: this.#next.mtime ?? numberAt(block, 136, 12),
      size,
    });
    if (kind === "file" && size === 0) this.#sink.done();
  }

  #describe(type: string, bytes: Buffer): void {
    this.#meta = undefined;
    if (type === "L") this.#next.path = textAt(bytes, 0, bytes.length);
    else if (type === "K") this.#next.target = textAt(bytes, 0, bytes.length);
    else if (type === "x") Object.assign(this.#next, paxRecords(bytes));
  }
}

const broken = (what: string): PodnetError =>
  new PodnetError("AGENT_PROTOCOL", `The guest's archive ${what}`, {
    hint: "Nothing was kept; see what tar is in the guest, and do not trust it",
  });

/** Text up to the first NUL. Invalid UTF-8 gets replacement characters. */
function textAt(bytes: Uint8Array, at: number, length: number): string {
  const field = bytes.subarray(at, at + length);
  const end = field.indexOf(0);
  return Buffer.from(end < 0 ? field : field.subarray(0, end)).toString("utf8");
}

/** Octal digits, or GNU's binary numbers. */
function numberAt(block: Uint8Array, at: number, length: number): number {
  const field = block.subarray(at, at + length);
  if (field[0] === 0x80) {
    const value = field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0);
    if (Number.isSafeInteger(value)) return value;
  } else {
    const digits = textAt(block, at, length).trim();
    if (/^[0-7]*$/.test(digits)) return digits === "" ? 0 : Number.parseInt(digits, 8);
  }
  throw broken("has a number that is none");
}

function hasChecksum(block: Uint8Array): boolean {
  const sum = block.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  return numberAt(block, 148, 8) === sum;
}

/** Parses pax records for the next entry: lines `LENGTH KEY=VALUE`. */
function paxRecords(bytes: Buffer): {
  path?: string;
  target?: string;
  size?: number;
  mtime?: number;
} {
  const found: ReturnType<typeof paxRecords> = {};
  for (let at = 0; at < bytes.length; ) {
    const [, digits = ""] = /^(\d{1,6}) /.exec(bytes.toString("latin1", at, at + 8)) ?? [];
    const length = Number(digits);
    const record = bytes.toString("utf8", at + digits.length + 1, at + length);
    const [, key, value] = /^([^=]+)=([^]*)\n$/.exec(record) ?? [];
    if (digits === "" || at + length > bytes.length || key === undefined || value === undefined)
      throw broken("has pax records that are none");
    at += length;
    if (key.startsWith("GNU.sparse")) throw broken("has a file with holes");
    if (key === "path") found.path = value;
    if (key === "linkpath") found.target = value;
    if (key === "mtime") found.mtime = seconds(value);
    if (key === "size") found.size = whole(value);
  }
  return found;
}

function whole(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw broken("has a number that is none");
  return Number(text);
}

function seconds(text: string): number {
  if (!/^-?\d{1,15}(?:\.\d*)?$/.test(text)) throw broken("has a time that is none");
  return Number(text);
}
