import { shown } from "../core/shown.ts";
import type { Input, Output } from "./io.ts";

/**
 * Passes every key to us unchanged, ctrl-c included, until disposed; does nothing when the input is
 * not a terminal.
 */
export function rawMode(input: Input): Disposable {
  if (input.isTTY !== true || input.setRawMode === undefined) return { [Symbol.dispose]() {} };
  input.setRawMode(true);
  return { [Symbol.dispose]: () => void input.setRawMode?.(false) };
}

/** Size of a terminal; zeros for other outputs. */
export const sizeOf = (out: Output): { readonly rows: number; readonly columns: number } => ({
  rows: out.rows ?? 0,
  columns: out.columns ?? 0,
});

/** Writes and waits while the reader of the stream is behind. */
export function write(out: Output, data: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    out.write(data, (error) => {
      if (error === undefined || error === null) resolve();
      else reject(error);
    });
  });
}

/**
 * Bytes of a foreign terminal as ours may have them: line feeds, carriage returns, tabs and
 * what can be printed pass; what would steer it is shown, not obeyed. Characters may be cut between
 * calls; the last call ends the text.
 */
export function tamed(): (data?: Uint8Array) => Uint8Array {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return (data) => {
    const text = data === undefined ? decoder.decode() : decoder.decode(data, { stream: true });
    // The separators of `split` are at odd indexes.
    const parts = text
      .split(/([\n\r\t])/)
      .map((part, i) => (i % 2 === 1 ? part : shown(part, Infinity)));
    return Buffer.from(parts.join(""));
  };
}

/** Says that there is nothing: on a terminal, where an empty answer looks like a mistake. */
export function sayNothing(out: Output, text: string): void {
  if (out.isTTY === true) out.write(`${text} yet\n`);
}
