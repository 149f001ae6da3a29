/** Base64 (RFC 4648, padded) without Buffer, which the plugin's JavaScript engine lacks. */

const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const shape = /^[A-Za-z0-9+/]*={0,2}$/;

const values = new Uint8Array(128);
for (let i = 0; i < digits.length; i++) values[digits.charCodeAt(i)] = i;

/** The bytes; undefined when the text is not base64. */
export function decodeBase64(text: string): Uint8Array | undefined {
  if (text.length % 4 !== 0 || !shape.test(text)) return undefined;
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array((text.length / 4) * 3);
  for (let i = 0, at = 0; i < text.length; i += 4) {
    let bits = 0;
    // "=" has the value 0, and what it makes is cut off.
    for (let k = 0; k < 4; k++) bits = (bits << 6) | (values[text.charCodeAt(i + k)] as number);
    bytes[at++] = bits >> 16;
    bytes[at++] = bits >> 8;
    bytes[at++] = bits;
  }
  return bytes.subarray(0, bytes.length - padding);
}
