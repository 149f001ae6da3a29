import type { Ip } from "../../../core/address.ts";
import { guard, guarded } from "../../../core/guard.ts";
import type { EchoAnswer } from "../../../linux/sockets/echo-socket.ts";

/** The result of the last probe of a peer. */
export interface Probe {
  readonly reachable: boolean;
  /**
   * When it is reachable: how long that took, milliseconds, and at which address it has answered.
   */
  readonly rttMs?: number;
  readonly address?: Ip;
}

export interface ProberOptions {
  /** An `EchoSocket`'s of the address's family. */
  readonly ask: (address: Ip, options: { readonly timeoutMs: number }) => Promise<EchoAnswer>;
  /** Between two probes of a peer, milliseconds; 0 never probes. */
  readonly periodMs: number;
  /** The number of peers that are probed concurrently. Default: 32. */
  readonly atOnce?: number;
  readonly timeoutMs?: number;
  /** Whether a peer can be reached is known for the first time, or is not as it was. */
  readonly onChange?: (key: string, probe: Probe) => void;
}

/**
 * Probes periodically whether every peer is reachable, and its round-trip time. The number of
 * concurrent probes is bounded: with many unreachable peers a round takes longer, without more load
 * on the network. New peers are probed at once.
 */
export class Prober implements Disposable {
  readonly #options: Required<Omit<ProberOptions, "onChange">> & Pick<ProberOptions, "onChange">;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #targets = new Map<string, readonly Ip[]>();
  #hosts: ReadonlyMap<string, readonly Ip[]> = new Map();
  readonly #probes = new Map<string, Probe>();
  /** The peers to probe, in this order, each once. */
  readonly #due = new Set<string>();
  readonly #asked = new Set<string>();
  #closed = false;

  constructor(options: ProberOptions) {
    this.#options = { atOnce: 32, timeoutMs: 1000, ...options };
    const { periodMs } = this.#options;
    if (periodMs > 0)
      this.#timer = setInterval(
        guarded("overlay", () => this.#ask(this.#targets.keys())),
        periodMs,
      ).unref();
  }

  /**
   * Sets all peers by their keys, with the addresses of `probeTargets`. Results of unchanged peers
   * are kept. `hosts` are the public addresses by key: a host that answers from there that it has
   * no route is reachable, though no machine has the probed address yet.
   */
  follow(
    targets: ReadonlyMap<string, readonly Ip[]>,
    hosts: ReadonlyMap<string, readonly Ip[]> = new Map(),
  ): void {
    this.#hosts = hosts;
    for (const key of this.#targets.keys()) {
      if (targets.has(key)) continue;
      this.#targets.delete(key);
      this.#probes.delete(key);
      this.#due.delete(key);
    }
    const changed: string[] = [];
    for (const [key, addresses] of targets) {
      const before = this.#targets.get(key);
      this.#targets.set(key, addresses);
      if (before === addresses) continue;
      if (before === undefined || before.join() !== addresses.join()) {
        this.#probes.delete(key);
        changed.push(key);
      }
    }
    this.#ask(changed);
  }

  /** Undefined while a peer has not been asked. */
  of(key: string): Probe | undefined {
    return this.#probes.get(key);
  }

  /** Peers that could be reached, and could not, when they were last asked. */
  get counts(): { readonly reachable: number; readonly unreachable: number } {
    const reachable = [...this.#probes.values()].filter((probe) => probe.reachable).length;
    return { reachable, unreachable: this.#probes.size - reachable };
  }

  /** The first unreachable peers, at most `atMost`. */
  unreachable(atMost: number): readonly string[] {
    const lost: string[] = [];
    for (const [key, { reachable }] of this.#probes) {
      if (lost.length >= atMost) break;
      if (!reachable) lost.push(key);
    }
    return lost;
  }

  /** An address at which a peer has answered; undefined if there is none. */
  get reached(): Ip | undefined {
    for (const { address } of this.#probes.values()) if (address !== undefined) return address;
    return undefined;
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#due.clear();
  }

  #ask(keys: Iterable<string>): void {
    if (this.#closed || this.#options.periodMs === 0) return;
    for (const key of keys) if (!this.#asked.has(key)) this.#due.add(key);
    this.#next();
  }

  #next(): void {
    for (const key of this.#due) {
      if (this.#asked.size >= this.#options.atOnce) return;
      this.#due.delete(key);
      this.#asked.add(key);
      const probed = guard("overlay", () => this.#probe(key));
      void probed.finally(() => {
        this.#asked.delete(key);
        this.#next();
      });
    }
  }

  async #probe(key: string): Promise<void> {
    const addresses = this.#targets.get(key) ?? [];
    let found: Probe = { reachable: false };
    for (const address of addresses) {
      const answer = await this.#answer(address);
      if (this.#closed) return;
      if (answer.kind === "answered") {
        found = { reachable: true, rttMs: answer.rttMs, address };
        break;
      }
      if (answer.kind === "unreachable" && this.#hosts.get(key)?.includes(answer.from) === true)
        found = { reachable: true, rttMs: answer.rttMs };
    }
    // The peer is gone, or has other addresses by now.
    if (this.#targets.get(key) !== addresses || addresses.length === 0) return;
    const before = this.#probes.get(key);
    this.#probes.set(key, found);
    if (before?.reachable !== found.reachable) this.#options.onChange?.(key, found);
  }

  /** A probe that cannot be sent counts as unanswered; the caller reports the reason. */
  async #answer(address: Ip): Promise<EchoAnswer> {
    try {
      return await this.#options.ask(address, { timeoutMs: this.#options.timeoutMs });
    } catch {
      return { kind: "silent" };
    }
  }
}
