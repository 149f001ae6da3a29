import { acquire } from "./acquire.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import { leaseKey } from "./flannel/key.ts";
import {
  again,
  create,
  type Intent,
  type Resolved,
  resolved,
  rest,
  without,
} from "./intent-kinds.ts";
import { type LeaseState, type Moment, type Own, renewalAt, type Trouble } from "./lease-state.ts";
import { claimOf, ownLeases, refusalOf } from "./own-leases.ts";
import { ownerOf } from "./owner.ts";
import type { Lease, Leases } from "./registry.ts";
import type { GrantId, LeaseTransaction } from "./store.ts";
import { fits, meet } from "./subnets.ts";

const alsoIn = (trouble: Trouble, { intent, troubles }: Resolved): Resolved => ({
  intent,
  troubles: [trouble, ...troubles],
});

/** Decides from the current state only; earlier intents do not matter. */
export function intentOf(
  state: LeaseState,
  config: OverlayConfig,
  leases: Leases,
  moment: Moment,
): Resolved {
  const { own, candidate, probation, intended } = state;
  if (probation !== undefined) return onProbation(state, probation, leases);
  if (candidate !== undefined) {
    const entry = leases.get(leaseKey(state.settings.prefix, candidate));
    if (entry?.kind === "lease" && ownerOf(entry.grant) === state.host.owner)
      return resolved({ kind: "acquired", lease: entry });
    return acquire(state, config, leases, moment);
  }
  if (own === undefined) {
    // (A lease of before a restart is taken up once more, so that it is given up in good order.)
    const done =
      intended === "leave" &&
      !ownLeases(state, config, leases).some(({ grant }) => ownerOf(grant) !== undefined);
    return done ? resolved(rest) : acquire(state, config, leases, moment);
  }
  const entry = leases.get(own.key);
  if (entry?.kind === "lease" && entry.grant !== own.grant && entry.grant === state.spare?.grant)
    return resolved({ kind: "acquired", lease: entry });
  const parting = partingOf(own, entry);
  if (parting !== undefined) return resolved({ kind: "part", lease: parting });
  const draining = drainOf(state, own, config);
  if (draining !== undefined) return resolved(draining);
  if (state.drain === "done")
    return intended === "leave"
      ? leave(own, entry, state)
      : alsoIn({ kind: "misfit", subnets: own.subnets }, acquire(state, config, leases, moment));
  if (entry === undefined) return lost(state, own, config, leases);
  if (entry.kind === "skipped" || !isHolder(state, own, entry)) {
    const holder = entry.kind === "lease" ? (entry.value.publicIp ?? entry.key) : entry.key;
    return resolved(rest, { kind: "taken", subnets: own.subnets, holder });
  }
  return held(state, own, entry, { config, leases, moment });
}

/** The earlier key has the subnets; the other host chooses again before anything uses them. */
function onProbation(
  state: LeaseState,
  { own, until }: NonNullable<LeaseState["probation"]>,
  leases: Leases,
): Resolved {
  const entry = leases.get(own.key);
  if (entry?.kind !== "lease" || !isHolder(state, own, entry)) return resolved({ kind: "dropped" });
  const parting = partingOf(own, entry);
  if (parting !== undefined) return resolved({ kind: "part", lease: parting });
  if (leases.revision === undefined || leases.revision < until) return resolved(rest);
  if (firstWith(entry, leases) === undefined) return resolved({ kind: "confirmed" });
  return resolved({ kind: "part", lease: entry });
}

/** An earlier key of another host with a lease's subnets, or a part of them. */
const firstWith = ({ key, subnets, createRevision }: Lease, leases: Leases): Lease | undefined =>
  [...leases].find(
    (other): other is Lease =>
      other.kind === "lease" &&
      other.key !== key &&
      other.createRevision < createRevision &&
      meet(other.subnets, subnets),
  );

/**
 * The lease whose key is being deleted. A requested deletion is completed, whatever has changed
 * meanwhile: a call with an unknown outcome could otherwise delete the key later, while pods use
 * the subnets.
 */
const partingOf = ({ parting }: Own, entry: ReturnType<Leases["get"]>): Lease | undefined =>
  entry?.kind === "lease" && entry.modRevision === parting ? entry : undefined;

/**
 * Whether this host holds the lease: the grant is the one it was written with (a clone has the mark
 * as well), or the text is what this host wrote and the grant bears no host's mark, as when the
 * lease becomes a reservation or stops being one. A reservation for this host's address may have
 * another text.
 */
