import type { Random } from "./random.ts";

type Place = { readonly holder: Record<string, unknown> | unknown[]; readonly key: string };

const strange: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1,
  1.5,
  255,
  256,
  65535,
  65536,
  4294967295,
  4294967296,
  9007199254740992,
  1e300,
  "",
  " ",
  "\u0000",
  "\u001b[2J",
  "a".repeat(300),
  "ü",
  "\ud800",
  "__proto__",
  "constructor",
  "1",
  "true",
  "/",
  "::",
  "0.0.0.0/0",
  [],
  {},
  [[]],
  [null],
  { a: 1 },
];

/** Every place of a tree where a value stands. */
function places(value: unknown, found: Place[] = []): Place[] {
  if (typeof value !== "object" || value === null) return found;
  for (const key of Object.keys(value)) {
    found.push({ holder: value as Record<string, unknown>, key });
    places((value as Record<string, unknown>)[key], found);
  }
  return found;
}

const read = ({ holder, key }: Place): unknown => (holder as Record<string, unknown>)[key];

/** JSON that may follow one byte which chooses a parser. */
function parse(
  bytes: Uint8Array,
): { readonly head: Uint8Array; readonly value: unknown } | undefined {
  for (const skip of [0, 1]) {
    try {
      const value = JSON.parse(Buffer.from(bytes.subarray(skip)).toString("utf8")) as unknown;
      if (typeof value === "object" && value !== null)
        return { head: bytes.subarray(0, skip), value };
    } catch {
      // Not JSON from here on.
    }
  }
  return undefined;
}

/**
 * Changes the tree rather than the text, so that it stays JSON; undefined when the input is none.
 */
export function mutateJson(
  bytes: Uint8Array,
  random: Random,
  other: Uint8Array,
  words: readonly string[],
): Uint8Array | undefined {
  const parsed = parse(bytes);
  if (parsed === undefined) return undefined;
  const all = places(parsed.value);
  if (all.length === 0 || all.length > 5000) return undefined;
  const place = random.pick(all);
  const { holder, key } = place;
  const put = (value: unknown): void => {
    Object.defineProperty(holder, key, {
      value,
      enumerable: true,
      writable: true,
      configurable: true,
    });
  };
  switch (random.below(8)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete holder[key];
      break;
    case 1:
      if (Array.isArray(holder))
        holder.push(...random.list(1 + random.below(3), () => read(place)));
      else Object.assign(holder, { [random.pick([...words, "x", "__proto__"])]: read(place) });
      break;
    case 2:
      put(read(random.pick(all)));
      break;
    case 3: {
      const lent = places(parse(other)?.value);
      put(lent.length === 0 ? null : read(random.pick(lent)));
      break;
    }
    case 4:
      put(words.length === 0 ? "" : random.pick(words));
      break;
    case 5: {
      const now = read(place);
      put(typeof now === "string" ? changeText(now, random, words) : [now]);
      break;
    }
    default:
      put(random.pick(strange));
  }
  // A value put inside itself has no end.
  try {
    return new Uint8Array(Buffer.concat([parsed.head, Buffer.from(JSON.stringify(parsed.value))]));
  } catch {
    return undefined;
  }
}

function changeText(text: string, random: Random, words: readonly string[]): string {
  const at = random.below(text.length + 1);
  const rest = text.slice(at + random.below(2));
  const between = random.pick(["", ".", ":", "-", "/", "\n", "}", "0", "\u202e", ...words]);
  return `${text.slice(0, at)}${between}${rest}`;
}
