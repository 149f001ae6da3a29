import test from "ava";
import type { Ipv4 } from "../../core/address.ts";
import { systemClock } from "../../core/clock.ts";
import { isPodnetError } from "../../core/errors.ts";
import { connectEtcd } from "../../etcd/client.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import type { Host } from "../../overlay/claim.ts";
import { LeaseDriver } from "../../overlay/drive-lease.ts";
import { EtcdStore } from "../../overlay/etcd-store.ts";
import { parseConfig } from "../../overlay/flannel/config.ts";
import type { Subnets } from "../../overlay/flannel/key.ts";
import { configKey, parsePrefix, type Prefix } from "../../overlay/flannel/prefix.ts";
import type { LeaseState } from "../../overlay/lease-state.ts";
import { leaseStatus } from "../../overlay/lease-status.ts";
import { type OwnerId, ownerOf } from "../../overlay/owner.ts";
import { Registry } from "../../overlay/registry.ts";
import { addReservation, removeReservation, reservationsIn } from "../../overlay/reservations.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";

let lab: EtcdLab;
let etcd: Etcd & Disposable;
let store: EtcdStore;

test.before(async () => {
  lab = await startEtcd();
  etcd = connectEtcd({ ...lab.client, timing: { callMs: 10_000, answerMs: 10_000 } });
  store = new EtcdStore(etcd);
});

test.after.always(async () => {
  etcd?.[Symbol.dispose]();
  await lab?.[Symbol.asyncDispose]();
});

const hostOf = (number: number): Host => ({
  owner: (500 + number) as OwnerId,
  publicIp: `192.168.77.${number}` as Ipv4,
  publicIp6: undefined,
  attributes: { type: "host-gw" },
});

