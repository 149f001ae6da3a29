import type { PortSpec } from "../../api/pod-spec.ts";
import type { CreateSpec } from "../../api/validate.ts";
import type { InterfaceChange } from "../../api/validate-interface-change.ts";
import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, type PodId, podIdFromBytes } from "../../core/names.ts";
import type { Config } from "../config/config.ts";
import type { Journal } from "../journal.ts";
import type { RunningPort, RunningPorts } from "../drift/parts.ts";
import { KeyedLock } from "../keyed-lock.ts";
import type { Log } from "../../linux/log.ts";
import type { PodFragment } from "../../network/desired.ts";
import type { Metrics } from "../metrics.ts";
import type { NetworkDefinition } from "../networks/definition.ts";
import { Tally } from "../tally.ts";
import type { Database } from "../store/database.ts";
import { type PodContents, podIdByName, type PodRow } from "../store/pods.ts";
import type { Addresses } from "./addresses.ts";
import { bringUp } from "./bring-up.ts";
import { cancelled, deadlineOf, timer } from "./deadlines.ts";
import { deletePod, type Ending, stopPod } from "./end-pod.ts";
import { gatherSnapshot, type World } from "./gather.ts";
import type { KnownNetworks } from "./gather-networks.ts";
import { changeInterfaces } from "./live-interfaces.ts";
import { namedLinks } from "./named-links.ts";
import { askedBy, planChange } from "./plan-change.ts";
import type { Host } from "./host.ts";
import type { PortsWorld } from "./gather-ports.ts";
import { keepTrying } from "./keep-trying.ts";
import { pausePod, resumePod } from "./lifecycle.ts";
import { portOfPod, portsOfPod } from "./running-ports.ts";
import { type LivePod, livePod, unsubscribe } from "./live-pod.ts";
import { defaultPodName, planPod } from "./plan.ts";
import type { PodPlan } from "./pod-plan.ts";
import { publish, unpublish, withoutPorts, withPorts } from "./publish.ts";
import type { PublishedPlan } from "./published-plan.ts";
import type { PodRecords, RequestKey } from "./records.ts";
import { type Recovery, recoverPods } from "./recover.ts";
import { refitPlan, refitPods, refitRow } from "./refit.ts";
import { Requests } from "./requests.ts";
import type { Progress } from "./run-steps.ts";
import { supervise } from "./supervise.ts";
import { undoPod } from "./undo.ts";
import { notHeld, wrongState } from "./wrong-state.ts";

export interface PodsParts {
  readonly db: Database;
  readonly config: Config;
  readonly host: Host;
  readonly records: PodRecords;
  readonly addresses: Addresses;
  readonly networks: KnownNetworks;
  readonly journal: Journal;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface CreateOptions {
  /** The caller's: without a request id its end undoes the create. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
  /** The caller may name files of `access.image_paths` alone; unless given, any. */
  readonly imagesOnly?: boolean;
  /** Takes one of the caller's places until disposed, at the end of the work, which may outlast the call. */
  admit?(): Disposable;
}

/** A pod's plan as it is and as it would be. */
export interface Replanned {
  readonly before: PodPlan;
  readonly after: PodPlan;
}

/** How a delete ended. */
export interface Deleted {
  readonly id: string;
  readonly name: string;
  readonly existed: boolean;
}

/**
 * All pods of this node. Pods are worked on side by side, one pod by one caller at a time; the rows are the truth,
 * what is held here are connections.
 */
export class Pods implements RunningPorts {
  readonly #parts: PodsParts;
  readonly #live = new Map<PodId, LivePod>();
  readonly #locks = new KeyedLock<PodId>();
  /** Creates and starts under way, which a delete aborts. */
  readonly #bringingUp = new Map<PodId, AbortController>();
  readonly #requests: Requests;
  readonly #dropped: Tally;
  /** Aborted when pods are let go of. */
  readonly #over = new AbortController();
  #closing = false;
  #refusing = false;

  constructor(parts: PodsParts) {
    this.#parts = parts;
    this.#dropped = new Tally(parts.log, "Guests do more than is told of", (what) =>
      parts.metrics.guestDropped(what),
    );
    this.#requests = new Requests(parts.db, parts.host.clock);
  }

