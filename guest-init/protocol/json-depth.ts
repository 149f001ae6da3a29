/** Deepest nesting of lists and objects in a message. The protocol's own messages have 4. */
export const jsonDepthLimit = 32;

const quote = 0x22;
const backslash = 0x5c;
/** Text with as few of these is not deep: nearly all is, and the engine counts them fast. */
const openers = ["[", "{"] as const;
const opening: ReadonlySet<number> = new Set(openers.map((opener) => opener.charCodeAt(0)));
// "]" and "}".
const closers: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/**
 * Whether lists and objects are nested deeper than `limit` in a JSON text. The guest's engine
 * parses by recursion: 100,000 brackets use up its stack, which ends the agent's process. Text that
 * is not JSON gets any answer.
 */
export function isDeeperThan(text: string, limit = jsonDepthLimit): boolean {
  if (openers.reduce((count, opener) => count + text.split(opener).length - 1, 0) <= limit) {
    return false;
  }
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
