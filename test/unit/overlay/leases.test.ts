import test from "ava";
import fc from "fast-check";
import type { Cidr, Ipv4, Ipv6, Mac } from "../../../core/address.ts";
import type { PodnetError } from "../../../core/errors.ts";
import { etcdError } from "../../../etcd/errors.ts";
import { type Host, leaseWrite } from "../../../overlay/claim.ts";
import { type OverlayConfig, parseConfig } from "../../../overlay/flannel/config.ts";
import { leaseKey, type Subnets } from "../../../overlay/flannel/key.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import {
  beginning,
  type LeaseCommand,
  type LeaseState,
  type Own,
  type Request,
} from "../../../overlay/lease-state.ts";
import { leaseStatus } from "../../../overlay/lease-status.ts";
import { step } from "../../../overlay/lease.ts";
import { grantOf, type OwnerId, ownerFromBytes, ownerOf } from "../../../overlay/owner.ts";
import { conflictText } from "../../../daemon/overlays/trouble-text.ts";
import { conflictsIn, Peers } from "../../../overlay/peers.ts";
import { type Lease, readEntry, Registry } from "../../../overlay/registry.ts";
import type { LeaseWrite, StoredKey } from "../../../overlay/store.ts";
import { chooseSubnets, fits, standInAddress } from "../../../overlay/subnets.ts";

const prefix = parsePrefix("/net");
const mac = "9e:02:54:f5:a5:79" as Mac;
const host: Host = {
  owner: 7 as OwnerId,
  publicIp: "192.168.77.1" as Ipv4,
  publicIp6: "fd00:1::1" as Ipv6,
  attributes: { type: "vxlan", v4: { vni: 1, mac }, v6: { vni: 1, mac } },
};
const configOf = (config: object): OverlayConfig => parseConfig(JSON.stringify(config));
const v4 = configOf({ Network: "10.77.0.0/16" });
const v6 = configOf({ EnableIPv4: false, EnableIPv6: true, IPv6Network: "fd00:77::/48" });
const dual = configOf({
  Network: "10.77.0.0/16",
  EnableIPv6: true,
  IPv6Network: "fd00:77::/48",
});
const four = (cidr: string): Subnets => ({ v4: cidr as Cidr, v6: undefined });

let revision = 1n;
const stored = (name: string, value: object | string, grant = 5n): StoredKey => {
  revision++;
  return {
    key: `/net/subnets/${name}`,
    value: typeof value === "string" ? value : JSON.stringify(value),
    grant,
    createRevision: revision,
    modRevision: revision,
  };
};
/** A lease of a subnet, as far as a choice looks at it. */
const leaseOf = (v4: Cidr): Lease =>
  ({ kind: "lease", key: v4, subnets: { v4, v6: undefined } }) as unknown as Lease;
/** The choice of a host that had no subnet before. */
const first = { previous: undefined };
const registryOf = (...keys: StoredKey[]): Registry => {
  const registry = new Registry();
  registry.apply({ kind: "snapshot", cluster: 1n, revision, keys });
  return registry;
};

test("the first hundred free subnets are drawn from, around whatever is taken", (t) => {
  const taken = ["10.77.1.0/24", "10.77.3.0/25", "10.77.8.0/21", "10.0.0.0/16"] as Cidr[];
  const drawn = (...of: Cidr[]): (Cidr | undefined)[] => {
    const leases = of.map(leaseOf);
    const draws = Array.from({ length: 2000 }, (_, i) => i / 2000);
    const subnets = draws.map((draw) => chooseSubnets({ config: v4, leases, draw, ...first })?.v4);
    return [...new Set(subnets)];
  };
  const free = drawn(...taken);
  t.deepEqual(free.slice(0, 6), [
    "10.77.2.0/24",
    "10.77.4.0/24",
    "10.77.5.0/24",
    "10.77.6.0/24",
    "10.77.7.0/24",
    "10.77.16.0/24",
  ] as Cidr[]);
  t.is(free.length, 100);
  t.deepEqual(drawn("10.0.0.0/8" as Cidr), [undefined]);
  const all = drawn();
  t.is(all.length, 100);
  t.is(all[0], "10.77.1.0/24" as Cidr);
  t.is(all.at(-1), "10.77.100.0/24" as Cidr);
});

