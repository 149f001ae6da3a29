import { assertNever } from "../core/brand.ts";
import { configOrTrouble } from "./flannel/config.ts";
import { leaseKey } from "./flannel/key.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import { type Intent, intentOf, type Resolved, without } from "./intent.ts";
import type {
  LeaseCommand,
  LeaseEvent,
  LeaseState,
  Moment,
  Own,
  Request,
  Since,
  Spare,
  Trouble,
} from "./lease-state.ts";
import { grantOf } from "./owner.ts";
import type { Lease, Leases } from "./registry.ts";
import type { LeaseTransaction, Revision } from "./store.ts";

/** How often the configuration is asked for while there is none, milliseconds. */
const configEveryMs = 1000;
/** Longest pause after calls that failed, milliseconds. */
const longestPauseMs = 5000;

export interface Step {
  readonly state: LeaseState;
  readonly commands: readonly LeaseCommand[];
}

/**
 * One host's lease: what is to be done when something happens. Pure, and never throws: time and chance come with the event, and
 * `leases` is what is known of the store, with what this host's own transactions have taught (`Registry.learn`).
 */
export function step(state: LeaseState, event: LeaseEvent, leases: Leases, moment: Moment): Step {
  const taken = take(state, event, moment);
  const settled = settle(taken.state, leases, moment);
  return { state: settled.state, commands: [...taken.commands, ...settled.commands] };
}

const only = (state: LeaseState): Step => ({ state, commands: [] });

/** What the event says, put down. */
function take(state: LeaseState, event: LeaseEvent, moment: Moment): Step {
  switch (event.kind) {
    case "tick":
      return only(state);
    case "leases":
      return only({ ...state, listed: true, staleSince: undefined });
    case "stale":
      return only({ ...state, staleSince: state.staleSince ?? moment.at });
    case "current":
      return only({ ...state, staleSince: undefined });
    case "host":
      return only({ ...state, host: event.host });
    case "leave":
      return only({ ...state, wish: "leave" });
    case "join":
      return only({ ...state, wish: "join" });
    case "drained":
      return only(state.drain === "asked" ? { ...state, drain: "done" } : state);
    case "config":
      return only(withConfig(state, event, moment));
    case "answered":
    case "committed":
    case "failed":
      return event.request === state.request?.id
        ? answered({ ...state, request: undefined }, state.request, event, moment)
        : only(state);
    default:
      return assertNever(event);
  }
}

/** A configuration that is gone or broken leaves the last good one in force. */
function withConfig(
  state: LeaseState,
  { text, revision, request }: LeaseEvent & { kind: "config" },
  { at }: Moment,
): LeaseState {
  const own = request !== undefined && request === state.request?.id;
  const free = own ? { ...state, request: undefined, failures: 0 } : state;
  if (revision < state.configRevision) return free;
  const known = { ...free, configRevision: revision };
  const config = text === undefined ? undefined : configOrTrouble(text);
  const others = known.troubles.filter(({ kind }) => !isOfConfig(kind));
  if (config !== undefined && !(config instanceof PodnetError))
    return { ...known, config, notBefore: at, troubles: others };
  const trouble: Trouble =
    config === undefined ? { kind: "config-missing" } : { kind: "config-invalid", error: config };
  return {
    ...known,
    notBefore: state.config === undefined ? at + configEveryMs : state.notBefore,
    troubles: [...others, since(known, trouble, at)],
  };
}

const isOfConfig = (kind: Trouble["kind"]): boolean =>
  kind === "config-missing" || kind === "config-invalid";

/** A trouble of the same kind is the same trouble, and has gone on since then. */
const since = ({ troubles }: LeaseState, trouble: Trouble, at: number): Since<Trouble> => ({
  ...trouble,
  since: troubles.find(({ kind }) => kind === trouble.kind)?.since ?? at,
});

function answered(
  state: LeaseState,
  request: Request,
  event: LeaseEvent & { kind: "answered" | "committed" | "failed" },
  moment: Moment,
): Step {
  if (event.kind === "failed")
    return only(afterFailure(withoutGone(state, request, event.error), event.error, moment));
  const well = {
    ...state,
    failures: 0,
    troubles: state.troubles.filter(({ kind }) => kind !== "failing"),
  };
  if (request.kind === "grant")
    return only({ ...well, spare: { grant: request.grant, at: request.at } });
  if (request.kind === "cancel") return only({ ...well, candidate: undefined, spare: undefined });
  if (request.kind !== "commit" || event.kind !== "committed") return only(well);
  // Somebody was faster, and now it is known who: another choice, or another try.
  if (event.committed.kind === "refused") {
    const losses = well.losses + (well.candidate === undefined ? 0 : 1);
    return only({ ...well, candidate: undefined, losses });
  }
  return committed(well, request.transaction, event.committed.revision, moment);
}

