/** What begins a connection, and is followed by frames: RFC 9113 section 3.4. */
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/** Of a frame: length (3), type, flags, stream (4): RFC 9113 section 4.1. */
const headerLength = 9;
/** The type of frame that begins a request. */
const headers = 1;

/**
 * Whether what strace saw written (a call's arguments, whose strings may be cut short) begins a
 * request of HTTP/2. What does not goes on with one, answers the other end's own words, or asks
 * whether it is there.
 */
export function beginsRequest(args: string): boolean {
  const written = Array.from(args.matchAll(/"((?:[^"\\]|\\.)*)"/g), ([, text = ""]) =>
    bytesOf(text),
  );
  let rest = written.join("");
  if (rest.startsWith(preface)) rest = rest.slice(preface.length);
  while (rest.length >= headerLength) {
    if (rest.charCodeAt(3) === headers) return true;
    const [a, b, c] = [0, 1, 2].map((at) => rest.charCodeAt(at)) as [number, number, number];
    rest = rest.slice(headerLength + (a << 16) + (b << 8) + c);
  }
  return false;
}

const letters: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", v: "\v", f: "\f" };

/** A string as C writes it, one character a byte. */
const bytesOf = (text: string): string =>
  text.replaceAll(/\\([0-7]{1,3}|.)/g, (_, escaped: string) =>
    /^[0-7]/.test(escaped)
      ? String.fromCharCode(Number.parseInt(escaped, 8))
      : (letters[escaped] ?? escaped),
  );
