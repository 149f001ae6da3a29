import { assertNever } from "../core/brand.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import { configOrTrouble } from "./flannel/config.ts";
import { letGo, only, onProbation, type Step, withOwn } from "./lease-holding.ts";
import type { LeaseEvent, LeaseState, Moment, Own, Request, Trouble } from "./lease-state.ts";
import { isOfConfig, since } from "./lease-troubles.ts";
import type { LeaseTransaction, Revision } from "./store.ts";

/** The interval at which a missing configuration is queried, in milliseconds. */
const configEveryMs = 1000;
/** Longest pause after calls that failed, milliseconds. */
const longestPauseMs = 5000;
/**
 * Transactions that others overtook, one after the other, before there is a pause: many hosts may
 * begin at once.
 */
const fewRefusals = 5;

/** Records the event in the state. */
export function take(state: LeaseState, event: LeaseEvent, moment: Moment): Step {
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
      return only({ ...state, intended: "leave" });
    case "join":
      return only({
        ...state,
        intended: "join",
        takesOver: state.takesOver || event.takeOver === true,
      });
    case "departed":
      return only({ ...state, departed: event.owners });
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

/** A configuration that is gone, broken or refused leaves the last good one in force. */
function withConfig(
  state: LeaseState,
  { text, revision, request, refusal }: LeaseEvent & { kind: "config" },
  { at }: Moment,
): LeaseState {
  const own = request !== undefined && request === state.request?.id;
  const free = own ? { ...state, request: undefined, failures: 0 } : state;
  if (revision < state.configRevision) return free;
  const known = { ...free, configRevision: revision };
  const config = text === undefined ? undefined : (refusal ?? configOrTrouble(text));
  // Without a configuration nothing else is requested, so that request has failed.
  const first = state.config === undefined;
  const others = known.troubles.filter(
    ({ kind }) => !isOfConfig(kind) && !(first && kind === "failing"),
  );
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
  if (event.committed.kind === "refused") return only(afterRefusal(state, moment));
  return committed(well, request.transaction, event.committed.revision, moment);
}

/**
 * Another host was faster, and is now known: choose again, or retry. If etcd goes on refusing, the
 * retries become rarer, as after failures.
 */
function afterRefusal(state: LeaseState, { at, draw }: Moment): LeaseState {
  const losses = state.losses + (state.candidate === undefined ? 0 : 1);
  const failures = state.failures + 1;
  const pause = failures > fewRefusals ? pauseAfter(failures - fewRefusals, draw) : 0;
  const troubles = state.troubles.filter(({ kind }) => kind !== "failing");
  return { ...state, candidate: undefined, losses, failures, notBefore: at + pause, troubles };
}

/** Doubled with each failure, and drawn, so that many hosts do not come at once. */
const pauseAfter = (failures: number, draw: number): number =>
  Math.min(longestPauseMs, 250 * 2 ** Math.min(failures, 10)) * (0.5 + draw / 2);

/**
 * Drops an etcd lease that ended before a key had it: by a revocation whose answer was lost, by an
 * administrator, or because etcd was restored. A transaction with it cannot succeed any more, so
 * the next attempt takes another.
 */
const withoutGone = (state: LeaseState, { kind }: Request, error: unknown): LeaseState =>
  kind === "commit" && isPodnetError(error, "ETCD_LEASE_GONE")
    ? { ...state, spare: undefined }
    : state;

function afterFailure(state: LeaseState, error: unknown, { at, draw }: Moment): LeaseState {
  const failures = state.failures + 1;
  const pause = pauseAfter(failures, draw);
  const others = state.troubles.filter(({ kind }) => kind !== "failing");
  const failing = since(state, { kind: "failing", error }, at);
  return { ...state, failures, notBefore: at + pause, troubles: [...others, failing] };
}

/**
 * A transaction succeeded: the keys that it put are this host's, and the keys that it deleted no
 * longer are.
 */
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