test("what a host had before is taken again if it is free and fits, each family by itself", (t) => {
  const choose = (previous: Subnets, config: OverlayConfig, ...keys: StoredKey[]) =>
    chooseSubnets({ config, previous, leases: registryOf(...keys), draw: 0.5 });
  const had = { v4: "10.77.200.0/24", v6: "fd00:77:0:99::/64" } as Subnets;
  t.deepEqual(choose(had, dual), had);
  const rest = choose(had, dual, stored("10.77.200.0-24", {}));
  t.is(rest?.v6, had.v6);
  t.not(rest?.v4, had.v4);
  t.is(choose(four("10.77.200.0/25"), v4)?.v4?.endsWith("/24"), true);
  t.not(choose(four("10.77.0.0/24"), v4)?.v4, "10.77.0.0/24" as Cidr);
});

test("no two choices that the registry tells apart share an address", (t) => {
  const small = configOf({ Network: "10.77.0.0/24", SubnetLen: 28 });
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.integer({ min: 1, max: 15 })),
        fc.double({ min: 0, max: 0.999_999, noNaN: true }),
        (numbers, draw) => {
          const keys = numbers.map((number) => stored(`10.77.0.${number * 16}-28`, {}));
          const chosen = chooseSubnets({
            config: small,
            previous: undefined,
            leases: registryOf(...keys),
            draw,
          });
          if (numbers.length === 15) t.is(chosen, undefined);
          else t.false(numbers.some((number) => chosen?.v4 === `10.77.0.${number * 16}/28`));
        },
      ),
      { numRuns: 200 },
    ),
  );
});

test("a network of a million subnets, a quarter of them taken, is chosen from", (t) => {
  const config = configOf({ Network: "10.0.0.0/8", SubnetLen: 28 });
  const leases = Array.from({ length: 250_000 }, (_, i) => {
    const base = 16 * (i + 1);
    return leaseOf(`10.${base >> 16}.${(base >> 8) & 255}.${base & 255}/28` as Cidr);
  });
  t.is(chooseSubnets({ config, leases, draw: 0, ...first })?.v4, "10.61.9.16/28" as Cidr);
});

test("hosts without IPv4 are told apart by stand-ins that flanneld does not have", (t) => {
  t.is(standInAddress("fd00:77:0:5::/64" as Cidr, v6), "240.0.0.5" as Ipv4);
  const subnets = { v4: undefined, v6: "fd00:77:0:5::/64" } as Subnets;
  const claim = leaseWrite({
    prefix,
    config: v6,
    host,
    subnets,
    leases: registryOf(),
    without: new Set(),
  });
  t.is(claim.kind, "write");
  if (claim.kind === "write")
    t.deepEqual(claim.write as unknown, {
      key: "/net/subnets/0.0.0.0-0&fd00:77:0:5::-64",
      value: `{"PublicIP":"240.0.0.5","PublicIPv6":"fd00:1::1","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"${mac}"}}`,
    });
  // More subnets than stand-ins: the rest is not handed out.
  const vast = configOf({ EnableIPv4: false, EnableIPv6: true, IPv6Network: "fd00::/32" });
  t.is(standInAddress("fd00:0:1000::/64" as Cidr, vast), undefined);
  t.false(fits({ v4: undefined, v6: "fd00:0:1000::/64" as Cidr }, vast));
});

