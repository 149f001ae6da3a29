import { assertNever } from "../core/brand.ts";
import { leaseKey } from "./flannel/key.ts";
import { intentOf } from "./intent.ts";
import { type Intent, without } from "./intent-kinds.ts";
import { dropped, letGo, only, onProbation, type Step, withOwn } from "./lease-holding.ts";
import { take } from "./lease-events.ts";
import type {
  LeaseCommand,
  LeaseEvent,
  LeaseState,
  Moment,
  Own,
  Request,
  Spare,
} from "./lease-state.ts";
import { withTroubles } from "./lease-troubles.ts";
import { grantOf } from "./owner.ts";
import type { Lease, Leases } from "./registry.ts";

/**
 * One host's lease: decides what to do after an event. Pure, and never throws: the event carries
 * time and random numbers, and `leases` is the known content of the store, including this host's
 * own transactions (`Registry.learn`).
 */
export function step(state: LeaseState, event: LeaseEvent, leases: Leases, moment: Moment): Step {
  const taken = take(state, event, moment);
  const converged = converge(taken.state, leases, moment);
  return { state: tookOver(converged.state), commands: [...taken.commands, ...converged.commands] };
}

/** Ends taking over from other hosts once this host has its lease, at its address. */
const tookOver = (state: LeaseState): LeaseState =>
  state.takesOver &&
  state.own !== undefined &&
  state.request === undefined &&
  !state.troubles.some(({ kind }) => kind === "shared")
    ? { ...state, takesOver: false }
    : state;

/** Brings the state closer to the intended one, until it has to wait. */
function converge(state: LeaseState, leases: Leases, moment: Moment): Step {
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

function act(state: LeaseState, intent: Intent, moment: Moment): Step {
  switch (intent.kind) {
    case "rest":
      // The failed call was carried out anyway, or is no longer needed.
      return only({
        ...state,
        wakeAt: intent.until,
        failures: 0,
        troubles: state.troubles.filter(({ kind }) => kind !== "failing"),
      });
    case "acquired": {
      const own = acquiredOwn(intent.lease, state, moment);
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
function acquiredOwn(lease: Lease, { spare, settings }: LeaseState, { at }: Moment): Own {
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

/** Recorded before the call: its answer may never arrive. */
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
