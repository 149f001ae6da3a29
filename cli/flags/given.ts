/**
 * The flags of a command line, by the fields of the request that they gave a value. An error of
 * podnetd names a field; with it people see the flag that they typed.
 */
export class GivenFlags {
  readonly #byField = new Map<string, string>();

  /** Records that a flag gave a field its value, with all that is below the field. */
  add(field: string, flag: string): void {
    this.#byField.set(field, flag);
  }

  /** No flag was recorded: the command takes its fields from its flags as they are named. */
  get isEmpty(): boolean {
    return this.#byField.size === 0;
  }

  /**
   * The flag that gave a field its value: the field itself, else what it is a part of, else the
   * only flag that gave a part of it.
   */
  flagOf(field: string): string | undefined {
    for (let at = field; at !== ""; at = parentOf(at)) {
      const flag = this.#byField.get(at);
      if (flag !== undefined) return flag;
    }
    const below = [...this.#byField].filter(([key]) => /^[.[]/.test(key.slice(field.length)));
    const flags = new Set(below.flatMap(([key, flag]) => (key.startsWith(field) ? [flag] : [])));
    return flags.size === 1 ? [...flags][0] : undefined;
  }
}

/** `interfaces[0].mtu`, `interfaces[0]`, `interfaces`, and at last nothing. */
const parentOf = (field: string): string =>
  field.slice(0, Math.max(field.lastIndexOf("."), field.lastIndexOf("["), 0));

/** Puts the flags of a command line into a request, and records the field of each. */
export class FlagWriter<Flags extends object> {
  readonly #flags: Flags;
  readonly #given: GivenFlags;

  constructor(flags: Flags, given: GivenFlags) {
    this.#flags = flags;
    this.#given = given;
  }

  /** Puts a flag into its fields, if it is given. */
  put<Key extends keyof Flags & string>(
    key: Key,
    field: string | readonly string[],
    set: (value: NonNullable<Flags[Key]>) => void,
  ): void {
    const value = this.#flags[key];
    if (value === undefined || value === null) return;
    for (const each of [field].flat()) this.#given.add(each, nameOf(key, value));
    set(value);
  }

  /** Appends the values of a flag that may be repeated to the entries that a list has. */
  append<Key extends keyof Flags & string, Entry>(
    key: Key & (NonNullable<Flags[Key]> extends readonly string[] ? Key : never),
    field: string,
    list: Entry[],
    parse: (text: string) => Entry,
  ): void {
    for (const text of (this.#flags[key] ?? []) as readonly string[]) {
      this.#given.add(`${field}[${list.length}]`, `${nameOf(key, text)} ${text}`);
      list.push(parse(text));
    }
  }
}

/** `dnsSearch` is `--dns-search`; `nat` is `--no-nat` when it is false. */
function nameOf(key: string, value: unknown): string {
  const words = key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return value === false ? `--no-${words}` : `--${words}`;
}
