import type { Ip } from "../core/address.ts";
import type { Clock } from "../core/clock.ts";
import type { DomainName } from "../policy/domain.ts";
import type { RelayedPod, ToRelay } from "./messages.ts";

/** Names that are remembered for a pod. Older ones make room: they are asked for once more. */
const mostNames = 10_000;

/** A pod's decisions, and the addresses that the resolver gave it. */
export class PodEntry {
  readonly pod: RelayedPod;
  readonly #clock: Clock;
  readonly #answers: Map<DomainName, Map<Ip, number>>;

  constructor(pod: RelayedPod, clock: Clock, before?: PodEntry) {
    this.pod = pod;
    this.#clock = clock;
    this.#answers = before === undefined ? new Map() : before.#answers;
  }

  /** Adds addresses of a name, for as many seconds. */
  answer(name: DomainName, addresses: readonly Ip[], seconds: number): void {
    const until = this.#clock.monotonic() + seconds * 1000;
    const known = this.#answers.get(name) ?? new Map<Ip, number>();
    for (const ip of addresses) known.set(ip, Math.max(until, known.get(ip) ?? 0));
    // The last one asked for is the last to go.
    this.#answers.delete(name);
    this.#answers.set(name, known);
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > mostNames && oldest !== undefined) this.#answers.delete(oldest);
  }

  /** The answers that still hold, as they are said. */
  *answers(): Generator<Extract<ToRelay, { readonly type: "answer" }>> {
    const now = this.#clock.monotonic();
    for (const [name, known] of this.#answers)
      for (const [ip, until] of known)
        if (until > now)
          yield {
            type: "answer",
            id: this.pod.id,
            name,
            addresses: [ip],
            seconds: (until - now) / 1000,
          };
  }

  /** The addresses of a name that the resolver gave this pod and that still hold. */
  addressesOf(name: DomainName): readonly Ip[] {
    const now = this.#clock.monotonic();
    const known = this.#answers.get(name) ?? new Map<Ip, number>();
    for (const [ip, until] of known) if (until <= now) known.delete(ip);
    if (known.size === 0) this.#answers.delete(name);
    return [...known.keys()];
  }
}

/** All pods whose connections are relayed, by their addresses. */
export class Table {
  readonly #clock: Clock;
  readonly #onChange: (id: string) => void;
  readonly #pods = new Map<string, PodEntry>();
  readonly #owners = new Map<Ip, string>();
  /** Pods that the whole state has named so far; undefined outside of one. */
  #named: Map<string, RelayedPod> | undefined;

  /** `onChange` is called with each pod whose decisions are others now, or gone. */
  constructor(clock: Clock, onChange: (id: string) => void) {
    this.#clock = clock;
    this.#onChange = onChange;
  }

  ids(): readonly string[] {
    return [...this.#pods.keys()];
  }

  byId(id: string): PodEntry | undefined {
    return this.#pods.get(id);
  }

  byAddress(ip: Ip): PodEntry | undefined {
    const id = this.#owners.get(ip);
    return id === undefined ? undefined : this.#pods.get(id);
  }

  /** All that it has, as messages. */
  *state(): Generator<ToRelay> {
    yield { type: "begin" };
    for (const { pod } of this.#pods.values()) yield { type: "pod", pod };
    yield { type: "commit" };
    for (const entry of this.#pods.values()) yield* entry.answers();
  }

  apply(message: ToRelay): void {
    switch (message.type) {
      case "begin":
        this.#named = new Map();
        return;
      case "commit":
        this.#replace(this.#named ?? new Map());
        this.#named = undefined;
        return;
      case "pod":
        if (this.#named === undefined) this.#set(message.pod);
        else this.#named.set(message.pod.id, message.pod);
        return;
      case "gone":
        if (this.#named === undefined) this.#remove(message.id);
        else this.#named.delete(message.id);
        return;
      case "answer":
        this.#pods.get(message.id)?.answer(message.name, message.addresses, message.seconds);
    }
  }

  #replace(named: ReadonlyMap<string, RelayedPod>): void {
    for (const id of this.#pods.keys()) if (!named.has(id)) this.#remove(id);
    for (const pod of named.values()) this.#set(pod);
  }

  #set(pod: RelayedPod): void {
    const before = this.#pods.get(pod.id);
    this.#disown(pod.id);
    for (const ip of pod.addresses) this.#owners.set(ip, pod.id);
    this.#pods.set(pod.id, new PodEntry(pod, this.#clock, before));
    this.#onChange(pod.id);
  }

  #remove(id: string): void {
    this.#disown(id);
    if (this.#pods.delete(id)) this.#onChange(id);
  }

  #disown(id: string): void {
    for (const ip of this.#pods.get(id)?.pod.addresses ?? [])
      if (this.#owners.get(ip) === id) this.#owners.delete(ip);
  }
}
