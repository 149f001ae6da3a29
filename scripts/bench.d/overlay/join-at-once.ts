import type { Ipv4 } from "../../../core/address.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import {
  beginning,
  type LeaseCommand,
  type LeaseEvent,
  type LeaseState,
} from "../../../overlay/lease-state.ts";
import { step } from "../../../overlay/lease.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { Registry } from "../../../overlay/registry.ts";
import type { Committed, LeaseTransaction, StoredKey } from "../../../overlay/store.ts";
import { Random } from "../../../test/sim/random.ts";

const prefix = parsePrefix("/net");
const settings = { prefix, ttlSeconds: 86_400, marginSeconds: 3600, misfit: "drain" } as const;
const config = '{"Network":"10.0.0.0/8","Backend":{"Type":"host-gw"}}';
/** One way between a host and etcd, and what a write takes there, one after the other: milliseconds. */
const wayMs = 1;
const writeMs = 0.5;

export interface JoinedAtOnce {
  /** Calls of etcd, and those of them that somebody else had been faster at. */
  readonly calls: number;
  readonly refused: number;
  /** Until every host had its subnet. */
  readonly seconds: number;
}

/** So many new hosts are started within a second. What is known of the store all of them know at once: a watch is fast. */
export function joinAtOnce(count: number): JoinedAtOnce {
  const random = new Random(7);
  const known = new Registry();
  known.apply({ kind: "snapshot", cluster: 1n, revision: 1n, keys: [] });
  const events: { readonly at: number; readonly body: () => void }[] = [];
  let now = 0;
  let revision = 1n;
  /** When etcd is done with all it was sent. */
  let idleAt = 0;
  let calls = 0;
  let refused = 0;
  let waiting = count;
  const after = (ms: number, body: () => void): void => {
    const at = now + ms;
    let low = 0;
    for (let high = events.length; low < high; ) {
      const middle = (low + high) >> 1;
      if ((events[middle]?.at ?? 0) > at) low = middle + 1;
      else high = middle;
    }
    events.splice(low, 0, { at, body });
  };
  const commit = ({ compares, puts, deletes }: LeaseTransaction): Committed => {
    const revisionOf = (key: string): bigint => known.get(key)?.modRevision ?? 0n;
    if (compares.some(({ key, modRevision }) => revisionOf(key) !== modRevision)) {
      refused++;
      return { kind: "refused", revision, found: [] };
    }
    const modRevision = ++revision;
    const keys = puts.map(({ write, grant }): StoredKey => {
      return { ...write, grant, createRevision: modRevision, modRevision };
    });
    known.apply({
      kind: "changes",
      revision,
      events: [
        ...deletes.map((key) => ({ kind: "delete", key, modRevision }) as const),
        ...keys.map((at) => ({ kind: "put", at }) as const),
      ],
    });
    return { kind: "done", revision };
  };
  const start = (n: number): void => {
    const publicIp = `172.16.${n >> 8}.${n & 255}` as Ipv4;
    const attributes = { type: "host-gw" } as const;
    const host = { owner: n as OwnerId, publicIp, publicIp6: undefined, attributes };
    let state: LeaseState = beginning(settings, host, undefined);
    const tell = (event: LeaseEvent): void => {
      const had = state.own !== undefined;
      const next = step(state, event, known, { at: now, draw: random.next() });
      state = next.state;
      if (!had && state.own !== undefined) waiting--;
      for (const command of next.commands) call(command);
      if (state.wakeAt !== undefined && state.own === undefined)
        after(Math.max(0, state.wakeAt - now), () => tell({ kind: "tick" }));
    };
    const call = (command: LeaseCommand): void => {
      if (command.kind !== "grant" && command.kind !== "commit") return;
      calls++;
      const { id } = command;
      after(wayMs, () => {
        idleAt = Math.max(idleAt, now) + writeMs;
        after(idleAt - now, () => {
          const committed = command.kind === "commit" ? commit(command.transaction) : undefined;
          after(wayMs, () => {
            if (committed === undefined) tell({ kind: "answered", request: id });
            else tell({ kind: "committed", request: id, committed });
            if (state.probation !== undefined) tell({ kind: "leases" });
          });
        });
      });
    };
    tell({ kind: "config", text: config, revision: 1n });
    tell({ kind: "leases" });
  };
  for (let n = 0; n < count; n++) after(random.below(1000), () => start(n));
  for (;;) {
    if (waiting === 0) return { calls, refused, seconds: now / 1000 };
    const next = events.pop();
    if (next === undefined) throw new Error(`${waiting} hosts wait for ever`);
    now = next.at;
    next.body();
  }
}