test("the four things that break flannel cannot be written, whatever the configuration", (t) => {
  const config = fc.constantFrom(v4, v6, dual);
  const subnets: fc.Arbitrary<Subnets> = fc.constantFrom(
    four("10.77.5.0/24"),
    { v4: undefined, v6: "fd00:77:0:5::/64" as Cidr },
    { v4: "10.77.5.0/24" as Cidr, v6: "fd00:77:0:5::/64" as Cidr },
  );
  const other = fc.constantFrom("192.168.77.1", "192.168.77.2", "0.0.0.0");
  const other6 = fc.constantFrom("fd00:1::1", "fd00:1::2", null);
  let refused = 0;
  let written = 0;
  t.notThrows(() =>
    fc.assert(
      fc.property(config, subnets, other, other6, (given, wanted, PublicIP, PublicIPv6) => {
        const leases = registryOf(
          stored("10.77.9.0-24", { PublicIP, PublicIPv6 }),
          stored("junk", "junk"),
        );
        const claim = leaseWrite({
          prefix,
          config: given,
          host,
          subnets: wanted,
          leases,
          without: new Set(),
        });
        if (claim.kind !== "write") {
          refused++;
          return undefined;
        }
        written++;
        const { key, value } = claim.write;
        const entry = readEntry({ key, value, grant: 1n, createRevision: 1n, modRevision: 1n });
        t.is(entry.kind, "lease");
        if (entry.kind !== "lease") return undefined;
        t.is(entry.subnets.v6 !== undefined, given.v6 !== undefined, "families");
        t.is(entry.subnets.v4 !== undefined, given.v4 !== undefined, "families");
        t.not(entry.value.publicIp, PublicIP as Ipv4);
        if (PublicIPv6 !== null) t.not(entry.value.publicIp6, PublicIPv6 as Ipv6);
        t.true(key.startsWith("/net/subnets/"));
        return undefined;
      }),
      { numRuns: 200 },
    ),
  );
  t.true(refused > 20 && written > 20);
});

test("the mark of a podnet host is in the id of its leases, and flannel's have none", (t) => {
  const owner = ownerFromBytes(Uint8Array.of(0xff, 1, 2, 3));
  t.is(ownerOf(grantOf(owner, 0)), owner);
  t.is(ownerOf(grantOf(owner, 0.999_999)), owner);
  t.true(grantOf(owner, 0.999_999) < 1n << 63n);
  t.is(ownerOf(0x694d_7f3a_1122_3344n), undefined);
  t.is(ownerOf(0n), undefined);
});

test("of a peer that has changed the changes are reported; one that left is reported with all it had", (t) => {
  const registry = new Registry();
  const peers = new Peers("vxlan");
  const value = (PublicIP: string, VtepMAC: string) => ({
    PublicIP,
    PublicIPv6: null,
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC },
  });
  const changed = (at: StoredKey) =>
    peers.apply(
      registry.apply({ kind: "changes", revision: at.modRevision, events: [{ kind: "put", at }] }),
    );
  registry.apply({ kind: "snapshot", cluster: 1n, revision, keys: [] });
  t.is(changed(stored("10.77.1.0-24", value("192.168.77.9", mac)))[0]?.kind, "added");
  t.deepEqual(changed(stored("10.77.1.0-24", value("192.168.77.9", mac))), []);
  const moved = changed(stored("10.77.1.0-24", value("192.168.77.10", "9e:02:54:f5:a5:7a")));
  t.deepEqual(
    moved.map((change) => change.kind === "changed" && change.attributes),
    [["publicIp", "v4"]],
  );
  // After a compaction there is a snapshot; what changed meanwhile is found by comparing, attribute
  // by attribute.
  const snapshot = [
    stored("10.77.1.0-24", value("192.168.77.10", "9e:02:54:f5:a5:7b")),
    stored("10.77.2.0-24", value("192.168.77.11", mac)),
    stored("10.77.3.0-24", { PublicIP: "192.168.77.12", BackendType: "host-gw" }),
    stored("10.77.4.0-24", { PublicIP: "192.168.77.13", BackendType: "gue" }),
    stored("10.77.5.0-24", { PublicIP: "0.0.0.0", BackendType: "vxlan" }),
    stored("junk", "x"),
    stored("10.77.6.0-24", "x"),
  ];
  const reported = peers.apply(
    registry.apply({ kind: "snapshot", cluster: 1n, revision, keys: snapshot }),
  );
  t.deepEqual(
    reported.map((change) => [change.kind, change.peer.subnets.v4]),
    [
      ["changed", "10.77.1.0/24"],
      ["added", "10.77.2.0/24"],
    ] as never,
  );
  t.deepEqual(peers.passedOver, {
    unreadable: 2,
    "unknown-backend": 1,
    "other-backend": 1,
    "no-address": 1,
  });
  const own = peers.own("/net/subnets/10.77.2.0-24", (key) => registry.get(key));
  t.deepEqual(
    own.map(({ kind }) => kind),
    ["removed"],
  );
  const gone = peers.apply(registry.apply({ kind: "snapshot", cluster: 1n, revision, keys: [] }));
  t.deepEqual(
    gone.map((change) => [change.kind, change.peer.publicIp]),
    [["removed", "192.168.77.10"]] as never,
  );
  t.is(peers.size, 0);
});

