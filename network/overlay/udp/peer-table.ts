/**
 * Which host has which part of the overlay: by longest prefix, whatever the number of hosts.
 * Addresses are numbers of 32 bits.
 */
export class PeerTable {
  /** By prefix length, the longest first: network to host. */
  readonly #lengths: { readonly mask: number; readonly hosts: Map<number, number> }[] = [];
  #lastAddress = -1;
  #lastHost: number | undefined;

  /** `host` comes back as it is given. */
  set(network: number, length: number, host: number): void {
    const mask = maskOf(length);
    let entry = this.#lengths.find((each) => each.mask === mask);
    if (entry === undefined) {
      entry = { mask, hosts: new Map() };
      this.#lengths.push(entry);
      this.#lengths.sort((a, b) => b.mask - a.mask);
    }
    entry.hosts.set((network & mask) >>> 0, host);
    this.#lastAddress = -1;
  }

  delete(network: number, length: number): void {
    const mask = maskOf(length);
    this.#lengths.find((each) => each.mask === mask)?.hosts.delete((network & mask) >>> 0);
    this.#lastAddress = -1;
  }

  /** The host of an address; undefined if it has none. */
  find(address: number): number | undefined {
    // Packets come in trains.
    if (address === this.#lastAddress) return this.#lastHost;
    this.#lastAddress = address;
    this.#lastHost = undefined;
    for (const { mask, hosts } of this.#lengths) {
      const host = hosts.get((address & mask) >>> 0);
      if (host === undefined) continue;
      this.#lastHost = host;
      break;
    }
    return this.#lastHost;
  }
}

const maskOf = (length: number): number =>
  length === 0 ? 0 : (0xffff_ffff << (32 - length)) >>> 0;
