import test from "ava";
import type { Ipv4 } from "../../../core/address.ts";
import type { PodnetError } from "../../../core/errors.ts";
import { etcdError } from "../../../etcd/errors.ts";
import { leaseWrite } from "../../../overlay/claim.ts";
import { leaseKey, type Subnets } from "../../../overlay/flannel/key.ts";
import {
  beginning,
  type LeaseCommand,
  type LeaseState,
  type Own,
  type Request,
} from "../../../overlay/lease-state.ts";
import { leaseStatus } from "../../../overlay/lease-status.ts";
import { step } from "../../../overlay/lease.ts";
import { grantOf, type OwnerId } from "../../../overlay/owner.ts";
import { Registry } from "../../../overlay/registry.ts";
import type { LeaseWrite } from "../../../overlay/store.ts";
import { four, host, mac, prefix, registryOf, store, stored, v4 } from "./fixtures/leases.ts";

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
  known.apply({ kind: "changes", revision: store.revision, events: [{ kind: "put", at: faster }] });
  const trial: LeaseState = { ...state, probation: { own, until: store.revision } };
  const yielding = step(trial, { kind: "tick" }, known, { at: 5, draw: 0.5 }).state;
  t.deepEqual(deletesOf(yielding), [own.key]);
  const { key } = faster;
  known.apply({
    kind: "changes",
    revision: ++store.revision,
    events: [{ kind: "delete", key, modRevision: store.revision }],
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
  known.apply({ kind: "changes", revision: store.revision, events: [{ kind: "put", at: since }] });
  const refused = { kind: "failed", request: asking.request?.id ?? 0, error: lost } as const;
  t.is(step(asking, refused, known, { at: 20_001, draw: 0.5 }).state.own?.key, own.key);
  const { known: quiet, ...never } = granted();
  const untried: LeaseState = {
    ...never.state,
    probation: { own: never.own, until: store.revision },
  };
  const kept = step(untried, { kind: "tick" }, quiet, { at: 5, draw: 0.5 }).state;
  t.is(kept.own?.key, own.key);
});

test("a host that makes its lost key again says so when another host took the subnets first by another key", (t) => {
  const { known, state, own } = granted();
  const { key } = own;
  const goneAt = ++store.revision;
  known.apply({
    kind: "changes",
    revision: store.revision,
    events: [{ kind: "delete", key, modRevision: goneAt }],
  });
  const gone = step({ ...state, own }, { kind: "leases" }, known, { at: 5, draw: 0.5 }).state;
  t.deepEqual(troublesOf(gone), ["lost"]);
  const spare = { kind: "answered", request: gone.request?.id ?? 0 } as const;
  const asked = step(gone, spare, known, { at: 6, draw: 0.5 }).state;
  const request = asked.request as Request & { kind: "commit" };
  const faster = stored("10.77.9.0-25", { PublicIP: "192.168.77.9" }, grantOf(8 as OwnerId, 0.1));
  const committed = { kind: "done", revision: ++store.revision } as const;
  known.learn(request.transaction, committed);
  const answer = { kind: "committed", request: request.id, committed } as const;
  const back = step(asked, answer, known, { at: 7, draw: 0.5 }).state;
  t.deepEqual([back.own?.key, troublesOf(back)], [key, []]);
  known.apply({ kind: "changes", revision: store.revision, events: [{ kind: "put", at: faster }] });
  const reported = step(back, { kind: "leases" }, known, { at: 8, draw: 0.5 }).state;
  t.deepEqual([reported.own?.key, troublesOf(reported)], [key, ["taken"]]);
  t.is(leaseStatus(reported).phase, "lost");
  const over = { kind: "delete", key: faster.key, modRevision: ++store.revision } as const;
  known.apply({ kind: "changes", revision: store.revision, events: [over] });
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
  const committed = { kind: "done", revision: ++store.revision } as const;
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
  known.apply({ kind: "changes", revision: store.revision, events: [{ kind: "put", at }] });
  const error = etcdError("ETCD_UNREACHABLE", "no answer");
  const failed = { kind: "failed", request: request?.id ?? 0, error } as const;
  const { state } = step(written, failed, known, moment);
  const moved = { ...renewed, publicIp: "192.168.77.99" as Ipv4 };
  const after = step(state, { kind: "host", host: moved }, known, { at: 20_000, draw: 0.5 }).state;
  t.deepEqual(troublesOf(after), []);
  t.is(after.request?.kind, "commit");
});