function isHolder({ host }: LeaseState, own: Own, lease: Lease): boolean {
  if (lease.grant === own.grant) return true;
  if (ownerOf(lease.grant) !== undefined) return false;
  const { publicIp, publicIp6 } = lease.value;
  return (
    lease.text === own.text ||
    (lease.grant === 0n && publicIp !== undefined && publicIp === host.publicIp) ||
    (lease.grant === 0n && publicIp6 !== undefined && publicIp6 === host.publicIp6)
  );
}

function drainOf(
  { intended, drain, settings }: LeaseState,
  { subnets }: Own,
  config: OverlayConfig,
): Intent | undefined {
  const wanted = intended === "leave" || (settings.misfit === "drain" && !fits(subnets, config));
  if (wanted === (drain !== "no")) return undefined;
  return wanted ? { kind: "drain", subnets } : { kind: "undrain" };
}

/** Leaves the empty subnets. A reservation is kept. */
function leave(own: Own, entry: ReturnType<Leases["get"]>, state: LeaseState): Resolved {
  if (entry?.kind !== "lease" || entry.grant === 0n || !isHolder(state, own, entry))
    return resolved({ kind: "let-go" });
  return resolved({ kind: "part", lease: entry });
}

/**
 * The key was lost while pods use the subnets: claims them again, unless another host has them by
 * now.
 */
function lost(state: LeaseState, own: Own, config: OverlayConfig, leases: Leases): Resolved {
  const { subnets } = own;
  const trouble: Trouble = { kind: "lost", subnets };
  const mine = ownLeases(state, config, leases);
  for (const entry of leases)
    if (entry.kind === "lease" && meet(entry.subnets, subnets) && !mine.includes(entry))
      return resolved(rest, { kind: "taken", subnets, holder: entry.value.publicIp ?? entry.key });
  const claim = claimOf(state, subnets, config, leases);
  if (claim.kind !== "write") return resolved(rest, trouble, refusalOf(claim, subnets));
  return resolved(create(claim.write), trouble);
}

interface Around {
  readonly config: OverlayConfig;
  readonly leases: Leases;
  readonly moment: Moment;
}

function held(state: LeaseState, own: Own, entry: Lease, around: Around): Resolved {
  const { config, leases, moment } = around;
  const misfit = !fits(own.subnets, config);
  const troubles: Trouble[] = misfit ? [{ kind: "misfit", subnets: own.subnets }] : [];
  const first = own.regained === true ? firstWith(entry, leases) : undefined;
  if (first !== undefined)
    troubles.push({
      kind: "taken",
      subnets: own.subnets,
      holder: first.value.publicIp ?? first.key,
    });
  const due = renewalAt(state.settings, own.grantedAt);
  const permanent = entry.grant === 0n;
  const claim = claimOf(state, own.subnets, config, leases);
  const isDue = !permanent && (moment.at >= due || entry.grant !== own.grant);
  if (claim.kind !== "write") {
    troubles.push(refusalOf(claim, own.subnets));
    // Another host has its address now: the key keeps its value, and is kept alive.
    if (claim.kind === "shared" && isDue) return resolved(again(entry), ...troubles);
    return resolved(rest, ...troubles);
  }
  // This host wrote the value, but the answer was lost. The text alone identifies the reservation
  // as its own if its address changes one day.
  if (permanent && claim.write.value === entry.text && own.text !== entry.text)
    return resolved({ kind: "acquired", lease: entry }, ...troubles);
  if (isDue || claim.write.value !== entry.text) {
    const transaction = (grant: GrantId): LeaseTransaction => ({
      compares: [{ key: entry.key, modRevision: entry.modRevision }],
      puts: [{ write: claim.write, grant: permanent ? 0n : grant }],
      deletes: [],
    });
    return resolved({ kind: "commit", fresh: !permanent, transaction }, ...troubles);
  }
  // Every key of the host's but its own: a start that was cut short leaves one behind.
  const strays = ownLeases(state, config, leases).filter(
    ({ key, grant }) => key !== own.key && grant !== 0n,
  );
  if (strays.length > 0)
    return resolved(
      { kind: "commit", fresh: false, transaction: () => without(strays) },
      ...troubles,
    );
  return resolved(permanent ? rest : { kind: "rest", until: due }, ...troubles);
}