/**
 * An etcd lease may end before anything has it: by a call to end it whose answer was lost, by an administrator, with an etcd
 * that was restored. What would have put something with it cannot be done any more: the next try takes another.
 */
const withoutGone = (state: LeaseState, { kind }: Request, error: unknown): LeaseState =>
  kind === "commit" && isPodnetError(error, "ETCD_LEASE_GONE")
    ? { ...state, spare: undefined }
    : state;

function afterFailure(state: LeaseState, error: unknown, { at, draw }: Moment): LeaseState {
  const failures = state.failures + 1;
  const pause = Math.min(longestPauseMs, 250 * 2 ** Math.min(failures, 10)) * (0.5 + draw / 2);
  const others = state.troubles.filter(({ kind }) => kind !== "failing");
  const failing = since(state, { kind: "failing", error }, at);
  return { ...state, failures, notBefore: at + pause, troubles: [...others, failing] };
}

/** A transaction was done: what it put is this host's, and what it deleted no longer. */
function committed(
  state: LeaseState,
  { compares, puts, deletes }: LeaseTransaction,
  revision: Revision,
  { at }: Moment,
): Step {
  const [put] = puts;
  if (put === undefined)
    return state.own !== undefined && deletes.includes(state.own.key) ? letGo(state) : only(state);
  const { write, grant } = put;
  const subnets = state.candidate ?? state.own?.subnets;
  if (subnets === undefined) return only(state);
  const grantedAt = state.spare?.grant === grant ? state.spare.at : at;
  const made = compares.some(({ key, modRevision }) => key === write.key && modRevision === 0n);
  const own: Own = { subnets, key: write.key, grant, grantedAt, text: write.value, regained: made };
  return state.candidate === undefined ? withOwn(state, own) : onProbation(state, own, revision);
}

/** What the host had before, if it is to have others, went with the same transaction. */
function onProbation(state: LeaseState, own: Own, until: Revision): Step {
  const former = state.own?.grant ?? 0n;
  const spare = state.spare?.grant === own.grant ? undefined : state.spare;
  return {
    state: {
      ...state,
      own: undefined,
      candidate: undefined,
      probation: { own, until },
      spare,
      drain: "no",
    },
    commands: former === 0n || former === own.grant ? [] : [{ kind: "revoke", grant: former }],
  };
}

function withOwn(state: LeaseState, own: Own): Step {
  const former = state.own?.grant ?? 0n;
  // (What was made by a host that had none has been on probation.)
  const regained =
    state.own !== undefined && (state.own.regained === true || own.regained === true);
  return {
    state: {
      ...state,
      own: { ...own, regained },
      previous: own.subnets,
      candidate: undefined,
      probation: undefined,
      spare: state.spare?.grant === own.grant ? undefined : state.spare,
      losses: 0,
    },
    commands: former === 0n || former === own.grant ? [] : [{ kind: "revoke", grant: former }],
  };
}

/** The subnets are given up; they are the first to be asked for if the host joins again. */
function letGo(state: LeaseState): Step {
  const grants = [state.own?.grant ?? 0n, state.spare?.grant ?? 0n].filter((grant) => grant !== 0n);
  return {
    state: { ...state, own: undefined, spare: undefined, drain: "no" },
    commands: grants.map((grant) => ({ kind: "revoke", grant })),
  };
}

/** Somebody was first: other subnets, and another grant. */
function dropped(state: LeaseState): Step {
  const grant = state.probation?.own.grant ?? 0n;
  return {
    state: { ...state, probation: undefined },
    commands: grant === 0n ? [] : [{ kind: "revoke", grant }],
  };
}

/** Brings the state nearer to what is wanted, until something has to be waited for. */
function settle(state: LeaseState, leases: Leases, moment: Moment): Step {
  let now: LeaseState = { ...state, wakeAt: undefined };
  const commands: LeaseCommand[] = [];
  if (now.request !== undefined) return only(now);
  if (now.config === undefined) return askConfig(now, moment);
  if (!now.listed) return only(now);
  // Each round takes one of a few steps that are not taken twice, and the last of them waits.
  for (let round = 0; round < 8; round++) {
    const { intent, troubles } = intentOf(now, now.config as never, leases, moment);
    now = withTroubles(now, troubles, moment);
    const next = act(now, intent, moment);
    now = next.state;
    commands.push(...next.commands);
    if (intent.kind === "rest" || now.request !== undefined || now.wakeAt !== undefined) break;
  }
  return { state: now, commands };
}

