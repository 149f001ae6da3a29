import type { IncomingMessage } from "node:http";

/**
 * A request's body; undefined when it has more bytes than it may, ends before its end, or takes
 * longer than `ms`, which cuts it.
 */
export async function readBody(
  request: IncomingMessage,
  most: number,
  ms: number,
): Promise<Uint8Array | undefined> {
  if (Number(request.headers["content-length"] ?? 0) > most) return undefined;
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const late = setTimeout(() => request.destroy(), ms);
  try {
    for await (const chunk of request as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > most) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined;
  } finally {
    clearTimeout(late);
  }
  return Buffer.concat(chunks);
}
