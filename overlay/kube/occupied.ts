import { type Cidr, familyOf, lengthOf, rangeOf } from "../../core/address.ts";

/**
 * Networks by who has them. Most have one length, so that a look costs one step for each length
 * that occurs.
 */
export class Occupied {
  /** By family and length, then by first address. */
  readonly #lengths = new Map<string, Map<bigint, string>>();

  add(network: Cidr, holder: string): void {
    const kind = kindOf(familyOf(network), lengthOf(network));
    const holders = this.#lengths.get(kind) ?? new Map<bigint, string>();
    this.#lengths.set(kind, holders.set(rangeOf(network).first, holder));
  }

  delete(network: Cidr): void {
    const kind = kindOf(familyOf(network), lengthOf(network));
    const holders = this.#lengths.get(kind);
    holders?.delete(rangeOf(network).first);
    if (holders?.size === 0) this.#lengths.delete(kind);
  }

  /** Whoever has addresses of a network. */
  holders(network: Cidr): string[] {
    const { first, last } = rangeOf(network);
    const family = familyOf(network);
    const bits = family === 4 ? 32 : 128;
    return [...this.#lengths].flatMap(([kind, holders]) => {
      const [of, text] = kind.split("/");
      if (Number(of) !== family) return [];
      const length = Number(text);
      if (length > lengthOf(network))
        return [...holders].filter(([at]) => at >= first && at <= last).map(([, who]) => who);
      const shift = BigInt(bits - length);
      const holder = holders.get((first >> shift) << shift);
      return holder === undefined ? [] : [holder];
    });
  }
}

const kindOf = (family: 4 | 6, length: number): string => `${family}/${length}`;
