import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import type { LeaseCommand, LeaseEvent } from "../../../overlay/lease-state.ts";
import { type Entry, type Leases, readEntry, Registry } from "../../../overlay/registry.ts";
import type { Committed, LeaseTransaction } from "../../../overlay/store.ts";
import { Random } from "../../../test/sim/random.ts";
import { Agenda } from "./agenda.ts";

export const prefix = parsePrefix("/net");
/**
 * One way between a host and etcd, and what a write takes there, one after the other: milliseconds.
 */
const wayMs = 1;
const writeMs = 0.5;
/** Written after everything: no host takes it for an earlier lease than its own. */
const lastRevision = 1n << 62n;

/** The `/24` of this number in 10.0.0.0/8. */
export const subnetOf = (n: number): string => `10.${n >> 8}.${n & 255}.0-24`;
const numberOf = (key: string): number => {
  const [, high = "", low = ""] = /10\.(\d+)\.(\d+)\.0-24$/.exec(key) ?? [];
  return Number(high) * 256 + Number(low);
};

/**
 * An etcd with an overlay of `/24`s of 10.0.0.0/8, in virtual time: it writes one thing after the
 * other, and what it has all hosts know at once, for a watch is fast. Milliseconds.
 */
export class VirtualStore extends Agenda {
  readonly random = new Random(7);
  readonly known = new Registry();
  /** Calls, and those that lost to a faster host. */
  calls = 0;
  refused = 0;
  #revision = 1n;
  /** When it is done with all it was sent. */
  #idleAt = 0;
  /** Subnets are taken up to this number, and these beyond. */
  #frontier = 1;
  readonly #beyond = new Set<number>();

  constructor() {
    super();
    this.known.apply({ kind: "snapshot", cluster: 1n, revision: 1n, keys: [] });
  }

  /**
   * All leases, as a host asks for them. It goes through them for what overlaps: of subnets alike
   * in length none do. So those in an unbroken row count as one, which is as taken and makes no
   * difference but for the time this takes.
   */
  get leases(): Leases {
    return this.#view(() => this.#outline());
  }

  /**
   * Alike for hosts that choose nothing: no host has what another has, and there is nothing to go
   * through.
   */
  get leasesByKey(): Leases {
    return this.#view(() => [].values());
  }

  #view(all: () => Iterator<Entry>): Leases {
    const { known } = this;
    return {
      revision: known.revision,
      get: (key) => known.get(key),
      at: (ip) => known.at(ip),
      of: (owner) => known.of(owner),
      [Symbol.iterator]: all,
    };
  }

  /** Does what a host's lease asks for, and reports the result to it. */
  call(command: LeaseCommand, report: (event: LeaseEvent) => void): void {
    if (command.kind !== "grant" && command.kind !== "commit") return;
    this.calls++;
    const { id } = command;
    this.after(wayMs, () => {
      this.#idleAt = Math.max(this.#idleAt, this.now) + writeMs;
      this.after(this.#idleAt - this.now, () => {
        const committed = command.kind === "commit" ? this.#commit(command.transaction) : undefined;
        this.after(wayMs, () => {
          if (committed === undefined) report({ kind: "answered", request: id });
          else report({ kind: "committed", request: id, committed });
          report({ kind: "leases" });
        });
      });
    });
  }

  #commit({ compares, puts, deletes }: LeaseTransaction): Committed {
    const revisionOf = (key: string): bigint => this.known.get(key)?.modRevision ?? 0n;
    if (compares.some(({ key, modRevision }) => revisionOf(key) !== modRevision)) {
      this.refused++;
      return { kind: "refused", revision: this.#revision, found: [] };
    }
    if (deletes.length > 0) throw new Error("No host gives anything up here");
    const modRevision = ++this.#revision;
    const events = puts.map(({ write, grant }) => {
      const createRevision = this.known.get(write.key) === undefined ? modRevision : 1n;
      this.#take(write.key);
      return { kind: "put", at: { ...write, grant, createRevision, modRevision } } as const;
    });
    this.known.apply({ kind: "changes", revision: modRevision, events });
    return { kind: "done", revision: modRevision };
  }

  #take(key: string): void {
    this.#beyond.add(numberOf(key));
    while (this.#beyond.delete(this.#frontier)) this.#frontier++;
  }

  *#outline(): Generator<Entry> {
    // From 0 to the frontier: a block for each bit of its number.
    for (let bit = 15, from = 0; bit >= 0; bit--) {
      if ((this.#frontier & (1 << bit)) === 0) continue;
      yield foreign(subnetOf(from).replace("-24", `-${24 - bit}`));
      from += 1 << bit;
    }
    for (const n of this.#beyond) yield foreign(subnetOf(n));
  }
}

const foreigners = new Map<string, Entry>();

/** A lease of some host, the same one each time. */
function foreign(subnet: string): Entry {
  const known = foreigners.get(subnet);
  if (known !== undefined) return known;
  const entry = readEntry({
    key: `${prefix}/subnets/${subnet}`,
    value: '{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"host-gw"}',
    grant: 1n,
    createRevision: lastRevision,
    modRevision: lastRevision,
  });
  foreigners.set(subnet, entry);
  return entry;
}
