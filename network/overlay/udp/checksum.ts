/** Memory, seen as bytes and as words of four in the machine's order, which is little-endian. */
export interface Buffers {
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
  readonly view: DataView;
}

/** A sum with its carries put back, 16 bits. */
export function folded(sum: number): number {
  const once = (sum & 0xffff) + (sum >>> 16);
  return (once & 0xffff) + (once >>> 16);
}

const swapped = (sum: number): number => ((sum & 0xff) << 8) | (sum >>> 8);

/**
 * The Internet's sum of a stretch of at most 65,535 bytes, as of 16-bit numbers in network order
 * (RFC 1071), not yet complemented. Four bytes at a time, whatever their place: the sum is the same
 * in either order but for a swap at the end.
 */
export function sumOf({ bytes, words }: Buffers, from: number, length: number): number {
  let at = from;
  let left = length;
  let sum = 0;
  if ((at & 1) !== 0 && left > 0) {
    sum += (bytes[at] as number) << 8;
    at++;
    left--;
  }
  if ((at & 2) !== 0 && left > 1) {
    sum += (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
    at += 2;
    left -= 2;
  }
  const end = (at + left) >> 2;
  // If `at` is not aligned here, no whole word is left.
  if ((at & 3) === 0)
    for (let word = at >> 2; word < end; word++) {
      const four = words[word] as number;
      sum += (four & 0xffff) + (four >>> 16);
      at += 4;
      left -= 4;
    }
  if (left > 1) {
    sum += (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
    at += 2;
    left -= 2;
  }
  if (left > 0) sum += bytes[at] as number;
  const whole = folded(sum);
  return (from & 1) === 0 ? swapped(whole) : whole;
}
