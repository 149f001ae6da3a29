import { shown } from "../../core/shown.ts";

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
 * A foreign terminal within ours, for interactive use. Sequences that draw text, which a shell or a
 * line editor needs, pass; sequences that reach beyond the screen — titles, clipboards, queries —
 * are shown as text, not obeyed. Sequences and characters may be cut between calls; the last call
 * ends the text.
 */
export function screen(): (data?: Uint8Array) => Uint8Array {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  return (data) => {
    const text =
      rest + (data === undefined ? decoder.decode() : decoder.decode(data, { stream: true }));
    rest = data === undefined ? "" : (begun.exec(text)?.[0] ?? "");
    // The separators of `split` are at odd indexes.
    const parts = text
      .slice(0, text.length - rest.length)
      .split(drawing)
      .map((part, i) => (i % 2 === 0 ? shown(part, Infinity) : part === question ? "" : part));
    return Buffer.from(parts.join(""));
  };
}
