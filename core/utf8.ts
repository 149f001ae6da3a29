/** UTF-8 both ways without TextEncoder, which the guest's JavaScript engine lacks. */

const isAscii = /^[\u0000-\u007f]*$/;
/** Longest text made in one call: arguments go over the stack. */
const textChunk = 4096;

/**
 * Both ways for text that is ASCII, as nearly all is; undefined for any other. The agent brings its
 * own (guest-init/agent/native/engine.c): in its engine these take twenty times as long.
 */
const {
  asciiBytes = (text: string): Uint8Array | undefined => {
    if (!isAscii.test(text)) return undefined;
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  },
  asciiText = (bytes: Uint8Array): string | undefined => {
    if (bytes.length > textChunk) return undefined;
    const text = String.fromCharCode.apply(null, bytes as unknown as number[]);
    return isAscii.test(text) ? text : undefined;
  },
} = globalThis as {
  asciiBytes?: (text: string) => Uint8Array | undefined;
  asciiText?: (bytes: Uint8Array) => string | undefined;
};

/** Encodes text; lone surrogates become U+FFFD, as TextEncoder does. */
export const encodeUtf8 = (text: string): Uint8Array => asciiBytes(text) ?? encodeAny(text);

/** Decodes bytes; every malformed sequence becomes U+FFFD, never an error. */
export const decodeUtf8 = (bytes: Uint8Array): string => asciiText(bytes) ?? decodeAny(bytes);

function encodeAny(text: string): Uint8Array {
  const out: number[] = [];
  for (const char of text) {
    let point = char.codePointAt(0) as number;
    if (point >= 0xd800 && point <= 0xdfff) point = 0xfffd;
    if (point < 0x80) out.push(point);
    else if (point < 0x800) out.push(0xc0 | (point >> 6), 0x80 | (point & 63));
    else if (point < 0x10000)
      out.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
    else
      out.push(
        0xf0 | (point >> 18),
        0x80 | ((point >> 12) & 63),
        0x80 | ((point >> 6) & 63),
        0x80 | (point & 63),
      );
  }
  return Uint8Array.from(out);
}

function decodeAny(bytes: Uint8Array): string {
  const chunks: string[] = [];
  let points: number[] = [];
  const flush = (): void => {
    chunks.push(String.fromCodePoint(...points));
    points = [];
  };
  for (let i = 0; i < bytes.length; ) {
    const first = bytes[i] as number;
    const need =
      first < 0x80
        ? 0
        : first < 0xc2
          ? -1
          : first < 0xe0
            ? 1
            : first < 0xf0
              ? 2
              : first < 0xf5
                ? 3
                : -1;
    let point = need === 0 ? first : need === 1 ? first & 31 : need === 2 ? first & 15 : first & 7;
    let used = 1;
    let valid = need >= 0;
    for (let k = 1; valid && k <= need; k++) {
      const next = bytes[i + k];
      // The second byte is bounded further: no overlong forms, no surrogates, nothing above
      // U+10FFFF.
      const low = k > 1 ? 0x80 : first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
      const high = k > 1 ? 0xbf : first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
      if (next === undefined || next < low || next > high) valid = false;
      else {
        point = (point << 6) | (next & 63);
        used++;
      }
    }
    points.push(valid ? point : 0xfffd);
    i += used;
    if (points.length >= textChunk) flush();
  }
  flush();
  return chunks.join("");
}
