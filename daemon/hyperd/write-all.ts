import type { Writable } from "node:stream";
import { guarded } from "../../core/guard.ts";

/**
 * Writes pieces as fast as they are read. A piece that is not read for `ms` calls `cut`, which ends
 * the stream; nothing is written then, nor to one whose reader has gone.
 */
export async function writeAll(
  to: Writable,
  pieces: AsyncIterable<Uint8Array>,
  ms: number,
  cut: () => void,
): Promise<void> {
  for await (const piece of pieces) {
    if (to.destroyed || to.writableEnded) return;
    if (!to.write(piece)) await drained(to, ms, cut);
  }
}

/** Resolves when the stream takes more, or never will again. */
function drained(to: Writable, ms: number, cut: () => void): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(guarded("api", cut), ms).unref();
    const over = (): void => {
      clearTimeout(timer);
      to.off("drain", over);
      to.off("close", over);
      resolve();
    };
    to.once("drain", over);
    to.once("close", over);
    if (to.destroyed) over();
  });
}
