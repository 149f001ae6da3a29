import { shown } from "../core/shown.ts";

/** Cursor, erasing, colours: all they reach is the screen, and nothing answers them. */
const drawing = /(\u001b\[[0-9;]{0,20}[@A-HJKPXm]|\u001b\[6n|[\n\r\t\b])/;
/** The beginning of one, cut off by the end of what has come so far. */
const begun = /\u001b(?:\[[0-9;]{0,20})?$/;
/**
 * Where the cursor is: the terminal's answer would be typed into the guest. Shells ask at each
 * prompt.
 */
const question = "\u001b[6n";

/**
 * Somebody else's terminal within ours, for typing in: text is drawn where it is to be, as a shell
 * or an editor of lines wants it; what reaches beyond the screen — titles, clipboards, questions —
 * is shown, not obeyed. Sequences and characters may be cut between calls; the last call ends the
 * text.
 */
export function screen(): (data?: Uint8Array) => Uint8Array {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  return (data) => {
    const text =
      rest + (data === undefined ? decoder.decode() : decoder.decode(data, { stream: true }));
    rest = data === undefined ? "" : (begun.exec(text)?.[0] ?? "");
    // What was split at comes back at odd places.
    const parts = text
      .slice(0, text.length - rest.length)
      .split(drawing)
      .map((part, i) => (i % 2 === 0 ? shown(part, Infinity) : part === question ? "" : part));
    return Buffer.from(parts.join(""));
  };
}
