import type { HyperdSpec, InlineRules, PodSpec } from "../../../api/pod-spec.ts";
import type { Clock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import type { VmPlan, VmRecord } from "../../../hypervisor/driver.ts";
import type { Journal, NewEvent } from "../../events/journal.ts";
import type { Database } from "../../store/database.ts";
import { getNetwork } from "../../networks/store.ts";
import type { DamagedPod } from "./pod-rows.ts";
import {
  deletePod,
  insertPod,
  setPodContents,
  setPodGuest,
  setPodObserved,
  setPodReason,
  setPodSpans,
  setPodState,
} from "./pods.ts";
import { type PodContents, type PodRow, type PodState } from "./pod-row.ts";
import { dropRequestsOf, finishRequestsOf, insertRequest } from "./request-rows.ts";
import { deleteRun, putRun } from "./runs.ts";
import type { Addresses } from "../../ipam/addresses.ts";
import { type ErrorRecord, recordError } from "../../events/error-record.ts";
import { exchangeClaims, insertClaims } from "./claims.ts";
import type { Kept, KeptPlans } from "./kept-plans.ts";
import type { LivePod } from "../lifecycle/live-pod.ts";
import type { HeldPorts } from "../../published/held-ports.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { planOfRows } from "./plan-of-rows.ts";
import { withoutMachine } from "./pod-interfaces.ts";
import type { PodPlan } from "./pod-plan.ts";
import { essential, flushedLater, ofMachine } from "./commit-kinds.ts";
import { putExpiry } from "./expiry-rows.ts";
import { ExpiryRecords } from "./expiry-records.ts";
import { PodReader } from "./pod-reader.ts";
import { ProcessRecords } from "./process-records.ts";
import type { Span } from "../../events/span.ts";

const isOnTheWay = (state: PodState): boolean =>
  state === "creating" || state === "stopping" || state === "deleting";

/** A create that may be asked for again. */
export interface RequestKey {
  readonly id: string;
  readonly digest: string;
}

/** The new contents of a running pod. */
export interface Replan extends PodContents {
  /** For people, in the event. */
  readonly text: string;
  /** Its effect may fail: the row keeps the earlier contents until the change is complete. */
  readonly reverting?: boolean;
  /** The caller waits for `flushed` before it answers. */
  readonly flushedLater?: true;
}

export interface ForgetOptions {
  readonly interrupted?: boolean;
  readonly left?: boolean;
}

/** The records of pods, durably. Each method is one transaction with the event that reports it. */
export class PodRecords extends PodReader {
  readonly #journal: Journal;
  readonly #addresses: Addresses;
  readonly #clock: Clock;
  readonly #published: Pick<HeldPorts, "release">;
  readonly #kept: KeptPlans;
  readonly processes: ProcessRecords;
  readonly expiries: ExpiryRecords;

  constructor(parts: {
    db: Database;
    journal: Journal;
    addresses: Addresses;
    clock: Clock;
    published: Pick<HeldPorts, "release">;
    kept: KeptPlans;
  }) {
    super(parts.db);
    this.#journal = parts.journal;
    this.#addresses = parts.addresses;
    this.#clock = parts.clock;
    this.#published = parts.published;
    this.#kept = parts.kept;
    this.processes = new ProcessRecords(parts);
    this.expiries = new ExpiryRecords(parts);
  }

  /** Resolves once all written so far survives a loss of power. Rejects with `STATE_UNWRITABLE`. */
  flushed(): Promise<void> {
    return this.db.flushed();
  }

  /**
   * As `search`, for calls that end a pod: the beginning of an id, which may be another pod's name
   * with a mistake, is refused.
   */
  searchWhole(idOrName: string): PodRow | DamagedPod | undefined {
    const found = this.search(idOrName);
    if (found === undefined || found.id === idOrName || found.name === idOrName) return found;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `"${idOrName}" is only the beginning of the id of pod "${found.name}"`,
      { field: "id_or_name", hint: `Write the whole id, ${found.id}, or the name` },
    );
  }

  /**
   * Takes name, addresses and MACs: from here on the pod exists, and nothing on the host has
   * changed yet. Not flushed.
   */
  claim(plan: PodPlan, spec: PodSpec, request: RequestKey | undefined): void {
    const now = this.#clock.now();
    this.#journal.transact(
      "claim",
      (emit) => {
        insertPod(this.db, plan, spec, now);
        insertClaims({ db: this.db, addresses: this.#addresses }, plan);
        const { ttlMs } = spec.lifetime ?? {};
        if (ttlMs !== undefined) putExpiry(this.db, plan.podId, now + ttlMs);
        if (request !== undefined) insertRequest(this.db, { ...request, podId: plan.podId }, now);
        const { podId, name: podName } = plan;
        emit({ kind: "created", podId, podName, data: { text: "creating" } });
      },
      { ...flushedLater, need: "new" },
    );
    this.#addresses.taken(plan);
    this.#keep({ plan, spec });
  }

  /**
   * Changes plan, spec, interfaces and addresses of a running pod, before the host or the guest
   * changes. With `reverting`, the next start goes back to the earlier contents if podnetd ends
   * before the change is complete.
   */
  replan(live: LivePod, next: Replan): void {
    const { podId, name } = live.plan;
    const row = this.get(podId);
    if (row === undefined) throw new PodnetError("POD_NOT_FOUND", `There is no pod "${name}"`);
    const back = next.reverting === true ? (row.before ?? row) : undefined;
    let exchanged = (): void => {};
    const write = (emit: (event: NewEvent) => void): void => {
      exchanged = this.#exchange(row, next, back);
      emit({ kind: "updated", podId, podName: name, data: { text: next.text } });
    };
    this.#journal.transact("replan", write, next.flushedLater === true ? flushedLater : {});
    // Its disk works while the plan is kept and the rules are made.
    if (next.flushedLater === true) this.db.flushSoon();
    exchanged();
    live.plan = next.plan;
    live.spec = next.spec;
    this.#keep(back ?? next);
  }

  /** Gives a pod other rules of its own, or none, whatever its state. */
  setRules(row: PodRow, live: LivePod | undefined, policy: InlineRules | undefined): void {
    this.#setSpec(row, live, "rules", ({ policy: _former, ...spec }) =>
      policy === undefined ? spec : { ...spec, policy },
    );
  }

  /** Gives a pod other labels, whatever its state. */
  setLabels(row: PodRow, live: LivePod | undefined, labels: PodSpec["labels"]): void {
    this.#setSpec(row, live, "labels", (spec) => ({ ...spec, labels }));
  }

  /** What a caller of hyperd's API said of a pod, whatever its state. */
  setHyperd(row: PodRow, live: LivePod | undefined, hyperd: HyperdSpec): void {
    this.#setSpec(row, live, "names", (spec) => ({ ...spec, hyperd }));
  }

  /** Changes what a pod is asked to be where its plan does not depend on that. */
  #setSpec(
    row: PodRow,
    live: LivePod | undefined,
    what: string,
    next: (spec: PodSpec) => PodSpec,
  ): void {
    const become = ({ plan, spec }: PodContents): PodContents => ({ plan, spec: next(spec) });
    const now = become(row);
    const back = row.before && become(row.before);
    const text = `${what} changed`;
    this.#journal.transact(what, (emit) => {
      setPodContents(this.db, row.id, now, back);
      emit({ kind: "updated", podId: row.id, podName: row.name, data: { text } });
    });
    if (live !== undefined) live.spec = now.spec;
    this.#keep(back ?? now);
  }

  /**
   * Applies to a pod's plan what was observed while it was brought up or taken down, and to the
   * plan that it may go back to.
   */
  learn(
    live: LivePod,
    text: string,
    next: (pod: PodContents) => PodPlan,
    options: { readonly need: "usual" | "essential" } = essential,
  ): void {
    const { podId, name } = live.plan;
    const become = ({ plan, spec }: PodContents): PodContents => ({
      plan: next({ plan, spec }),
      spec,
    });
    const row = this.get(podId);
    if (row === undefined) throw new PodnetError("POD_NOT_FOUND", `There is no pod "${name}"`);
    const now = become(row);
    const back = row.before === undefined ? undefined : become(row.before);
    let exchanged = (): void => {};
    this.#journal.transact(
      "learn",
      (emit) => {
        exchanged = this.#exchange(row, now, back);
        emit({ kind: "updated", podId, podName: name, data: { text } });
      },
      options,
    );
    exchanged();
    live.plan = become({ plan: live.plan, spec: row.spec }).plan;
    this.#keep(back ?? now);
  }

  /**
   * Writes a pod's contents, those that it may go back to, and its claims. Call inside a
   * transaction, and call the returned function once it is committed.
   */
  #exchange(row: PodRow, { spec, plan }: PodContents, back: PodContents | undefined): () => void {
    const before = back === undefined ? undefined : { spec: back.spec, plan: back.plan };
    setPodContents(this.db, row.id, { spec, plan }, before);
    return exchangeClaims(
      { db: this.db, addresses: this.#addresses },
      { now: row.plan, before: row.before?.plan },
      { now: plan, before: back?.plan },
    );
  }

  /** The change of `replan` has taken effect: the pod does not go back to its earlier contents. */
  confirmed(live: LivePod, text: string): void {
    const { podId, name } = live.plan;
    const row = this.get(podId);
    let exchanged = (): void => {};
    this.#journal.transact(
      "confirmed",
      (emit) => {
        if (row?.before !== undefined) exchanged = this.#exchange(row, row, undefined);
        if (live.identity !== undefined) setPodGuest(this.db, podId, live.identity, live.observed);
        emit({ kind: "updated", podId, podName: name, data: { text } });
      },
      essential,
    );
    exchanged();
    if (row?.before !== undefined) this.#keep(row);
  }

  /** Keeps the plan of a pod of which an earlier podnetd may have kept none. */
  keep(row: PodRow): void {
    this.#kept.ensure(this.#withNetworks(row.before ?? row));
  }

  #keep(contents: PodContents, left = false): void {
    this.#kept.put(this.#withNetworks(contents), left);
  }

  #withNetworks({ plan, spec }: PodContents): Kept {
    const names = new Set(plan.interfaces.flatMap(({ network }) => network ?? []));
    const networks = Array.from(names, (name) => getNetwork(this.db, name)?.definition);
    return { plan, spec, networks: networks.filter((each) => each !== undefined) };
  }

  /** Before anything is built on the machine, so that it is found again. */
  started(podId: PodId, record: VmRecord): void {
    const write = (): void => putRun(this.db, podId, record, this.#clock.now());
    this.db.transaction(write, undefined, ofMachine.lasting, ofMachine.need);
  }

  /**
   * Reports a finished step. The disk is not waited for: the next commit that is flushed takes the
   * event along.
   */
  step(plan: PodPlan, span: Span): void {
    const text = `${span.step} ${span.durationMs.toFixed(1)} ms`;
    const { podId, name: podName } = plan;
    this.#journal.emit({ kind: "step", podId, podName, data: { text, span } }, ofMachine);
  }

  /** A pod that was brought up runs. Not flushed. */
  running(live: LivePod, spans: readonly Span[]): void {
    const { podId, name } = live.plan;
    this.#journal.transact(
      "running",
      (emit) => {
        if (live.identity !== undefined) setPodGuest(this.db, podId, live.identity, live.observed);
        else setPodObserved(this.db, podId, live.observed);
        setPodSpans(this.db, podId, spans);
        setPodState(this.db, podId, { state: "running" }, this.#clock.now());
        finishRequestsOf(this.db, podId, undefined);
        emit({ kind: "updated", podId, podName: name, data: { text: "running" } });
      },
      { ...essential, ...flushedLater },
    );
  }

  /**
   * What a guest reports after it was configured again: the pod is not degraded by that any more.
   */
  configured(live: LivePod, text: string): void {
    const { podId, name } = live.plan;
    this.#journal.transact("configured", (emit) => {
      if (live.identity !== undefined) setPodGuest(this.db, podId, live.identity, live.observed);
      setPodReason(this.db, podId, undefined);
      emit({ kind: "updated", podId, podName: name, data: { text } });
    });
  }

  /**
   * Makes a pod degraded: it lacks something, or something of it is left. Its state stays. The same
   * reason is reported once.
   */
  degraded({ podId, name }: Pick<PodPlan, "podId" | "name">, what: string, thrown: unknown): void {
    const error = recordError(thrown);
    const reason = `${what}: ${error.message}`;
    if (this.get(podId)?.reason === reason) return;
    this.#journal.transact("degraded", (emit) => {
      setPodReason(this.db, podId, reason);
      emit({ kind: "updated", podId, podName: name, data: { text: reason, error } });
    });
  }

  /**
   * Ends a pod's degraded condition; emits nothing if there was none. The reason of a failed pod
   * becomes that of its failure again.
   */
  recovered({ podId, name }: Pick<PodPlan, "podId" | "name">, text: string): void {
    const row = this.get(podId);
    if (row?.reason === undefined) return;
    this.#journal.transact("recovered", (emit) => {
      setPodReason(this.db, podId, row.failure?.message);
      emit({ kind: "updated", podId, podName: name, data: { text } });
    });
  }

  /** Records what was observed of a guest that reports nothing. */
  shown(live: LivePod, text: string): void {
    const { podId, name } = live.plan;
    const state = this.get(podId)?.state;
    // For a pod that is being created this is written when it runs.
    if (state !== "running" && state !== "paused") return;
    this.#journal.transact("shown", (emit) => {
      setPodObserved(this.db, podId, live.observed);
      emit({ kind: "updated", podId, podName: name, data: { text } });
    });
  }

  /** Emits an event that changes nothing. */
  note({ podId, name }: PodPlan, text: string): void {
    this.#journal.emit({ kind: "updated", podId, podName: name, data: { text } });
  }

  /**
   * Sets a state; `failed` and `stopped` also forget the run, whose machine is gone. States on the
   * way to others are not flushed.
   */
  state(
    plan: PodPlan,
    state: PodState,
    why: { readonly reason?: string; readonly error?: unknown } = {},
  ): void {
    const failure = why.error === undefined ? undefined : recordError(why.error);
    const reason = why.reason ?? failure?.message;
    const { podId, name } = plan;
    const row = this.get(podId);
    const over = state === "failed" || state === "stopped";
    let exchanged = (): void => {};
    const rest = over && row !== undefined ? withoutMachine(row) : undefined;
    this.#journal.transact(
      state,
      (emit) => {
        if (rest !== undefined && row !== undefined)
          exchanged = this.#exchange(row, rest, undefined);
        setPodState(
          this.db,
          podId,
          {
            state,
            ...(reason === undefined ? {} : { reason }),
            ...(failure === undefined ? {} : { failure }),
          },
          this.#clock.now(),
        );
        // A foreign machine may run on, with what could not be undone.
        if (over && machineKindOf(plan.vm).isOwn) deleteRun(this.db, podId);
        if (state === "failed") finishRequestsOf(this.db, podId, JSON.stringify(failure));
        const text = reason === undefined ? state : `${state}: ${reason}`;
        emit({
          kind: "updated",
          podId,
          podName: name,
          data: { text, ...(failure === undefined ? {} : { error: failure }) },
        });
      },
      isOnTheWay(state) ? { ...essential, ...flushedLater } : essential,
    );
    exchanged();
    if (rest !== undefined) this.#keep(rest);
  }

  /** Gives a pod the state again that its row had, with what was said of it. */
  stateAgain({ id, name, state, reason, failure }: PodRow, text: string): void {
    const why = {
      ...(reason === undefined ? {} : { reason }),
      ...(failure === undefined ? {} : { failure }),
    };
    this.#journal.transact(
      state,
      (emit) => {
        setPodState(this.db, id, { state, ...why }, this.#clock.now());
        emit({ kind: "updated", podId: id, podName: name, data: { text: `${state}: ${text}` } });
      },
      essential,
    );
  }

  /**
   * Removes a pod's row and quarantines its addresses. `thrown` is the reason when a create has
   * failed; its request keeps that answer. For an `interrupted` create no caller has received it,
   * so a repeated request begins anew. With `left` something could not be undone, and a delete by
   * force goes on past it.
   */
  forget(
    plan: PodPlan,
    thrown?: unknown,
    { interrupted = false, left = false }: ForgetOptions = {},
  ): void {
    const error = thrown === undefined ? undefined : recordError(thrown);
    const row = this.get(plan.podId);
    const before = row?.before;
    const plans: [PodPlan, ...PodPlan[]] = before === undefined ? [plan] : [plan, before.plan];
    this.#forget(plans, left ? row : undefined, error, interrupted);
  }

  /**
   * Removes a pod with an unreadable record, by what `remains` of it; `left` could not be undone.
   */
  forgetDamaged(remains: PodPlan, left: PodContents | undefined): void {
    this.#forget([remains], left, undefined, false);
  }

  /** A plan made of a pod's other rows: its addresses and its taps. */
  remains(pod: DamagedPod, vm: VmPlan): PodPlan {
    return planOfRows(this.db, pod, vm);
  }

  #forget(
    plans: readonly [PodPlan, ...PodPlan[]],
    left: PodContents | undefined,
    error: ErrorRecord | undefined,
    interrupted: boolean,
  ): void {
    const [{ podId, name }] = plans;
    // Without a row and without this a machine that runs is evidence of a lost row, and nothing
    // ends it. (An attached one is not podnetd's to end.)
    if (left !== undefined && machineKindOf(left.plan.vm).isOwn) this.#keep(left, true);
    else this.#kept.remove(podId);
    this.#journal.transact(
      "forget",
      (emit) => {
        this.#addresses.free(plans);
        deletePod(this.db, podId);
        if (interrupted) dropRequestsOf(this.db, podId);
        else
          finishRequestsOf(this.db, podId, error === undefined ? undefined : JSON.stringify(error));
        const text = error === undefined ? "deleted" : `not created: ${error.message}`;
        emit({
          kind: "deleted",
          podId,
          podName: name,
          data: { text, ...(error === undefined ? {} : { error }) },
        });
      },
      essential,
    );
    this.#addresses.freed(plans);
    this.#published.release(podId);
  }
}
