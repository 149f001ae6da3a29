import { isPodnetError, type ErrorCode } from "../../../core/errors.ts";
import type { Random } from "./random.ts";

/** Where a length stands in an input, so that it can be made to lie. */
export interface LengthField {
  readonly at: number;
  readonly bytes: 2 | 4;
  readonly littleEndian: boolean;
}

/** One parser of foreign bytes, and how to feed it. */
export interface Target {
  readonly name: string;
  /** Files whose branches count, from the checkout's top. */
  readonly files: readonly string[];
  /**
   * Functions of those files that read nothing foreign (encoders, builders): they do not count, nor
   * what is in them.
   */
  readonly except?: readonly string[];
  /** In files that do other things as well: the functions that read, which alone count. */
  readonly only?: readonly string[];
  /**
   * Files that the parser calls whose steps another target judges: two that look closer from some
   * length on, one upon the other, would seem out of proportion together.
   */
  readonly apart?: readonly string[];
  /** Inputs to begin with; those in test/fuzz/corpus/NAME come on top. */
  readonly seeds: readonly Uint8Array[];
  /** What the format is made of, for mutations to put in. */
  readonly words?: readonly string[];
  /** An input by the format's own grammar. */
  readonly generate?: (random: Random) => Uint8Array;
  readonly lengths?: (bytes: Uint8Array) => LengthField[];
  /** Longest input, bytes; 2 KiB unless given. */
  readonly longest?: number;
  /**
   * Feeds the parser and checks what it gives. Returns when the parser ended in a value or in a
   * refusal it may give; whatever it throws is a bug found.
   */
  readonly run: (bytes: Uint8Array) => void;
}

/** The parser's value; undefined when it refused with one of the codes it may refuse with. */
export function valueOf<T>(codes: readonly ErrorCode[], parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (!isPodnetError(error, ...codes)) throw error;
    checkRefusal(error.message);
    return undefined;
  }
}

/** A message may quote the input, escaped and bounded. */
function checkRefusal(message: string): void {
  if (message.length > 1000) throw new Error(`A refusal of ${message.length} characters`);
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f-\u009f]/.test(message))
    throw new Error(`A refusal with raw control characters: ${JSON.stringify(message)}`);
}

const encoder = new TextEncoder();
export const utf8 = (text: string): Uint8Array => encoder.encode(text);
export const json = (value: unknown): Uint8Array => utf8(JSON.stringify(value));
/** Text of an input, as a file read with "utf8" gives it. */
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

/** Several parsers of one kind as one target: the input's first byte chooses. */
export function choosing(
  parsers: readonly ((bytes: Uint8Array) => void)[],
): (bytes: Uint8Array) => void {
  return (bytes) => parsers[(bytes[0] ?? 0) % parsers.length]?.(bytes.subarray(1));
}

/** An input for the parser `index` of `choosing`. */
export const chosen = (index: number, bytes: Uint8Array): Uint8Array =>
  Uint8Array.of(index, ...bytes);