  get #supervision(): Ending {
    const { host, records, log } = this.#parts;
    return {
      host,
      records,
      log,
      locks: this.#locks,
      dropped: (what) => this.#dropped.count(what),
      overwritten: (bytes) => this.#parts.metrics.consoleOverwritten(bytes),
      over: this.#over.signal,
      gone: (live) => this.#live.delete(live.plan.podId),
      held: (id) => this.#live.get(id),
      writeDown: (plan, write) => this.#writeDown(plan, write),
    };
  }

  list(): PodRow[] {
    return this.#parts.records.list();
  }

  find(idOrName: string): PodRow {
    return this.#parts.records.find(idOrName);
  }

  /** What this process holds of a running pod. Throws `POD_NOT_FOUND`, `WRONG_STATE`. */
  running(idOrName: string): LivePod {
    const row = this.find(idOrName);
    const live = this.#live.get(row.id);
    if (row.state !== "running") throw wrongState(row, "running");
    if (live === undefined) throw notHeld(row);
    return live;
  }

  /** The same of one that has a machine: it may be paused. */
  withMachine(idOrName: string): LivePod {
    const row = this.find(idOrName);
    const live = this.#live.get(row.id);
    if (row.state !== "paused") return this.running(row.id);
    if (live === undefined) throw notHeld(row);
    return live;
  }

  live(id: PodId): LivePod | undefined {
    return this.#live.get(id);
  }

  runningPorts(): RunningPort[] {
    return [...this.#live.values()].flatMap(portsOfPod);
  }

  portNow(port: RunningPort): PodFragment | undefined {
    const live = this.#live.get(port.podId);
    return live === undefined ? undefined : portOfPod(live, port.tap);
  }

  /** What a create would do. Takes nothing. */
  async plan(
    asked: CreateSpec,
    { imagesOnly = false }: Pick<CreateOptions, "imagesOnly"> = {},
  ): Promise<PodPlan> {
    return this.#plan(asked, imagesOnly, await namedLinks(asked.spec, this.#parts.host));
  }

  #plan(asked: CreateSpec, imagesOnly: boolean, links: World["links"]): PodPlan {
    const { driver } = this.#parts.host;
    const snapshot = gatherSnapshot(asked.spec, this.#freshId(), this.#world(imagesOnly, links));
    return planPod(asked.spec, snapshot, (vm) => driver.describe(vm));
  }

  /** What the planner's view of the world is gathered from. */
  #world(imagesOnly: boolean, links: World["links"]): World {
    const { config, db, addresses, networks, host } = this.#parts;
    const { driver } = host;
    return {
      config,
      db,
      addresses,
      networks,
      driver: driver.capabilities(),
      confinement: host.confinement,
      imagesOnly,
      links,
      randomBytes: (count) => host.randomBytes(count),
    };
  }

  /** An id that no pod has, nor the name that would be made of it. */
  #freshId(): PodId {
    for (;;) {
      const id = podIdFromBytes(this.#parts.host.randomBytes(12));
      if (podIdByName(this.#parts.db, defaultPodName(id)) === undefined) return id;
    }
  }

  /**
   * Creates a pod and answers once its network works. Without a request id the caller's end undoes it; with one it
   * goes on to its deadline, and asking again joins it.
   */
  async create(asked: CreateSpec, options: CreateOptions): Promise<PodRow> {
    const { requestId } = asked;
    const limitMs = asked.timeoutMs ?? this.#parts.config.timeouts.createMs;
    if (requestId === undefined)
      return this.#createNew(asked, undefined, limitMs, options, options.signal);
    const known = this.#requests.join(requestId, asked.spec, options.signal);
    if (known !== undefined) return this.find(await known);
    const request = this.#requests.key(requestId, asked.spec);
    const created = this.#createNew(asked, request, limitMs, options, undefined).then(
      ({ id }) => id,
    );
    return this.find(await this.#requests.track(request, created, options.signal));
  }

  async #createNew(
    asked: CreateSpec,
    request: RequestKey | undefined,
    limitMs: number,
    { progress, admit, imagesOnly }: CreateOptions,
    caller: AbortSignal | undefined,
  ): Promise<PodRow> {
    using _place = admit?.();
    const started = this.#parts.host.clock.monotonic();
    this.#refuseClosing();
    const links = await namedLinks(asked.spec, this.#parts.host);
    // Nothing is awaited between planning and the commit, so what was free is still free.
    const plan = this.#plan(asked, imagesOnly ?? false, links);
    this.#parts.records.claim(plan, asked.spec, request);
    return await this.#locks.run(plan.podId, () =>
      this.#bringUp(plan, { started, limitMs, progress, caller, keep: false }),
    );
  }

  /** Starts a stopped or failed pod again, with its addresses. */
  async start(idOrName: string, options: CreateOptions): Promise<PodRow> {
    using _place = options.admit?.();
    const { host, records } = this.#parts;
    const started = host.clock.monotonic();
    const { id } = this.find(idOrName);
    return await this.#locks.run(id, async () => {
      // When it is its turn: a start that waited for another would outlast the end's grace.
      this.#refuseClosing();
      const row = this.find(id);
      if (row.state === "running") return row;
      if (row.state !== "stopped" && row.state !== "failed") {
        throw wrongState(row, "stopped");
      }
      // Nothing should be left of its last run; what could not be undone then is undone now, or is told again.
      const [left] = await undoPod(livePod(row.plan, records.run(id)), host, { graceful: false });
      if (left !== undefined) throw left;
      records.state(row.plan, "creating", { reason: "starting" });
      const limitMs = this.#parts.config.timeouts.createMs;
      return this.#bringUp(row.plan, {
        started,
        limitMs,
        progress: options.progress,
        caller: options.signal,
        keep: true,
      });
    });
  }

  /**
   * Changes a running pod, which nobody else does meanwhile. Throws `POD_NOT_FOUND`, and `WRONG_STATE` naming the state
   * of one that does not run when it is its turn.
   */
  async change<T>(idOrName: string, work: (live: LivePod, row: PodRow) => Promise<T>): Promise<T> {
    const { id } = this.find(idOrName);
    return await this.#locks.run(id, () => {
      this.#refuseClosing();
      return work(this.running(id), this.find(id));
    });
  }

  /** What a change of an interface would make of a running pod. Takes nothing. */
  async planInterface(idOrName: string, change: InterfaceChange): Promise<Replanned> {
    const { plan } = this.running(idOrName);
    const after = await this.#changed(this.find(idOrName), change);
    return { before: plan, after: after.plan };
  }

  /** Adds an interface to a running pod, changes one or removes one; the others are left alone. */
  changeInterface(idOrName: string, change: InterfaceChange): Promise<PodRow> {
    return this.change(idOrName, async (live, row) => {
      const next = await this.#changed(row, change);
      await changeInterfaces(live, row, change, next, this.#supervision);
      return this.find(row.id);
    });
  }

  async #changed(row: PodRow, change: InterfaceChange): Promise<PodContents> {
    const asked = askedBy(row, change);
    const links = await namedLinks({ interfaces: asked }, this.#parts.host);
    const { ports: _theirs, ...spec } = row.spec;
    // Nothing is awaited from here to the commit.
    const world = this.#world(false, links);
    const snapshot = gatherSnapshot({ ...spec, interfaces: asked }, row.id, world);
    return planChange(row, change, snapshot);
  }

  /** What publishing these would make of a running pod. Takes nothing. */
  planPublish(idOrName: string, ports: readonly PortSpec[]): Replanned {
    this.running(idOrName);
    const row = this.find(idOrName);
    return { before: row.plan, after: withPorts(row, ports, this.#portsWorld()).plan };
  }

  planUnpublish(idOrName: string, ports: readonly PortSpec[]): Replanned {
    this.running(idOrName);
    const row = this.find(idOrName);
    return { before: row.plan, after: withoutPorts(row, ports).plan };
  }

  /** Publishes more ports of a running pod, all of them or none, and answers these as they were decided. */
  publish(
    idOrName: string,
    ports: readonly PortSpec[],
  ): Promise<{ readonly row: PodRow; readonly ports: readonly PublishedPlan[] }> {
    return this.change(idOrName, async (live, row) => {
      const next = withPorts(row, ports, this.#portsWorld());
      const added = next.plan.published?.slice(row.plan.published?.length ?? 0) ?? [];
      const decided = ports.map((port, i) => ({ ...port, hostPort: added[i]?.hostPort ?? 0 }));
      const stillFree = (): void => void withPorts(row, decided, this.#portsWorld());
      if (ports.length > 0) await publish(live, row, next, stillFree, this.#supervision);
      return { row: this.find(row.id), ports: added };
    });
  }

  /** Takes back published ports of a running pod; what it does not publish is passed over. */
  unpublish(idOrName: string, ports: readonly PortSpec[]): Promise<PodRow> {
    return this.change(idOrName, async (live, row) => {
      const next = withoutPorts(row, ports);
      if (next.plan.published?.length !== (row.plan.published ?? []).length)
        await unpublish(live, row, next, this.#supervision);
      return this.find(row.id);
    });
  }

  #portsWorld(): PortsWorld {
    const { db, config, host } = this.#parts;
    return { db, config, randomBytes: (count) => host.randomBytes(count) };
  }

  /** Takes the host ports that a pod has by its row; one that somebody else has now is tried again. */
  async #adoptPorts(row: PodRow): Promise<void> {
    const { published } = this.#parts.host;
    await published.adopt(row.id, (row.before ?? row).plan.published);
    this.#awaitPorts(row);
  }

  #awaitPorts({ id }: PodRow): void {
    const { records, host, log } = this.#parts;
    const missing = host.published.missing(id);
    const row = records.get(id);
    if (missing === undefined || row === undefined) return;
    log.error({ pod_id: id, err: missing }, "A published port is not held");
    keepTrying(row, "a published port is not served", missing, this.#supervision, (now) =>
      host.published.retry(id, (now.before ?? now).plan.published),
    );
  }

  async #bringUp(
    plan: PodPlan,
    how: {
      readonly started: number;
      readonly limitMs: number;
      readonly progress: Progress;
      readonly caller: AbortSignal | undefined;
      /** A pod that has run before stays, with its addresses, when it does not start. */
      readonly keep: boolean;
    },
  ): Promise<PodRow> {
    const { host, records, log, metrics } = this.#parts;
    const live = livePod(plan);
    const stop = new AbortController();
    this.#bringingUp.set(plan.podId, stop);
    // To the microsecond: what lies beyond is noise.
    const elapsed = (): number => Math.round((host.clock.monotonic() - how.started) * 1000) / 1000;
    const progress: Progress = {
      started: (step, startMs) => how.progress.started(step, startMs),
      finished: (span) => {
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
    const result = await bringUp(
      live,
      host,
      { progress, elapsed, commit: (spans) => records.running(live, spans) },
      AbortSignal.any([stop.signal, limit.signal, abandoned.signal]),
    );
    this.#bringingUp.delete(plan.podId);
    metrics.created(result.kind === "up" ? "OK" : result.error.code);
    if (result.kind === "up") {
      this.#live.set(plan.podId, live);
      supervise(live, this.#supervision);
      log.info({ pod_id: plan.podId, duration_ms: elapsed() }, "Pod runs");
      const row = this.find(plan.podId);
      this.#awaitPorts(row);
      return row;
    }
    log.warn(
      { pod_id: plan.podId, err: result.error, duration_ms: elapsed() },
      "Pod does not start",
    );
    this.#writeDown(plan, () => {
      if (result.kind === "undone" && !how.keep) records.forget(plan, result.error, this.#ending);
      else records.state(plan, "failed", { error: result.error });
    });
    throw result.error;
  }

  /** See `Ending`. */
  #writeDown({ podId }: PodPlan, write: () => void): unknown {
    try {
      write();
      return undefined;
    } catch (thrown) {
      const { records, log } = this.#parts;
      log.error({ pod_id: podId, err: thrown }, "Cannot write down how it ended, trying again");
      const row = records.get(podId);
      const again = async (): Promise<void> => write();
      if (row !== undefined)
        keepTrying(row, "its end cannot be written down", thrown, this.#supervision, again);
      return thrown;
    }
  }

  /** Deletes a pod; absent is success. `force` does not ask the guest and goes on past what cannot be undone. */
  async delete(idOrName: string, options: { readonly force: boolean }): Promise<Deleted> {
    const { records } = this.#parts;
    const asked = records.search(idOrName);
    if (asked === undefined) return { id: "", name: idOrName, existed: false };
    const { id, name } = asked;
    this.#bringingUp.get(id)?.abort(
      new PodnetError("CANCELLED", `Pod "${name}" was deleted while it was being created`, {
        hint: "Create it again",
      }),
    );
    return this.#end(id, async () => {
      const row = records.get(id);
      // An aborted create has left nothing.
      if (row !== undefined) await deletePod(row, options.force, this.#supervision);
      return { id, name, existed: true };
    });
  }

  /** Ends a pod's machine; the pod stays, with its addresses. A stopped one is. `force` does not ask the guest. */
  async stop(idOrName: string, options: { readonly force: boolean }): Promise<PodRow> {
    const { id } = this.find(idOrName);
    return this.#end(id, async () => {
      await stopPod(this.find(id), options.force, this.#supervision);
      return this.find(id);
    });
  }

  #end<T>(id: PodId, end: () => Promise<T>): Promise<T> {
    // What is being told to its guest is of no use any more, and a guest may take its time to answer.
    const followed = this.#live.get(id);
    if (followed !== undefined) unsubscribe(followed);
    return this.#locks.run(id, end);
  }

  /** Stops the processors of a running pod; those of a paused one are. */
  pause(idOrName: string): Promise<PodRow> {
    return this.#turn(idOrName, async (row) => {
      if (row.state !== "paused") await pausePod(this.running(row.id), this.#supervision);
    });
  }

  /** Lets the processors of a paused pod run; those of a running one do. */
  resume(idOrName: string): Promise<PodRow> {
    return this.#turn(idOrName, async (row) => {
      if (row.state !== "running") await resumePod(this.withMachine(row.id), this.#supervision);
    });
  }

  async #turn(idOrName: string, work: (row: PodRow) => Promise<void>): Promise<PodRow> {
    const { id } = this.find(idOrName);
    return await this.#locks.run(id, async () => {
      this.#refuseClosing();
      await work(this.find(id));
      return this.find(id);
    });
  }

  /** Brings the ports of a network's pods up to what it is now: in their rows, and on the host where they run. */
  refit(name: NetworkName): Promise<void> {
    return refitPods(name, { ...this.#supervision, networks: this.#parts.networks });
  }

  /** What that would make of ports for a network as it is to be. Takes nothing. */
  refitPlan(network: NetworkDefinition): PodFragment[] {
    return refitPlan(network, this.#parts);
  }

  /** After a start: takes over what runs, undoes what was half done. Rules of pods that do not run are left to a sweep. */
  async recover(bootId: string): Promise<void> {
    // A start may have found other settings, or the end of a change of a network that was cut short.
    for (const row of this.list()) refitRow(row, livePod(row.plan), this.#parts);
    const recovery: Recovery = {
      ...this.#supervision,
      podsDir: this.#parts.config.podsDir,
      sweeping: true,
      bootId,
      attached: (live) => this.#live.set(live.plan.podId, live),
    };
    await recoverPods(recovery);
    // What is not there any more, or goes back to what was, is known by now; the API does not answer before this.
    for (const row of this.list()) await this.#adoptPorts(row);
  }

  /** Takes no new pods from here on, until they are admitted again. */
  refuse(): void {
    this.#refusing = true;
  }

  admit(): void {
    this.#refusing = false;
  }

  get #ending(): boolean {
    return this.#closing || this.#refusing;
  }

  /** Takes no new work, waits for what is under way up to `graceMs`, then undoes it. Running pods stay. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    this.#over.abort();
    using _limit = timer(graceMs, () => {
      for (const stop of this.#bringingUp.values()) {
        stop.abort(new PodnetError("CANCELLED", "podnetd ends", { hint: "Create the pod again" }));
      }
      // A guest that is configured again right now will be by the next podnetd.
      for (const live of this.#live.values()) unsubscribe(live);
    });
    await this.#locks.idle();
    // All of them before the first wait: nothing that happens to a machine from here on is to be written down.
    for (const live of this.#live.values()) unsubscribe(live);
    for (const live of this.#live.values()) {
      await live.guest?.close();
      await live.vm?.detach();
    }
    this.#live.clear();
  }

  #refuseClosing(): void {
    if (!this.#ending) return;
    throw new PodnetError("CANCELLED", "podnetd is ending", {
      hint: "Try again when it runs again",
    });
  }
}
