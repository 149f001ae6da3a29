import { type PodSpec, storedSpec } from "../../../api/pod-spec.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { PodId, PodName } from "../../../core/names.ts";
import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import { observedTrouble, specTrouble } from "./check-plan.ts";
import { parseErrorRecord } from "../../events/error-record.ts";
import { readStoredPlan } from "./pod-plan.ts";
import type { Span } from "../../events/span.ts";
import {
  type Row,
  damaged,
  integer,
  json,
  optionalJson,
  optionalText,
  parseJson,
  text,
} from "../../store/rows.ts";
import type { PodContents, PodRow, PodState } from "./pod-row.ts";

/**
 * A pod whose record is damaged. podnetd refuses all work on it; a delete by force removes what can
 * be found of it.
 */
export interface DamagedPod {
  readonly id: PodId;
  readonly name: PodName;
  readonly createdMs: number;
  /** The error of all calls for the pod: `STATE_CORRUPT`. */
  readonly damage: PodnetError;
}

export const isDamaged = (row: PodRow | DamagedPod): row is DamagedPod => "damage" in row;

/** The state that the API shows. */
export const stateOf = (row: PodRow | DamagedPod): { readonly state: PodState } => ({
  state: isDamaged(row) ? "failed" : row.state,
});

/**
 * Reads a row. A damaged row does not affect the others, so it is returned as such. Throws
 * `STATE_NEWER`.
 */
export function anyFromRow(row: Row): PodRow | DamagedPod {
  try {
    return fromRow(row);
  } catch (thrown) {
    if (isPodnetError(thrown, "STATE_NEWER")) throw thrown;
    const name = text<PodName>(row, "name");
    const { message, details } = toPodnetError(thrown);
    return {
      id: text<PodId>(row, "id"),
      name,
      createdMs: integer(row, "created_ms"),
      damage: new PodnetError(
        "STATE_CORRUPT",
        `The record of pod "${name}" is damaged: ${String(details["damaged"] ?? message)}`,
        {
          hint: `Its machine, if there is one, runs on, and \`podnetd state adopt\` takes it back with podnetd stopped; or give the pod up: podnet delete --force ${name}`,
          details: { pod_id: text(row, "id") },
          cause: thrown,
        },
      ),
    };
  }
}

/** Throws `STATE_CORRUPT` for a damaged pod. */
export function usable(row: PodRow | DamagedPod): PodRow {
  if (isDamaged(row)) throw row.damage;
  return row;
}

/**
 * What was read of each pod and is valid, as text: to list a thousand pods, podnetd checks them
 * once and compares them from then on.
 */
const sound = new Map<PodId, readonly string[]>();
/** More pods than one host has. */
const mostSound = 4096;

/** The contents that a row's texts say. */
type Read = PodContents & Pick<PodRow, "observed">;

/**
 * What the rows read last say: one call reads its pod's row several times, and parses it once.
 * Nothing changes what it is given. Few, as they take more memory than their texts.
 */
const lately = new Map<PodId, { readonly texts: readonly string[]; readonly read: Read }>();
const mostLately = 16;

function fromRow(row: Row): PodRow {
  const id = text<PodId>(row, "id");
  const name = text<PodName>(row, "name");
  const failure = optionalText(row, "failure");
  const texts = [text(row, "plan"), text(row, "spec"), optionalText(row, "observed") ?? ""];
  return {
    id,
    name,
    state: text<PodState>(row, "state"),
    reason: optionalText(row, "reason"),
    failure: failure === undefined ? undefined : parseErrorRecord(failure),
    ...readTexts(row, texts, { id, name }),
    before: contentsBefore(optionalText(row, "before"), { id, name }),
    guest: guestOf(row),
    spans: spansOf(row),
    established: integer(row, "established") === 1,
    createdMs: integer(row, "created_ms"),
    changedMs: integer(row, "changed_ms"),
  };
}

function readTexts(row: Row, texts: readonly string[], of: Pick<PodRow, "id" | "name">): Read {
  const { id, name } = of;
  const last = lately.get(id);
  if (last?.read.plan.name === name && isSame(texts, last.texts)) return last.read;
  const known = isSame(texts, sound.get(id));
  const contents = { spec: json(row, "spec"), plan: json(row, "plan") };
  const read = { ...contentsOf(contents, of, known), observed: observedOf(row, known) };
  if (!known) {
    if (sound.size >= mostSound) sound.clear();
    sound.set(id, texts);
  }
  lately.delete(id);
  const [oldest] = lately.keys();
  if (oldest !== undefined && lately.size >= mostLately) lately.delete(oldest);
  lately.set(id, { texts, read });
  return read;
}

const isSame = (texts: readonly string[], others: readonly string[] | undefined): boolean =>
  texts.every((each, i) => each === others?.[i]);

interface StoredContents {
  readonly spec?: unknown;
  readonly plan?: unknown;
}

function contentsOf(
  stored: StoredContents,
  of: Pick<PodRow, "id" | "name">,
  known = false,
): PodContents {
  const plan = readStoredPlan(stored.plan, known);
  if (plan.podId !== of.id || plan.name !== of.name)
    throw damaged(`plan is that of pod "${plan.name}" (${plan.podId})`);
  const trouble = known ? undefined : specTrouble(stored.spec);
  if (trouble !== undefined) throw damaged(trouble);
  return { plan, spec: storedSpec(stored.spec as PodSpec) };
}

function contentsBefore(
  stored: string | undefined,
  of: Pick<PodRow, "id" | "name">,
): PodContents | undefined {
  if (stored === undefined) return undefined;
  const before = parseJson(stored, 'column "before"') as StoredContents | null;
  return contentsOf(before ?? {}, of);
}

function guestOf(row: Row): GuestIdentity | undefined {
  const guest = optionalJson<GuestIdentity | null>(row, "guest");
  if (guest !== undefined && typeof guest?.api !== "number") throw damaged("guest has no api");
  return guest;
}

function observedOf(row: Row, known: boolean): ObservedGuest | undefined {
  const observed = optionalJson<ObservedGuest>(row, "observed");
  const trouble = known || observed === undefined ? undefined : observedTrouble(observed);
  if (trouble !== undefined) throw damaged(trouble);
  return observed;
}

function spansOf(row: Row): readonly Span[] {
  const spans = json<readonly (Span | null)[]>(row, "spans");
  const isSpan = (span: Span | null): span is Span => typeof span?.step === "string";
  if (!Array.isArray(spans) || !spans.every(isSpan)) throw damaged("spans are no list of steps");
  return spans;
}

/** Forgets a pod that has gone. */
export function forgetSound(id: PodId): void {
  sound.delete(id);
  lately.delete(id);
}