test("two hosts with one address or one subnet are reported", (t) => {
  const at = (PublicIP: string) => ({ PublicIP });
  const registry = registryOf(
    stored("10.77.1.0-24", at("192.168.77.1")),
    stored("10.77.2.0-24", at("192.168.77.1")),
    stored("10.77.3.0-24", at("192.168.77.3")),
    stored("10.77.3.0-24&fd00:77:0:1::-64", at("192.168.77.4")),
    stored("10.77.4.0-24", at("192.168.77.5")),
    stored("0.0.0.0-0&fd00:77:0:9::-64", at("0.0.0.0")),
    stored("0.0.0.0-0&fd00:77:0:a::-64", at("0.0.0.0")),
  );
  t.deepEqual(conflictsIn(registry), [
    {
      kind: "address",
      ip: "192.168.77.1" as Ipv4,
      keys: ["/net/subnets/10.77.1.0-24", "/net/subnets/10.77.2.0-24"],
    },
    {
      kind: "subnet",
      subnets: ["10.77.3.0-24", "10.77.3.0-24&fd00:77:0:1::-64"],
      keys: ["/net/subnets/10.77.3.0-24", "/net/subnets/10.77.3.0-24&fd00:77:0:1::-64"],
    },
  ]);
  t.deepEqual(conflictsIn(registry).map(conflictText), [
    "the leases /net/subnets/10.77.1.0-24 and /net/subnets/10.77.2.0-24 name the same address, 192.168.77.1",
    "the leases /net/subnets/10.77.3.0-24 and /net/subnets/10.77.3.0-24&fd00:77:0:1::-64 have addresses in common",
  ]);
});

test("a store made anew is believed, however low its revisions are", (t) => {
  const key = leaseKey(prefix, four("10.77.1.0/24"));
  const registry = registryOf(stored("10.77.1.0-24", { PublicIP: "192.168.77.1" }));
  const at = {
    key,
    value: '{"PublicIP":"192.168.77.2"}',
    grant: 5n,
    createRevision: 1n,
    modRevision: 1n,
  };
  registry.apply({ kind: "snapshot", cluster: 2n, revision: 1n, keys: [at] });
  t.is(registry.at("192.168.77.2").length, 1);
  t.is(registry.at("192.168.77.1").length, 0);
});

const settings = { prefix, ttlSeconds: 86_400, marginSeconds: 3600, misfit: "drain" } as const;

/** A host that knows a configuration and these leases, as far as its first call after that. */
function begun(known: Registry, remembered?: Subnets): LeaseState {
  const config = { kind: "config", text: '{"Network":"10.77.0.0/16"}', revision: 1n } as const;
  const first = step(beginning(settings, host, remembered), config, known, { at: 0, draw: 0.5 });
  return step(first.state, { kind: "leases" }, known, { at: 1, draw: 0.5 }).state;
}
const troublesOf = (state: LeaseState): string[] => state.troubles.map(({ kind }) => kind);

test("an address that another podnet host's lease names is not taken over, one of flannel's is", (t) => {
  const mine = { PublicIP: host.publicIp };
  const refused = begun(registryOf(stored("10.77.9.0-24", mine, grantOf(8 as OwnerId, 0.1))));
  t.deepEqual(troublesOf(refused), ["shared"]);
  t.is(refused.request, undefined);
  t.is(leaseStatus(refused).phase, "acquiring");
  const flannels = begun(registryOf(stored("10.77.9.0-24", mine, 0x694d_0000_0000_0001n)));
  t.deepEqual(troublesOf(flannels), []);
  t.is(flannels.request?.kind, "grant");
});

