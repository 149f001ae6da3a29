/**
 * Lists and objects in each other: no configuration has ten, and the plugin's engine has stack for
 * more than these.
 */
export const nestingLimit = 2048;

const quote = 0x22;
const backslash = 0x5c;
const bracket = { opens: 0x5b, closes: 0x5d } as const;
const brace = { opens: 0x7b, closes: 0x7d } as const;

/**
 * Whether JSON is nested deeper than the limit: its parser would use up the stack of the plugin's
 * engine.
 */
export function isNestedTooDeep(bytes: Uint8Array): boolean {
  // Byte by byte only where it may be: the engine takes long for each, and a runtime waits.
  return bytes.length > nestingLimit && opensMany(bytes) && deepest(bytes) > nestingLimit;
}

/** Whether lists and objects are begun more often than the limit, side by side or not. */
function opensMany(bytes: Uint8Array): boolean {
  let count = 0;
  for (const { opens } of [bracket, brace])
    for (let at = bytes.indexOf(opens); at >= 0; at = bytes.indexOf(opens, at + 1))
      if (++count > nestingLimit) return true;
  return false;
}

/** The greatest depth, counted up to just above the limit. */
function deepest(bytes: Uint8Array): number {
  let depth = 0;
  let most = 0;
  let quoted = false;
  for (let i = 0; i < bytes.length && most <= nestingLimit; i++) {
    const byte = bytes[i];
    if (byte === quote) quoted = !quoted;
    else if (quoted) i += byte === backslash ? 1 : 0;
    else if (byte === bracket.opens || byte === brace.opens) most = Math.max(most, ++depth);
    else if (byte === bracket.closes || byte === brace.closes) depth--;
  }
  return most;
}
