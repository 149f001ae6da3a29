import type { CreateSpec } from "../../../api/validate/validate.ts";
import type { PodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import { Slots } from "../../../core/slots.ts";
import type { Admission } from "../../listeners/callers.ts";
import type { KeyedLock } from "../../reconcile/keyed-lock.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { UsualDurations } from "../../events/usual-durations.ts";
import { awaitPorts } from "../interfaces/adopt-ports.ts";
import { refuseOwners } from "../machine/attach.ts";
import { bringUp } from "./bring-up.ts";
import { cancelled, deadlineOf } from "./deadlines.ts";
import type { Ending } from "./end-pod.ts";
import { type LivePod, livePod } from "./live-pod.ts";
import { type Found, findNamed, planNew } from "../plan/plan-new.ts";
import { machineOf } from "../plan/plan-seed.ts";
import { startOfProcess } from "../plan/steps.ts";
import { unmark } from "../pool/markers.ts";
import { followEnd } from "../process/follow-end.ts";
import type { ParkedMachine } from "../pool/parked-machine.ts";
import type { MachinePool } from "../pool/pool.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { PodsParts } from "../pods-parts.ts";
import type { RequestKey } from "../store/records.ts";
import { Requests } from "../store/requests.ts";
import { withGrownSize } from "./resize.ts";
import { type Progress, runFlow } from "./run-steps.ts";
import { supervise } from "./supervise.ts";
import { undoPod } from "./undo.ts";
import { notHeld, wrongState } from "./wrong-state.ts";

export interface CreateOptions {
  /** The caller's: without a request id its end undoes the create. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
  /** The caller may name files of `access.image_paths` alone; unless given, any. */
  readonly imagesOnly?: boolean;
  /** The start is the restart policy's, and is void when a caller has stopped the pod. */
  readonly byPolicy?: boolean;
  /**
   * Takes one of the caller's slots until disposed, at the end of the work, which may outlast the
   * call.
   */
  admit?(): Admission;
}

/** The parts of podnetd that a start of a pod needs. */
export interface StartsParts extends PodsParts {
  readonly locks: KeyedLock<PodId>;
  readonly supervision: Ending;
  readonly pool: MachinePool;
  /** Whether podnetd starts no more pods. */
  ending(): boolean;
  /** Throws `CANCELLED` then. */
  refuseEnding(): void;
  /** The pod runs. */
  attached(live: LivePod): void;
}

/** Steps take as long as those of like machines: a clone is ready at once, a large image is not. */
const kindOf = (step: string, { vm, plan }: LivePod): string => {
  const { kernel = "", initrd = "", disks, memoryMib, vcpu, factory = "" } = plan.vm;
  const image = disks.map(({ path }) => path).join(":");
  return [step, vm !== undefined, factory, vcpu, memoryMib, kernel, initrd, image].join(" ");
};

/** Creates pods, and starts those that are there. */
export class Starts {
  readonly #parts: StartsParts;
  /** Creates and starts under way, which a delete aborts; those that are undone are not here. */
  readonly #bringingUp = new Map<PodId, AbortController>();
  readonly #requests: Requests;
  readonly #starting: Slots;
  readonly #usual = new UsualDurations();

  constructor(parts: StartsParts) {
    this.#parts = parts;
    this.#requests = new Requests(parts.db, parts.host.clock);
    this.#starting = new Slots(parts.config.startsAtATime);
  }

  /**
   * Creates a pod and returns once its network works. Without a request id, the caller's end undoes
   * the create. With one the create goes on to its deadline, and a repeated request joins it.
   */
  async create(asked: CreateSpec, options: CreateOptions): Promise<PodRow> {
    const { requestId } = asked;
    const limitMs = asked.timeoutMs ?? this.#parts.config.timeouts.createMs;
    if (requestId === undefined)
      return this.#createNew(asked, undefined, limitMs, options, options.signal);
    const known = this.#requests.join(requestId, asked.spec, options.signal);
    if (known !== undefined) return this.#parts.records.find(await known);
    const request = this.#requests.key(requestId, asked.spec);
    const created = this.#createNew(asked, request, limitMs, options, undefined).then(
      ({ id }) => id,
    );
    return this.#parts.records.find(await this.#requests.track(request, created, options.signal));
  }

  async #createNew(
    asked: CreateSpec,
    request: RequestKey | undefined,
    limitMs: number,
    { progress, admit, imagesOnly }: CreateOptions,
    caller: AbortSignal | undefined,
  ): Promise<PodRow> {
    using place = admit?.();
    const started = this.#parts.host.clock.monotonic();
    this.#parts.refuseEnding();
    const found = await findNamed(asked.spec, this.#parts, caller ?? AbortSignal.timeout(limitMs));
    // Planning and commit run without an await between them, so free addresses and ports stay free.
    const plan = this.#plan(asked, found, imagesOnly ?? false);
    this.#parts.records.claim(plan, asked.spec, request);
    const machine = this.#parts.pool.take(plan.podId);
    return await this.#parts.locks.run(plan.podId, () =>
      this.#bringUp(
        { plan, spec: asked.spec },
        {
          started,
          limitMs,
          progress,
          caller,
          owner: place?.owner,
          keep: false,
          fresh: true,
          machine,
        },
      ),
    );
  }

  /** Plans a pod, on a machine of the pool if one fits. */
  #plan(asked: CreateSpec, found: Found, imagesOnly: boolean): PodPlan {
    const { pool } = this.#parts;
    const { spec } = asked;
    const usersTaken = pool.users();
    const isServed = pool.serves(spec);
    const machine = isServed ? pool.offer(spec) : undefined;
    if (machine !== undefined) {
      const plan = planNew(asked, found, this.#parts, { imagesOnly, usersTaken, machine });
      if (pool.fits(machineOf({ plan, spec }))) return plan;
    }
    const plan = planNew(asked, found, this.#parts, { imagesOnly, usersTaken });
    if (isServed) pool.missed(spec, machine);
    return plan;
  }

  /**
   * Starts a stopped or failed pod again, with its addresses; or the deferred main process of a pod
   * that runs.
   */
  async start(idOrName: string, options: CreateOptions): Promise<PodRow> {
    using place = options.admit?.();
    const { host, records, locks } = this.#parts;
    const started = host.clock.monotonic();
    const { id } = records.find(idOrName);
    return await locks.run(id, async () => {
      // When it is its turn: a start that waited for another would outlast the end's grace.
      this.#parts.refuseEnding();
      const row = records.find(id);
      refuseOwners(row, "start");
      if (row.state === "running") return await this.#startDeferred(row, started, options);
      if (options.byPolicy !== true) records.processes.forgetNextStart(row.plan);
      else if (records.processes.get(id)?.nextMs === undefined) return row;
      if (row.state !== "stopped" && row.state !== "failed") {
        throw wrongState(row, "stopped");
      }
      // The last run should have left nothing. What could not be undone then is undone now, or is
      // reported again.
      const [left] = await undoPod(livePod(row, records.run(id)), host, { graceful: false });
      if (left !== undefined) throw left;
      if (options.byPolicy !== true) records.expiries.renew(row);
      const grown = withGrownSize(records.find(id));
      if (grown !== undefined)
        records.replan(livePod(row), { ...grown, text: "its machine starts as it had become" });
      records.state(row.plan, "creating", { reason: "starting" });
      const limitMs = this.#parts.config.timeouts.createMs;
      // (What was left may have been a change of the pod's disks.)
      return this.#bringUp(records.find(id), {
        started,
        limitMs,
        progress: options.progress,
        caller: options.signal,
        owner: place?.owner,
        keep: true,
        // A disk that a delete did not finish removing is made anew: it was to be removed.
        fresh: !row.established || row.failure?.step === "disk.drop",
      });
    });
  }

  /** Starts the main process of a pod that runs without it. The pod ends when that fails. */
  async #startDeferred(
    row: PodRow,
    started: number,
    { signal, progress }: CreateOptions,
  ): Promise<PodRow> {
    const { host, records, config, supervision } = this.#parts;
    if (row.plan.process === undefined || records.processes.get(row.id) !== undefined) return row;
    const live = supervision.held(row.id);
    if (live === undefined) throw notHeld(row);
    const elapsed = (): number => host.clock.monotonic() - started;
    using limit = deadlineOf(config.timeouts.createMs, elapsed());
    using abandoned = cancelled(signal);
    const stop = AbortSignal.any([limit.signal, abandoned.signal, live.ended.signal]);
    try {
      await runFlow(startOfProcess, { live, host, progress, elapsed }, stop);
    } catch (thrown) {
      live.ended.abort(thrown);
      throw thrown;
    }
    followEnd(live, supervision);
    return records.find(row.id);
  }

  async #bringUp(
    pod: PodContents,
    how: {
      readonly started: number;
      readonly limitMs: number;
      readonly progress: Progress;
      readonly caller: AbortSignal | undefined;
      /** Who asks, for a fair order of starts. */
      readonly owner: object | undefined;
      /** A pod that has run before stays, with its addresses, when it does not start. */
      readonly keep: boolean;
      /** The pod has never run. */
      readonly fresh: boolean;
      /** A machine that has waited for a pod. */
      readonly machine?: ParkedMachine | undefined;
    },
  ): Promise<PodRow> {
    const { host, records, log, metrics } = this.#parts;
    const { plan } = pod;
    const live = livePod(pod, undefined, how.machine);
    const stop = new AbortController();
    this.#bringingUp.set(plan.podId, stop);
    // To the microsecond: further digits are noise.
    const elapsed = (): number => Math.round((host.clock.monotonic() - how.started) * 1000) / 1000;
    const progress: Progress = {
      started: (step, startMs) =>
        how.progress.started(step, startMs, this.#usual.of(kindOf(step, live))),
      finished: (span) => {
        this.#usual.add(kindOf(span.step, live), span.durationMs);
        records.step(plan, span);
        metrics.step(span);
        log.debug(
          { pod_id: plan.podId, step: span.step, duration_ms: span.durationMs },
          span.detail,
        );
        how.progress.finished(span);
      },
    };
    using limit = deadlineOf(how.limitMs, elapsed());
    using abandoned = cancelled(how.caller);
    const isOver = (): boolean => this.#bringingUp.delete(plan.podId);
    const result = await bringUp(
      live,
      host,
      {
        progress,
        fresh: how.fresh,
        elapsed,
        undoing: isOver,
        slot: (stop) => this.#starting.take(stop, "The start of the machine", how.owner),
        // A pod that has run before is stopped after a loss of power, whether or not this is.
        begin: async () => {
          if (how.fresh) await records.flushed();
        },
        commit: async (spans) => {
          records.running(live, spans);
          await records.flushed();
        },
      },
      AbortSignal.any([stop.signal, limit.signal, abandoned.signal]),
    );
    isOver();
    metrics.created(result.kind === "up" ? "OK" : result.error.code);
    if (result.kind === "up") {
      this.#parts.attached(live);
      supervise(live, this.#parts.supervision);
      log.info({ pod_id: plan.podId, duration_ms: elapsed() }, "Pod runs");
      const row = this.#parts.records.find(plan.podId);
      awaitPorts(row, this.#parts.supervision);
      return row;
    }
    log.warn(
      { pod_id: plan.podId, err: result.error, duration_ms: elapsed() },
      "Pod failed to start",
    );
    this.#parts.supervision.writeDown(plan, () => {
      if (result.kind === "undone" && !how.keep)
        records.forget(plan, result.error, { interrupted: this.#parts.ending() });
      else {
        records.state(plan, "failed", { error: result.error });
        records.processes.gone(plan);
      }
    });
    // Its step may not have come to that.
    if (how.machine !== undefined) this.#unmark(plan);
    throw result.error;
  }

  /** The machine of a failed create waits no more. What is left, the next podnetd removes. */
  #unmark({ podId, vm }: PodPlan): void {
    try {
      unmark(vm);
    } catch (err) {
      this.#parts.log.warn({ pod_id: podId, err }, "Failed to remove the marker of a machine");
    }
  }

  /** Whether any pod is brought up now. */
  get isBusy(): boolean {
    return this.#bringingUp.size > 0;
  }

  /** The pods that are brought up now, and are not undone. */
  comingUp(): PodId[] {
    return [...this.#bringingUp.keys()];
  }

  /** Ends the start of a pod that is under way. */
  abort(id: PodId, why: PodnetError): void {
    this.#bringingUp.get(id)?.abort(why);
  }

  abortAll(why: () => PodnetError): void {
    for (const stop of this.#bringingUp.values()) stop.abort(why());
  }
}
