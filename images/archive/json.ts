import { quoted, unreadable } from "../unreadable.ts";
import type { StoredFiles } from "./stored-files.ts";

/** Bytes that a manifest or configuration may have. */
const mostJson = 4 * 2 ** 20;

/** The bytes of a small file of an image; undefined when there is none. */
export async function smallFile(
  stored: StoredFiles,
  name: string,
): Promise<Uint8Array | undefined> {
  const file = await stored.open(name);
  if (file === undefined) return undefined;
  if (file.bytes > mostJson) throw unreadable(`The image's file ${quoted(name)} is too large`);
  const parts: Uint8Array[] = [];
  for await (const part of file.read()) parts.push(part);
  return Buffer.concat(parts);
}

/** A value of a JSON document, with the document's name and the way to it, for errors. */
export class Json {
  readonly #value: unknown;
  readonly where: string;

  constructor(value: unknown, where: string) {
    this.#value = value;
    this.where = where;
  }

  static of(bytes: Uint8Array, where: string): Json {
    try {
      return new Json(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)), where);
    } catch {
      throw unreadable(`${where} is no JSON`);
    }
  }

  /** A member of an object; undefined where it is absent or null. */
  get(name: string): Json | undefined {
    const record = this.#object;
    const value: unknown = Object.hasOwn(record, name) ? record[name] : undefined;
    return value === undefined || value === null
      ? undefined
      : new Json(value, `${this.where}, ${name}`);
  }

  need(name: string): Json {
    const found = this.get(name);
    if (found !== undefined) return found;
    throw unreadable(`${this.where} has no ${name}`);
  }

  get text(): string {
    if (typeof this.#value === "string") return this.#value;
    throw this.#no("a text");
  }

  get count(): number {
    if (typeof this.#value === "number" && Number.isSafeInteger(this.#value) && this.#value >= 0)
      return this.#value;
    throw this.#no("a count");
  }

  get items(): Json[] {
    if (Array.isArray(this.#value))
      return this.#value.map((each, i) => new Json(each, `${this.where}[${i}]`));
    throw this.#no("a list");
  }

  /** Members of an object, without those that are null. */
  get entries(): [string, Json][] {
    const value = this.#object;
    return Object.keys(value).flatMap((name) => {
      const member = this.get(name);
      return member === undefined ? [] : [[name, member]];
    });
  }

  get texts(): string[] {
    return this.items.map(({ text }) => text);
  }

  get #object(): Record<string, unknown> {
    const record = this.#value;
    if (typeof record === "object" && record !== null && !Array.isArray(record))
      return record as Record<string, unknown>;
    throw this.#no("an object");
  }

  #no(what: string) {
    return unreadable(`${this.where} is not ${what}`);
  }
}