test("a lease of a host that is gone is taken over with its subnet, one of a host that is there on request alone", (t) => {
  const gone = 8 as OwnerId;
  const known = registryOf(
    stored("10.77.9.0-24", { PublicIP: host.publicIp }, grantOf(gone, 0.1)),
    stored("10.77.8.0-24", { PublicIP: "192.168.77.3" }, grantOf(gone, 0.2)),
  );
  const waiting = begun(known);
  const moment = { at: 2, draw: 0.5 };
  const written = (state: LeaseState): string | undefined => {
    const { request } = state;
    if (request?.kind !== "grant") return undefined;
    const answered = { kind: "answered", request: request.id } as const;
    const next = step(state, answered, known, moment).state.request;
    return next?.kind === "commit" ? next.transaction.puts[0]?.write.key : undefined;
  };
  const others = { kind: "departed", owners: new Set([9 as OwnerId]) } as const;
  t.is(written(step(waiting, others, known, moment).state), undefined);
  const event = { kind: "departed", owners: new Set([gone]) } as const;
  // Of its leases the one that names this host's address.
  t.is(written(step(waiting, event, known, moment).state), "/net/subnets/10.77.9.0-24");
  t.is(written(step(waiting, { kind: "join" }, known, moment).state), undefined);
  const asked = step(waiting, { kind: "join", takeOver: true }, known, moment).state;
  t.is(written(asked), "/net/subnets/10.77.9.0-24");
});

test("a clone with the mark but another address and no memory takes subnets of its own", (t) => {
  const marked = stored("10.77.9.0-24", { PublicIP: "192.168.77.200" }, grantOf(host.owner, 0.1));
  const known = registryOf(marked);
  const after = (state: LeaseState): string => {
    const answered = { kind: "answered", request: state.request?.id ?? 0 } as const;
    const { request } = step(state, answered, known, { at: 2, draw: 0.5 }).state;
    return request?.kind === "commit" ? (request.transaction.puts[0]?.write.key ?? "") : "";
  };
  t.not(after(begun(known)), marked.key);
  // Who remembers the subnets has only moved.
  t.is(after(begun(known, four("10.77.9.0/24"))), marked.key);
});

test("an answer that comes after the event of what it did changes nothing", (t) => {
  const key = "/net/subnets/10.77.1.0-24";
  const write = { key, value: '{"PublicIP":"192.168.77.1"}' } as LeaseWrite;
  const transaction = {
    compares: [{ key, modRevision: 0n }],
    puts: [{ write, grant: 5n }],
    deletes: [],
  };
  const early = new Registry();
  early.apply({ kind: "snapshot", cluster: 1n, revision: 4n, keys: [] });
  t.is(early.learn(transaction, { kind: "done", revision: 5n }).length, 1);
  // It was put at 5, and deleted at 6.
  const late = new Registry();
  late.apply({ kind: "snapshot", cluster: 1n, revision: 6n, keys: [] });
  t.deepEqual(late.learn(transaction, { kind: "done", revision: 5n }), []);
  t.is(late.size, 0);
});

test("an etcd lease that is gone before anything has it is not asked for again", (t) => {
  const known = registryOf();
  const first = begun(known);
  const answered = { kind: "answered", request: first.request?.id ?? 0 } as const;
  const asked = step(first, answered, known, { at: 2, draw: 0.5 }).state;
  t.is(asked.request?.kind, "commit");
  /** What is called next, when this has been the answer. */
  const after = (error: PodnetError): readonly LeaseCommand[] => {
    const failed = { kind: "failed", request: asked.request?.id ?? 0, error } as const;
    const { state } = step(asked, failed, known, { at: 3, draw: 0.5 });
    return step(state, { kind: "tick" }, known, { at: 10_000, draw: 0.5 }).commands;
  };
  // Lost on its way there or back, for all that is known: the same again, with the same lease.
  const [again] = after(etcdError("ETCD_UNREACHABLE", "no answer"));
  t.deepEqual(again, { ...(asked.request as Request), id: 3 });
  const [fresh] = after(etcdError("ETCD_LEASE_GONE", "no such lease"));
  t.is(fresh?.kind, "grant");
});

