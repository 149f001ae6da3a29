/**
 * Characters that must not reach a log, a message or a terminal unchanged, since they control, hide
 * or reverse their surroundings: C0 and C1 controls, line separators, characters without width,
 * Bidi_Control (Unicode 15), and lone surrogates, which are what \ud800-\udfff matches with the
 * flag u.
 */
const unsafe =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]/gu;

const escape = (text: string): string =>
  text.replace(unsafe, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * Cuts a text to `limit` characters, never through a surrogate pair: gRPC cannot send half of one
 * (encodeURIComponent throws).
 */
export function cutText(text: string, limit: number): string {
  return text.length > limit
    ? `${text.slice(0, limit - 1).replace(/[\ud800-\udbff]$/, "")}…`
    : text;
}

/**
 * Makes any text safe to show: one line, unsafe characters written as `\u001b`, at most `limit`
 * characters. Short safe text is unchanged, however often it goes through.
 */
export function shown(text: string, limit = 4096): string {
  // Cut first: the part of a megabyte that is thrown away must not be searched.
  return cutText(escape(cutText(text, limit)), limit);
}

/** Text of several lines made harmless, as `shown` does. */
export const shownLines = (text: string, limit = 4096): string =>
  cutText(cutText(text, limit).split("\n").map(escape).join("\n"), limit);
