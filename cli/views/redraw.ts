import type { Output } from "../io.ts";

const home = "\u001b[H";
const clearLine = "\u001b[K";
const clearBelow = "\u001b[J";

/**
 * Shows texts one after the other: each in the place of the one before on a terminal, where it is
 * cut to what the terminal holds; below it, with an empty line between, anywhere else.
 */
export function redrawing(out: Output): (text: string) => void {
  if (out.isTTY !== true) return (text) => void out.write(`${text}\n`);
  let begun = false;
  return (text) => {
    const { rows = 24, columns = 80 } = out;
    const lines = text.trimEnd().split("\n");
    // The last row is for what does not fit, and for the cursor.
    const shown = lines.slice(0, rows - 2).map((line) => line.slice(0, columns));
    const more = lines.length - shown.length;
    if (more > 0) shown.push(`… ${more} more lines`);
    // Earlier output stays above, scrolled out of the way.
    if (!begun) out.write("\n".repeat(rows - 1));
    begun = true;
    out.write(`${home}${shown.map((line) => `${line}${clearLine}\n`).join("")}${clearBelow}`);
  };
}