/** A host, and whoever waits for its lease to be some way. */
class Joined implements AsyncDisposable {
  readonly driver: LeaseDriver;
  readonly drained: Subnets[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(
    prefix: Prefix,
    number: number,
    { ttlSeconds = 86_400, previous }: { ttlSeconds?: number; previous?: Subnets } = {},
  ) {
    this.driver = new LeaseDriver({
      onUnread: () => {},
      store,
      settings: { prefix, ttlSeconds, marginSeconds: ttlSeconds - 2, misfit: "drain" },
      host: hostOf(number),
      previous,
      clock: systemClock,
      random: Math.random,
      onState: () => {
        for (const look of this.#waiting) look();
      },
      onLeases: () => {
        for (const look of this.#waiting) look();
      },
      drain: (subnets) => {
        this.drained.push(subnets);
        return Promise.resolve();
      },
    });
    this.driver.start();
  }

  async until(is: (state: LeaseState) => boolean): Promise<LeaseState> {
    while (!is(this.driver.state))
      await new Promise<void>((resolve) => {
        const look = (): void => {
          this.#waiting.delete(look);
          resolve();
        };
        this.#waiting.add(look);
      });
    return this.driver.state;
  }

  held = async (): Promise<NonNullable<LeaseState["own"]>> => {
    const { own } = await this.until((state) => isHeld(state));
    return own as NonNullable<LeaseState["own"]>;
  };

  [Symbol.asyncDispose](): Promise<void> {
    return this.driver[Symbol.asyncDispose]();
  }
}

const isHeld = (state: LeaseState): boolean => leaseStatus(state).phase === "held";

const configure = async (prefix: Prefix, config: object): Promise<void> => {
  await etcd.put(configKey(prefix), JSON.stringify(config));
};
const network = { Network: "10.77.0.0/24", SubnetLen: 28, Backend: { Type: "host-gw" } };

/** The key as etcd has it, once it is some way. */
async function keyUntil(
  prefix: Prefix,
  key: string,
  is: (grant: bigint | undefined) => boolean,
): Promise<bigint | undefined> {
  const end = new AbortController();
  for await (const update of store.follow(prefix, end.signal)) {
    if (update.kind !== "snapshot" && update.kind !== "changes") continue;
    const { kvs } = await etcd.range({ key });
    if (!is(kvs[0]?.lease)) continue;
    end.abort();
    return kvs[0]?.lease;
  }
  return undefined;
}

test("three hosts that come at once have a subnet each, and wait for the configuration before", async (t) => {
  const prefix = parsePrefix("/leases/race");
  await using a = new Joined(prefix, 1);
  await using b = new Joined(prefix, 2);
  await using c = new Joined(prefix, 3);
  const hosts = [a, b, c];
  await Promise.all(
    hosts.map((host) =>
      host.until(({ troubles }) => troubles.some(({ kind }) => kind === "config-missing")),
    ),
  );
  // Three subnets for three hosts: whoever draws what another has must draw again.
  await configure(prefix, { ...network, Network: "10.77.0.0/26" });
  const held = await Promise.all(hosts.map((host) => host.held()));
  t.is(new Set(held.map(({ key }) => key)).size, 3);
  for (const host of hosts) t.deepEqual(host.driver.state.troubles, []);
  await using late = new Joined(prefix, 4);
  await late.until(({ troubles }) => troubles.some(({ kind }) => kind === "exhausted"));
  a.driver.leave();
  const freed = await late.held();
  t.is(freed.key, held[0]?.key ?? "");
  t.deepEqual(a.drained, [held[0]?.subnets]);
  t.is(leaseStatus(a.driver.state).phase, "left");
});

test("a lease is renewed by another grant, and ends when its host is gone", async (t) => {
  const prefix = parsePrefix("/leases/short");
  await configure(prefix, network);
  const host = new Joined(prefix, 1, { ttlSeconds: 4 });
  const { key, grant, text } = await host.held();
  const renewed = await keyUntil(prefix, key, (now) => now !== grant);
  t.is(ownerOf(renewed ?? 0n), 501 as OwnerId);
  t.is(Buffer.from((await etcd.range({ key })).kvs[0]?.value ?? []).toString(), text);
  // The former one is given back.
  await host.until(({ own }) => own?.grant === renewed);
  while ((await store.timeLeft(grant, AbortSignal.timeout(5000))) !== undefined)
    await new Promise(setImmediate);
  await host[Symbol.asyncDispose]();
  t.not((await etcd.range({ key })).kvs[0], undefined, "ending podnetd gives nothing up");
  t.is(await keyUntil(prefix, key, (now) => now === undefined), undefined);
});

test("a key that is gone comes back as it was; one that another host has does not, and is reported", async (t) => {
  const prefix = parsePrefix("/leases/lost");
  await configure(prefix, network);
  await using host = new Joined(prefix, 1);
  const { key } = await host.held();
  await etcd.delete({ key });
  await keyUntil(prefix, key, (now) => now !== undefined);
  t.is((await host.held()).key, key);
  const { lease } = await etcd.grant(60);
  await etcd.put(key, '{"PublicIP":"192.168.78.9","PublicIPv6":null}', { lease });
  const taken = await host.until(({ troubles }) => troubles.some(({ kind }) => kind === "taken"));
  t.is(taken.own?.key, key);
  t.is(leaseStatus(taken).phase, "lost");
  await etcd.revoke(lease);
  t.is((await host.held()).key, key);
});

test("a restarted host has its subnet again, by its address or by what it remembers", async (t) => {
  const prefix = parsePrefix("/leases/restart");
  await configure(prefix, network);
  const first = new Joined(prefix, 1);
  const { key, subnets } = await first.held();
  await first[Symbol.asyncDispose]();
  {
    await using again = new Joined(prefix, 1);
    t.is((await again.held()).key, key);
  }
  await etcd.delete({ key });
  await using remembering = new Joined(prefix, 1, { previous: subnets });
  t.is((await remembering.held()).key, key);
});

test("a reservation is its host's, and does not end when the host has come", async (t) => {
  const prefix = parsePrefix("/leases/kept");
  await configure(prefix, network);
  const config = parseConfig(JSON.stringify(network));
  const subnets = { v4: "10.77.0.160/28", v6: undefined } as Subnets;
  const reserving = { prefix, config, store };
  const signal = AbortSignal.timeout(20_000);
  const wanted = { subnets, publicIp: hostOf(1).publicIp, publicIp6: undefined };
  await addReservation(reserving, wanted, signal);
  await addReservation(reserving, wanted, signal);
  const refused = await t.throwsAsync(
    addReservation(reserving, { ...wanted, publicIp: hostOf(2).publicIp }, signal),
  );
  t.true(isPodnetError(refused, "SUBNET_TAKEN"));
  {
    await using host = new Joined(prefix, 1);
    const own = await host.held();
    t.deepEqual(own.subnets, subnets);
    t.is(own.grant, 0n);
    t.is((await etcd.range({ key: own.key })).kvs[0]?.lease, 0n);
    host.driver.leave();
    await host.until((state) => leaseStatus(state).phase === "left");
  }
  const registry = new Registry();
  registry.apply(await store.list(prefix, signal));
  t.is(reservationsIn(registry).length, 1);
  await removeReservation(reserving, subnets, signal);
  await removeReservation(reserving, subnets, signal);
  const [kv] = (await etcd.range({ prefix: `${prefix}/subnets` })).kvs;
  t.true(((await store.timeLeft(kv?.lease ?? 0n, signal))?.seconds ?? 0) > 86_000);
});
