/** Deepest nesting of lists and objects in a message. The protocol's own messages have 4. */
export const jsonDepthLimit = 32;

const quote = 0x22;
const backslash = 0x5c;
const opening: ReadonlySet<number> = new Set([0x5b, 0x7b]);
// "]" and "}".
const closers: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/**
 * Lists and objects that a JSON text opens, at most: those in strings count. A message with as few
 * as the limit is not deep, as nearly all are. The agent brings its own
 * (guest-init/agent/native/engine.c).
 */
export const {
  countOpeners = (bytes: Uint8Array): number => {
    let count = 0;
    for (const byte of bytes) if (opening.has(byte)) count++;
    return count;
  },
} = globalThis as { countOpeners?: (bytes: Uint8Array) => number };

/**
 * Whether lists and objects are nested deeper than `limit` in a JSON text. The guest's engine
 * parses by recursion: 100,000 brackets use up its stack, which ends the agent's process. Text that
 * is not JSON gets any answer.
 */
export function isDeeperThan(text: string, limit = jsonDepthLimit): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) {
      at = endOfString(text, at);
      if (at < 0) return false;
    } else if (opening.has(code)) {
      if (++depth > limit) return true;
    } else if (closers.has(code)) depth--;
  }
  return false;
}

/** Position of the quote that ends the string which begins at `start`; -1 when there is none. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text.charCodeAt(at - 1 - escapes) === backslash) escapes++;
    if (escapes % 2 === 0) return at;
  }
  return -1;
}
