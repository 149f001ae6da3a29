import { encodeUtf8 } from "../../core/utf8.ts";

/**
 * Big-endian integers, digits and joining, with nothing but typed arrays: the guest's engine has no
 * Buffer.
 */

export function readU32(bytes: Uint8Array, at: number): number {
  return (
    (((bytes[at] as number) << 24) |
      ((bytes[at + 1] as number) << 16) |
      ((bytes[at + 2] as number) << 8) |
      (bytes[at + 3] as number)) >>>
    0
  );
}

export function writeU32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

export function readU64(bytes: Uint8Array, at: number): bigint {
  const high = readU32(bytes, at);
  const low = BigInt(readU32(bytes, at + 4));
  return high === 0 ? low : (BigInt(high) << 32n) | low;
}

export function u32Bytes(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  writeU32(bytes, 0, value);
  return bytes;
}

/** The bytes of pairs of hexadecimal digits in lower case, which are checked already. */
export function hexBytes(hex: string): Uint8Array {
  const digits = encodeUtf8(hex);
  const bytes = new Uint8Array(digits.length >> 1);
  for (let i = 0; i < digits.length; i++) {
    const digit = digits[i] as number;
    // "0" is 0x30, and "a" is 0x61.
    bytes[i >> 1] = ((bytes[i >> 1] as number) << 4) | ((digit & 15) + (digit >> 6) * 9);
  }
  return bytes;
}

/** As `hexBytes` reads it. */
export const hexText = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const part of parts) length += part.length;
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export const noBytes = new Uint8Array(0);
