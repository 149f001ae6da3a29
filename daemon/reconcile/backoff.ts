/**
 * How long to wait between attempts at what fails: doubled from the first to the longest,
 * milliseconds.
 */
export interface Backoff {
  readonly firstMs: number;
  readonly longestMs: number;
}

/** The most by which jitter shortens a delay, as a share of it. */
const jitter = 0.2;

/**
 * Pause before the next attempt after a number of failures in a row, milliseconds. Shortened by
 * jitter, so that keys which failed together are not all retried together. The jitter is drawn from
 * key and count: a replayed history waits as the recorded one did. Pure.
 */
export function backoffMs({ firstMs, longestMs }: Backoff, failures: number, key: string): number {
  const doubled = Math.min(longestMs, firstMs * 2 ** (failures - 1));
  return Math.round(doubled * (1 - jitter * drawOf(`${key} ${failures}`)));
}

/** From 0 to 1, by the text alone (FNV-1a). */
function drawOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash >>> 0) / 2 ** 32;
}
