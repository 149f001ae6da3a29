import type { Ipv4 } from "../../../core/address.ts";
import {
  beginning,
  type LeaseEvent,
  type LeaseSettings,
  type LeaseState,
} from "../../../overlay/lease-state.ts";
import { step } from "../../../overlay/lease.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { prefix, VirtualStore } from "./virtual-store.ts";

export const settings: LeaseSettings = {
  prefix,
  ttlSeconds: 86_400,
  marginSeconds: 3600,
  misfit: "drain",
};
export const config = '{"Network":"10.0.0.0/8","Backend":{"Type":"host-gw"}}';

export const hostOf = (n: number): LeaseState["host"] => ({
  owner: n as OwnerId,
  publicIp: `172.${16 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}` as Ipv4,
  publicIp6: undefined,
  attributes: { type: "host-gw" },
});

export interface AtOnce {
  /** Calls of etcd, and those that lost to a faster host. */
  readonly calls: number;
  readonly refused: number;
  /** Until every host had its subnet. */
  readonly seconds: number;
}

/** So many new hosts are started within a second. */
export function joinAtOnce(count: number): AtOnce {
  const store = new VirtualStore();
  let waiting = count;
  const start = (n: number): void => {
    let state = beginning(settings, hostOf(n), undefined);
    const report = (event: LeaseEvent): void => {
      const had = state.own !== undefined;
      const next = step(state, event, store.leases, { at: store.now, draw: store.random.next() });
      state = next.state;
      if (!had && state.own !== undefined) waiting--;
      for (const command of next.commands) store.call(command, report);
      if (state.wakeAt !== undefined && state.own === undefined)
        store.after(Math.max(0, state.wakeAt - store.now), () => report({ kind: "tick" }));
    };
    report({ kind: "config", text: config, revision: 1n });
    report({ kind: "leases" });
  };
  for (let n = 0; n < count; n++) store.after(store.random.below(1000), () => start(n));
  store.run(() => waiting === 0);
  return { calls: store.calls, refused: store.refused, seconds: store.now / 1000 };
}