/**
 * A host that has been granted a key: what it knows, how it stands but for the key, and what is its
 * own then.
 */
function granted(): { known: Registry; state: LeaseState; own: Own } {
  const subnets = four("10.77.9.0/24");
  const key = leaseKey(prefix, subnets);
  const grant = grantOf(host.owner, 0.1);
  const said = leaseWrite({
    prefix,
    config: v4,
    host,
    subnets,
    leases: registryOf(),
    without: new Set(),
  });
  const text = said.kind === "write" ? said.write.value : "";
  const known = registryOf(stored("10.77.9.0-24", text, grant));
  const own = { subnets, key, grant, grantedAt: 0, text };
  return {
    known,
    state: { ...begun(known, subnets), candidate: undefined, request: undefined },
    own,
  };
}
const deletesOf = ({ request }: LeaseState): readonly string[] =>
  request?.kind === "commit" && request.transaction.puts.length === 0
    ? request.transaction.deletes
    : [];
const lost = etcdError("ETCD_UNREACHABLE", "no answer");

test("a host on probation that asked for its key to go without an answer does not keep it, whoever else goes", (t) => {
  const { known, state, own } = granted();
  const faster = { ...stored("10.77.9.0-25", { PublicIP: "192.168.77.9" }), createRevision: 1n };
  known.apply({ kind: "changes", revision, events: [{ kind: "put", at: faster }] });
  const trial: LeaseState = { ...state, probation: { own, until: revision } };
  const yielding = step(trial, { kind: "tick" }, known, { at: 5, draw: 0.5 }).state;
  t.deepEqual(deletesOf(yielding), [own.key]);
  const { key } = faster;
  known.apply({
    kind: "changes",
    revision: ++revision,
    events: [{ kind: "delete", key, modRevision: revision }],
  });
  const alone = step(yielding, { kind: "leases" }, known, { at: 6, draw: 0.5 }).state;
  const failed = { kind: "failed", request: alone.request?.id ?? 0, error: lost } as const;
  const unsure = step(alone, failed, known, { at: 7, draw: 0.5 }).state;
  t.is(unsure.own, undefined);
  const asking = step(unsure, { kind: "tick" }, known, { at: 20_000, draw: 0.5 }).state;
  t.is(asking.own, undefined);
  t.deepEqual(deletesOf(asking), [own.key]);
  // A key that was written since cannot be taken by what is on its way; without such a call there
  // is nothing to wait for.
  const since = { ...stored("10.77.9.0-24", own.text, own.grant), createRevision: 2n };
  known.apply({ kind: "changes", revision, events: [{ kind: "put", at: since }] });
  const refused = { kind: "failed", request: asking.request?.id ?? 0, error: lost } as const;
  t.is(step(asking, refused, known, { at: 20_001, draw: 0.5 }).state.own?.key, own.key);
  const { known: quiet, ...never } = granted();
  const untried: LeaseState = { ...never.state, probation: { own: never.own, until: revision } };
  const kept = step(untried, { kind: "tick" }, quiet, { at: 5, draw: 0.5 }).state;
  t.is(kept.own?.key, own.key);
});

