import { isPodnetError, PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { nearest } from "../core/nearest.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * A value of a file together with its path there, such as `rules[2].ports[0]`, which every error
 * names. All methods throw `INVALID_ARGUMENT`, or `UNKNOWN_FIELD`.
 */
export class Node {
  readonly value: unknown;
  /** Empty for the whole file. */
  readonly path: string;

  constructor(value: unknown, path = "") {
    this.value = value;
    this.path = path;
  }

  /** The error that the value is not what was expected. */
  wrong(expected: string, hint: string): PodnetError {
    const what = this.path === "" ? "The policy" : `"${printable(this.path)}"`;
    return new PodnetError("INVALID_ARGUMENT", `${what} is not ${expected}`, {
      hint,
      ...(this.path === "" ? {} : { field: printable(this.path) }),
    });
  }

  /** An object with no other fields than those. */
  object<Key extends string>(keys: readonly Key[]): { readonly [key in Key]?: Node } {
    const fields = this.anyObject();
    for (const key of Object.keys(fields))
      if (!keys.includes(key as Key)) throw this.#unknown(key, keys);
    return Object.fromEntries(
      keys.flatMap((key) => {
        const node = Object.hasOwn(fields, key) ? this.at(key, fields) : undefined;
        // YAML's `key:` without a value is null, and means that the field is absent.
        return node === undefined || node.value === null ? [] : [[key, node]];
      }),
    ) as { readonly [key in Key]?: Node };
  }

  /** An object's fields, whatever their names. */
  anyObject(): Fields {
    const { value } = this;
    if (typeof value === "object" && value !== null && !Array.isArray(value))
      return value as Fields;
    throw this.wrong("an object", "Write fields with their values, such as name: web");
  }

  /** One field of an object. */
  at(key: string, fields: Fields = this.anyObject()): Node {
    const value = Object.hasOwn(fields, key) ? fields[key] : undefined;
    return new Node(value, this.path === "" ? key : `${this.path}.${key}`);
  }

  /** The items of a list with at least one and at most `most`. */
  list(most: number, least = 0): readonly Node[] {
    const { value } = this;
    if (!Array.isArray(value))
      throw this.wrong("a list", "Write [ONE, TWO], or a line with - each");
    if (value.length > most)
      throw this.wrong(`a list of ${most} at most`, `It has ${value.length}: divide it`);
    if (value.length < least)
      throw this.wrong("a list with something in it", "Leave the field out, or name at least one");
    return value.map((item, i) => new Node(item, `${this.path}[${i}]`));
  }

  /** Text of one line. */
  text(most = 253): string {
    const { value } = this;
    if (typeof value !== "string")
      throw this.wrong("text", "Write text; put quotes around numbers, true and false");
    if (value.length > most)
      throw this.wrong(`text of ${most} characters at most`, `It has ${value.length}: shorten it`);
    return value;
  }

  /** One of some words. */
  word<Word extends string>(words: readonly Word[]): Word {
    const text = this.text();
    const found = words.find((word) => word === text);
    if (found !== undefined) return found;
    const meant = nearest(text, words);
    throw this.wrong(
      `one of ${words.join(", ")}`,
      meant === undefined ? `Write one of ${words.join(", ")}` : `Did you mean ${meant}?`,
    );
  }

  /** Labels: text by text. */
  labels(): Readonly<Record<string, string>> {
    const fields = this.anyObject();
    return Object.fromEntries(
      Object.keys(fields).map((key) => [key, this.at(key, fields).text()] as const),
    );
  }

  /** What a parser makes of the text; its error says where the text stands. */
  parsed<Value>(parse: (text: string, field: string) => Value): Value {
    const text = this.text();
    try {
      return parse(text, printable(this.path));
    } catch (thrown) {
      throw isPodnetError(thrown) ? thrown.with({ field: printable(this.path) }) : thrown;
    }
  }

  #unknown(key: string, keys: readonly string[]): PodnetError {
    const meant = nearest(key, keys);
    const { path } = this.at(key);
    return new PodnetError("UNKNOWN_FIELD", `Field "${printable(path)}" does not exist`, {
      field: printable(path),
      hint: meant === undefined ? `Fields here are ${keys.join(", ")}` : `Write ${meant}`,
    });
  }
}