function askConfig(state: LeaseState, { at }: Moment): Step {
  if (at < state.notBefore) return only({ ...state, wakeAt: state.notBefore });
  return asked(state, { kind: "config", id: state.nextRequest });
}

const asked = (state: LeaseState, request: Request): Step => ({
  state: { ...state, request, nextRequest: request.id + 1 },
  commands: [request],
});

function withTroubles(
  state: LeaseState,
  troubles: readonly Resolved["troubles"][number][],
  { at }: Moment,
): LeaseState {
  const kept = state.troubles.filter(({ kind }) => isOfConfig(kind) || kind === "failing");
  return { ...state, troubles: [...kept, ...troubles.map((one) => since(state, one, at))] };
}

function act(state: LeaseState, intent: Intent, moment: Moment): Step {
  switch (intent.kind) {
    case "rest":
      // What had failed was done all the same, or is of no use any more.
      return only({
        ...state,
        wakeAt: intent.until,
        failures: 0,
        troubles: state.troubles.filter(({ kind }) => kind !== "failing"),
      });
    case "settled": {
      const own = settledOwn(intent.lease, state, moment);
      return state.candidate === undefined
        ? withOwn(state, own)
        : onProbation(state, own, intent.lease.modRevision);
    }
    case "confirmed":
      return state.probation === undefined ? only(state) : withOwn(state, state.probation.own);
    case "dropped":
      return dropped(state);
    case "let-go":
      return letGo(state);
    case "drain":
      return {
        state: { ...state, drain: "asked" },
        commands: [{ kind: "drain", subnets: intent.subnets }],
      };
    case "undrain":
      return { state: { ...state, drain: "no" }, commands: [{ kind: "undrain" }] };
    case "commit":
      return commit(state, intent, moment);
    case "part":
      return part(state, intent.lease, moment);
    case "cancel":
      return cancel(state, moment);
    default:
      return assertNever(intent);
  }
}

/** Since when a grant runs is known of the spare one; any other is renewed at once. */
function settledOwn(lease: Lease, { spare, settings }: LeaseState, { at }: Moment): Own {
  const { subnets, grant, text } = lease;
  const regained = lease.createRevision === lease.modRevision;
  const grantedAt = spare?.grant === grant ? spare.at : at - settings.ttlSeconds * 1000;
  return { subnets, key: leaseKey(settings.prefix, subnets), grant, grantedAt, text, regained };
}

function commit(state: LeaseState, intent: Intent & { kind: "commit" }, moment: Moment): Step {
  const { at, draw } = moment;
  if (at < state.notBefore) return only({ ...state, wakeAt: state.notBefore });
  const id = state.nextRequest;
  if (intent.fresh && !isFresh(state.spare, state, at)) {
    const grant = grantOf(state.host.owner, draw);
    return asked({ ...state, spare: undefined }, { kind: "grant", id, grant, at });
  }
  const transaction = intent.transaction(state.spare?.grant ?? 0n);
  const candidate = intent.candidate ?? state.candidate;
  return asked({ ...state, candidate }, { kind: "commit", id, transaction });
}

/** It is put down before it is asked for: an answer may never come. */
function part(state: LeaseState, lease: Lease, { at }: Moment): Step {
  if (at < state.notBefore) return only({ ...state, wakeAt: state.notBefore });
  const { own, probation, nextRequest: id } = state;
  const parting = lease.modRevision;
  const asking: LeaseState = {
    ...state,
    own: own && { ...own, parting },
    probation: probation && { ...probation, own: { ...probation.own, parting } },
  };
  return asked(asking, { kind: "commit", id, transaction: without([lease]) });
}

function cancel(state: LeaseState, { at }: Moment): Step {
  if (state.spare === undefined) return only({ ...state, candidate: undefined });
  if (at < state.notBefore) return only({ ...state, wakeAt: state.notBefore });
  return asked(state, { kind: "cancel", id: state.nextRequest, grant: state.spare.grant });
}

/** Half of its time is still to come. */
const isFresh = (spare: Spare | undefined, { settings }: LeaseState, at: number): boolean =>
  spare !== undefined && at - spare.at < settings.ttlSeconds * 500;