test("a host that makes its lost key again says so when another host took the subnets first by another key", (t) => {
  const { known, state, own } = granted();
  const { key } = own;
  const goneAt = ++revision;
  known.apply({
    kind: "changes",
    revision,
    events: [{ kind: "delete", key, modRevision: goneAt }],
  });
  const gone = step({ ...state, own }, { kind: "leases" }, known, { at: 5, draw: 0.5 }).state;
  t.deepEqual(troublesOf(gone), ["lost"]);
  const spare = { kind: "answered", request: gone.request?.id ?? 0 } as const;
  const asked = step(gone, spare, known, { at: 6, draw: 0.5 }).state;
  const request = asked.request as Request & { kind: "commit" };
  const faster = stored("10.77.9.0-25", { PublicIP: "192.168.77.9" }, grantOf(8 as OwnerId, 0.1));
  const committed = { kind: "done", revision: ++revision } as const;
  known.learn(request.transaction, committed);
  const answer = { kind: "committed", request: request.id, committed } as const;
  const back = step(asked, answer, known, { at: 7, draw: 0.5 }).state;
  t.deepEqual([back.own?.key, troublesOf(back)], [key, []]);
  known.apply({ kind: "changes", revision, events: [{ kind: "put", at: faster }] });
  const reported = step(back, { kind: "leases" }, known, { at: 8, draw: 0.5 }).state;
  t.deepEqual([reported.own?.key, troublesOf(reported)], [key, ["taken"]]);
  t.is(leaseStatus(reported).phase, "lost");
  const over = { kind: "delete", key: faster.key, modRevision: ++revision } as const;
  known.apply({ kind: "changes", revision, events: [over] });
  t.deepEqual(
    troublesOf(step(reported, { kind: "leases" }, known, { at: 9, draw: 0.5 }).state),
    [],
  );
});

test("a host that joins again while it is unknown whether its key was deleted has it deleted first", (t) => {
  const { known, state, own } = granted();
  const empty: LeaseState = { ...state, own, intended: "leave", drain: "done" };
  const leaving = step(empty, { kind: "tick" }, known, { at: 5, draw: 0.5 }).state;
  t.deepEqual(deletesOf(leaving), [own.key]);
  const failed = { kind: "failed", request: leaving.request?.id ?? 0, error: lost } as const;
  const unsure = step(leaving, failed, known, { at: 6, draw: 0.5 }).state;
  const again = step(unsure, { kind: "join" }, known, { at: 20_000, draw: 0.5 });
  t.deepEqual(
    again.commands.map(({ kind }) => kind),
    ["commit"],
  );
  t.deepEqual(deletesOf(again.state), [own.key]);
  t.is(leaseStatus(again.state).phase, "draining");
  const asked = again.state.request as Request & { kind: "commit" };
  const committed = { kind: "done", revision: ++revision } as const;
  known.learn(asked.transaction, committed);
  const answer = { kind: "committed", request: asked.id, committed } as const;
  const gone = step(again.state, answer, known, { at: 20_001, draw: 0.5 }).state;
  t.is(gone.own, undefined);
  const spare = { kind: "answered", request: gone.request?.id ?? 0 } as const;
  const back = step(gone, spare, known, { at: 20_002, draw: 0.5 }).state;
  // Equal subnets.
  t.deepEqual(back.candidate, own.subnets);
});

test("a reservation that its host wrote into is still its own at another address", (t) => {
  const moment = { at: 5, draw: 0.5 };
  const renewed = { ...host, attributes: { type: "host-gw" } as const };
  const said = {
    PublicIP: host.publicIp,
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC: mac },
  };
  const subnets = four("10.77.9.0/24");
  const key = leaseKey(prefix, subnets);
  const known = registryOf(stored("10.77.9.0-24", said, 0n));
  // Granted once, and made a reservation since.
  const own = { subnets, key, grant: 5n, grantedAt: 0, text: JSON.stringify(said) };
  const first = { ...begun(known, subnets), own, candidate: undefined, request: undefined };
  const written = step(first, { kind: "host", host: renewed }, known, moment).state;
  const request = written.request;
  const put = request?.kind === "commit" ? request.transaction.puts[0] : undefined;
  t.is(put?.grant, 0n);
  // Done, and the answer lost.
  const at = { ...stored("10.77.9.0-24", put?.write.value ?? "", 0n), createRevision: 2n };
  known.apply({ kind: "changes", revision, events: [{ kind: "put", at }] });
  const error = etcdError("ETCD_UNREACHABLE", "no answer");
  const failed = { kind: "failed", request: request?.id ?? 0, error } as const;
  const { state } = step(written, failed, known, moment);
  const moved = { ...renewed, publicIp: "192.168.77.99" as Ipv4 };
  const after = step(state, { kind: "host", host: moved }, known, { at: 20_000, draw: 0.5 }).state;
  t.deepEqual(troublesOf(after), []);
  t.is(after.request?.kind, "commit");
});
