/**
 * Finds record numbers by hash: open addressing with linear probing, in one flat array of (hash,
 * record + 1) pairs, 0 meaning empty. Unlike a V8 Map, which throws at 2^24 + 1 entries, it ends
 * with memory only, and it costs 11 to 21 bytes a record.
 */
export class HashIndex {
  #slots = new Uint32Array(2 * 16);
  #mask = 15;
  #count = 0;

  /** The record with this hash for which `same` holds; -1 when there is none. */
  find(hash: number, same: (record: number) => boolean): number {
    const slots = this.#slots;
    for (let i = hash & this.#mask; ; i = (i + 1) & this.#mask) {
      const record = (slots[2 * i + 1] as number) - 1;
      if (record < 0) return -1;
      if (slots[2 * i] === hash >>> 0 && same(record)) return record;
    }
  }

  add(hash: number, record: number): void {
    if (4 * (this.#count + 1) > 3 * (this.#mask + 1)) this.#grow();
    this.#place(hash >>> 0, record + 1);
    this.#count++;
  }

  /** Puts another record with the same hash in the place of one. */
  replace(hash: number, record: number, by: number): void {
    this.#slots[2 * this.#slotOf(hash, record) + 1] = by + 1;
  }

  remove(hash: number, record: number): void {
    const slots = this.#slots;
    let hole = this.#slotOf(hash, record);
    // Entries after the hole move up to it unless that would put them before the slot their hash
    // asks for.
    for (let i = (hole + 1) & this.#mask; slots[2 * i + 1] !== 0; i = (i + 1) & this.#mask) {
      const home = (slots[2 * i] as number) & this.#mask;
      if (((i - home) & this.#mask) < ((i - hole) & this.#mask)) continue;
      slots[2 * hole] = slots[2 * i] as number;
      slots[2 * hole + 1] = slots[2 * i + 1] as number;
      hole = i;
    }
    slots[2 * hole + 1] = 0;
    this.#count--;
  }

  #slotOf(hash: number, record: number): number {
    for (let i = hash & this.#mask; ; i = (i + 1) & this.#mask) {
      const entry = this.#slots[2 * i + 1];
      if (entry === record + 1) return i;
      if (entry === 0) throw new RangeError(`Record ${record} is not in the index`);
    }
  }

  #place(hash: number, entry: number): void {
    let i = hash & this.#mask;
    while (this.#slots[2 * i + 1] !== 0) i = (i + 1) & this.#mask;
    this.#slots[2 * i] = hash;
    this.#slots[2 * i + 1] = entry;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Uint32Array(2 * old.length);
    this.#mask = 2 * this.#mask + 1;
    for (let i = 0; i < old.length; i += 2) {
      if (old[i + 1] !== 0) this.#place(old[i] as number, old[i + 1] as number);
    }
  }
}

/** Spreads 32 bits (the finish of MurmurHash3), for keys that come in sequence. */
function mix(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Hash of a number or bigint of any length. */
export function hashOffset(offset: number | bigint): number {
  if (typeof offset === "number") return mix(offset);
  let hash = 0;
  for (let rest = offset; ; rest >>= 32n) {
    hash = mix(hash ^ Number(BigInt.asUintN(32, rest)));
    if (rest < 4294967296n) return hash;
  }
}

/** Hash of a string (FNV-1a over its UTF-16 units, then mixed). */
export function hashText(text: string, seed: number): number {
  let hash = 0x811c9dc5 ^ seed;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return mix(hash);
}
