import { usage } from "./usage.ts";

const controls = "@abcdefghijklmnopqrstuvwxyz[\\]^_";

/**
 * The bytes of `ctrl-p,ctrl-q`: keys with a comma between, each one character or `ctrl-` and one.
 * With an empty text no keys detach.
 */
export function keysOf(text: string): readonly number[] {
  if (text === "") return [];
  return text.split(",").map((key) => {
    const control = /^ctrl-(.)$/i.exec(key)?.[1]?.toLowerCase();
    if (control !== undefined && controls.includes(control)) return controls.indexOf(control);
    if (/^[!-~]$/.test(key)) return key.charCodeAt(0);
    throw usage(
      `"${key}" is no key`,
      "Write keys like ctrl-p,ctrl-q: a character, or ctrl- and one of a-z @ [ \\ ] ^ _",
      "--detach-keys",
    );
  });
}

/**
 * Watches typed input for the keys: bytes that may begin them are held back until the next byte
 * decides.
 */
export class DetachWatch {
  readonly #keys: readonly number[];
  #seen = 0;

  constructor(keys: readonly number[]) {
    this.#keys = keys;
  }

  /**
   * Returns the input to pass on, and whether the keys were pressed: then input behind them is
   * ignored.
   */
  feed(typed: Uint8Array): { readonly pass: Uint8Array; readonly detached: boolean } {
    const keys = this.#keys;
    const pass: number[] = [];
    for (const byte of typed) {
      // Bytes held back go out but for what may be a new beginning: of ctrl-p ctrl-p ctrl-q the
      // first is passed on.
      while (this.#seen > 0 && byte !== keys[this.#seen]) {
        const held = keys.slice(0, this.#seen);
        pass.push(keys[0] as number);
        this.#seen = longestStart(keys, held.slice(1));
        pass.push(...held.slice(1, held.length - this.#seen));
      }
      if (byte === keys[this.#seen]) this.#seen++;
      else pass.push(byte);
      if (keys.length > 0 && this.#seen === keys.length) {
        return { pass: Uint8Array.from(pass), detached: true };
      }
    }
    return { pass: Uint8Array.from(pass), detached: false };
  }
}

/** How much of the end of `held` is how `keys` begin. */
function longestStart(keys: readonly number[], held: readonly number[]): number {
  for (let length = held.length; length > 0; length--) {
    if (held.slice(-length).every((key, i) => key === keys[i])) return length;
  }
  return 0;
}
