/** What QEMU's parser makes of a stream of JSON: whole values, or complaints in its words. */
export type Parsed =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly description: string };

/**
 * Cuts a stream into JSON values by their brackets, as QEMU does: lines mean nothing, several
 * values may share one, and one that is not closed waits for more. Single quotes are as good as
 * double ones.
 */
export class JsonStream {
  #text = "";

  push(bytes: Uint8Array): Parsed[] {
    this.#text += Buffer.from(bytes).toString("utf8");
    const found: Parsed[] = [];
    for (;;) {
      this.#text = this.#text.trimStart();
      const end = endOfValue(this.#text);
      if (end === undefined) return found;
      found.push(parse(this.#text.slice(0, end)));
      this.#text = this.#text.slice(end);
    }
  }
}

/** Where the first value ends; undefined while it has not. */
function endOfValue(text: string): number | undefined {
  let depth = 0;
  let quote: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const each = text[at] as string;
    if (quote !== undefined) {
      if (each === "\\") at++;
      else if (each === quote) {
        quote = undefined;
        if (depth === 0) return at + 1;
      }
    } else if (each === '"' || each === "'") quote = each;
    else if ("{[".includes(each)) depth++;
    else if ("}]".includes(each)) {
      depth--;
      if (depth <= 0) return at + 1;
    } else if (depth === 0 && /\s/.test(each)) return at;
  }
  return undefined;
}

const keyword = /(?<=^|[\s:,[{])(?!(?:true|false|null)\b)[A-Za-z_]+/;

function parse(text: string): Parsed {
  const strings = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g;
  try {
    const doubled = text.replace(strings, (one) =>
      one.startsWith("'") ? `"${one.slice(1, -1).replaceAll('"', '\\"')}"` : one,
    );
    return { kind: "value", value: JSON.parse(doubled) };
  } catch {
    const [wrong] = keyword.exec(text.replace(strings, '""')) ?? [];
    const why = wrong === undefined ? "expecting value" : `invalid keyword '${wrong}'`;
    return { kind: "error", description: `JSON parse error, ${why}` };
  }
}
