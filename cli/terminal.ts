import type { Input, Output } from "./io.ts";

/** Hands every key to us unchanged, ctrl-c included, until disposed; does nothing when it is no terminal. */
export function rawMode(input: Input): Disposable {
  if (input.isTTY !== true || input.setRawMode === undefined) return { [Symbol.dispose]() {} };
  input.setRawMode(true);
  return { [Symbol.dispose]: () => void input.setRawMode?.(false) };
}

/** Size of a terminal; zeros when it is none. */
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
