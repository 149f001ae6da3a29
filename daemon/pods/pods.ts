import { isDeepStrictEqual } from "node:util";
import type { HyperdSpec, InlineRules } from "../../api/pod-spec.ts";
import { create } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  changedLabels,
  type CreateSpec,
  type LabelsChange,
  validateCreate,
} from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import type { LookOptions } from "../../network/containers/attachments.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";
import type { JoinDesired } from "../../network/tc-redirect/redirect.ts";
import type { RunningJoin, RunningPort, RunningPorts } from "../drift/parts.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { SizeClass } from "../config/pool.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { type DamagedPod, isDamaged, usable } from "./store/pod-rows.ts";
import type { PodRow } from "./store/pod-row.ts";
import { Tally } from "../events/tally.ts";
import { adoptPorts } from "./interfaces/adopt-ports.ts";
import { refuseOwners, requireAttached } from "./machine/attach.ts";
import { Changes } from "./lifecycle/changes.ts";
import { deleteDamaged } from "./lifecycle/damaged-pod.ts";
import { timer } from "./lifecycle/deadlines.ts";
import { deletePod, type Ending, stopPod, type StopOptions } from "./lifecycle/end-pod.ts";
import type { KnownNetworks } from "../networks/known-networks.ts";
import { pausePod, resumePod } from "./lifecycle/lifecycle.ts";
import { podBackoff } from "./lifecycle/keep-trying.ts";
import { changedPorts, changedServersText, followNetwork } from "./lifecycle/follow-network.ts";
import { type LivePod, unsubscribe } from "./lifecycle/live-pod.ts";
import { findNamed, planNew, someProcess } from "./plan/plan-new.ts";
import type { PodPlan } from "./store/pod-plan.ts";
import { machineOf } from "./plan/plan-seed.ts";
import { MachinePool } from "./pool/pool.ts";
import type { PodsParts } from "./pods-parts.ts";
import { type Recovery, recoverPods } from "./lifecycle/recover.ts";
import {
  joinOfPod,
  joinsOfPod,
  portOfPod,
  portsOfPod,
  rulesOfPod,
} from "./interfaces/running-ports.ts";
import { type CreateOptions, Starts } from "./lifecycle/starts.ts";
import { notHeld, wrongState } from "./lifecycle/wrong-state.ts";
import { writeDown } from "./lifecycle/write-down.ts";

/** The outcome of a delete. */
export interface Deleted {
  readonly id: string;
  readonly name: string;
  readonly existed: boolean;
}

/**
 * All pods of this node. Pods are worked on concurrently, the requests for one pod in order. The
 * rows are the truth; in memory are only connections.
 */
export class Pods implements RunningPorts {
  readonly #parts: PodsParts;
  readonly #live = new Map<PodId, LivePod>();
  readonly #locks = new KeyedLock<PodId>();
  readonly #retries = new WorkQueue({ name: "pods", backoff: podBackoff });
  readonly #pool: MachinePool;
  readonly #starts: Starts;
  /** Changes of running pods. */
  readonly changes: Changes;
  readonly #supervision: Ending;
  readonly #agentsMayCome = Promise.withResolvers<void>();
  /** Aborted when podnetd lets go of its pods. */
  readonly #over = new AbortController();
  #closing = false;
  #refusing = false;

  constructor(parts: PodsParts) {
    this.#parts = parts;
    const dropped = new Tally(parts.log, "Guest events dropped: rate limit", (what) =>
      parts.metrics.guestDropped(what),
    );
    const { host, records, log, metrics } = parts;
    const supervision: Ending = {
      host,
      records,
      log,
      locks: this.#locks,
      retries: this.#retries,
      dropped: (what) => dropped.count(what),
      overwritten: (bytes) => metrics.consoleOverwritten(bytes),
      over: this.#over.signal,
      gone: (live) => this.#live.delete(live.plan.podId),
      held: (id) => this.#live.get(id),
      writeDown: (plan, write) => writeDown(plan, write, supervision),
      restartLater: (id, pauseMs) => this.#restartLater(id, pauseMs),
    };
    this.#supervision = supervision;
    this.#pool = new MachinePool({
      ...parts,
      planMachine: (size) => this.#planMachine(size),
      isBusy: () => this.#starts.isBusy,
    });
    this.#starts = new Starts({
      ...parts,
      pool: this.#pool,
      locks: this.#locks,
      supervision,
      ending: () => this.#ending,
      refuseEnding: () => this.#refuseEnding(),
      attached: (live) => this.#live.set(live.plan.podId, live),
    });
    this.changes = new Changes({
      ...parts,
      supervision,
      running: (idOrName) => this.running(idOrName),
      change: (idOrName, work) => this.change(idOrName, work),
      turn: (idOrName, work) => this.#turn(idOrName, work),
    });
  }

  /** The machines that wait for a pod. */
  get pool(): MachinePool {
    return this.#pool;
  }

  list(): PodRow[] {
    return this.#parts.records.list();
  }

  /** Also pods with unreadable records. */
  listAny(): (PodRow | DamagedPod)[] {
    return this.#parts.records.listAny();
  }

  find(idOrName: string): PodRow {
    return this.#parts.records.find(idOrName);
  }

  /** Finds a pod, also a damaged one. */
  findAny(idOrName: string): PodRow | DamagedPod {
    return this.#parts.records.findAny(idOrName);
  }

  /** The connections of a running pod. Throws `POD_NOT_FOUND`, `WRONG_STATE`. */
  running(idOrName: string): LivePod {
    return this.#runningOf(this.find(idOrName));
  }

  #runningOf(row: PodRow): LivePod {
    const live = this.#live.get(row.id);
    if (row.state !== "running") throw wrongState(row, "running");
    if (live === undefined) throw notHeld(row);
    return live;
  }

  /** Finds a pod that has a machine, which may be paused. */
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

  /** All that this process holds of pods that have machines. */
  held(): LivePod[] {
    return [...this.#live.values()];
  }

  /**
   * The pods that have their part of the host, and keep it: those with a machine, and those that
   * are brought up now.
   */
  listPresent(): PodRow[] {
    const { records } = this.#parts;
    const rows = new Map(records.listWithMachine().map((row) => [row.id, row]));
    for (const id of this.#starts.comingUp()) {
      const row = rows.has(id) ? undefined : records.getUsable(id);
      if (row !== undefined) rows.set(id, row);
    }
    return [...rows.values()];
  }

  runningPorts(): RunningPort[] {
    return [...this.#live.values()].flatMap(portsOfPod);
  }

  portNow(port: RunningPort): PodFragment | undefined {
    const live = this.#live.get(port.podId);
    return live === undefined ? undefined : portOfPod(live, port.tap, this.#parts.networks.list());
  }

  rulesNow({ podId }: RunningPort): PodFragment | undefined {
    const live = this.#live.get(podId);
    return live === undefined ? undefined : rulesOfPod(live, this.#parts.networks.list());
  }

  runningJoins(): RunningJoin[] {
    return [...this.#live.values()].flatMap(joinsOfPod);
  }

  joinNow({ podId, tap }: RunningJoin): JoinDesired | undefined {
    const live = this.#live.get(podId);
    return live === undefined ? undefined : joinOfPod(live, tap);
  }

  inspectJoin(join: RunningJoin, { heal }: LookOptions, signal: AbortSignal): Promise<Inspection> {
    const { sandboxes } = this.#parts.host;
    return sandboxes.inspect(join.netns, () => this.joinNow(join), heal, signal);
  }

  /** Plans a create. Takes nothing. */
  async plan(
    asked: CreateSpec,
    { imagesOnly = false }: Pick<CreateOptions, "imagesOnly"> = {},
  ): Promise<PodPlan> {
    const found = await findNamed(asked.spec, this.#parts, this.#over.signal);
    return planNew(asked, found, this.#parts, { imagesOnly, usersTaken: this.#pool.users() });
  }

  /**
   * Creates a pod and answers once its network works. Without a request id the caller's end undoes
   * it; with one it goes on to its deadline, and asking again joins it.
   */
  create(asked: CreateSpec, options: CreateOptions): Promise<PodRow> {
    return this.#starts.create(asked, options);
  }

  /** Starts a stopped or failed pod again, with its addresses. */
  start(idOrName: string, options: CreateOptions): Promise<PodRow> {
    return this.#starts.start(idOrName, options);
  }

  /**
   * Changes a running pod in its turn, so that no other change runs meanwhile. Throws
   * `POD_NOT_FOUND`, and `WRONG_STATE` naming the state of a pod that does not run by then.
   */
  async change<T>(idOrName: string, work: (live: LivePod, row: PodRow) => Promise<T>): Promise<T> {
    const { id } = this.find(idOrName);
    return await this.#locks.run(id, () => {
      this.#refuseEnding();
      const row = this.find(id);
      return work(this.#runningOf(row), row);
    });
  }

  /**
   * Deletes a pod; absent is success. `force` does not ask the guest, and goes on when a step
   * cannot be undone or the record is unreadable (else `STATE_CORRUPT`).
   */
  async delete(idOrName: string, options: { readonly force: boolean }): Promise<Deleted> {
    const { records } = this.#parts;
    const asked = records.searchWhole(idOrName);
    if (asked === undefined) return { id: "", name: idOrName, existed: false };
    const { id, name } = asked;
    this.#starts.abort(
      id,
      new PodnetError("CANCELLED", `Pod "${name}" was deleted while it was being created`, {
        hint: "Create it again",
      }),
    );
    return this.#end(id, async () => {
      const row = records.getAny(id);
      // An aborted create has left nothing.
      if (row === undefined) return { id, name, existed: true };
      if (!isDamaged(row)) await deletePod(row, options.force, this.#supervision);
      else if (options.force) await deleteDamaged(row, { ...this.#supervision, ...this.#parts });
      else throw row.damage;
      return { id, name, existed: true };
    });
  }

  /**
   * Detaches a pod from a foreign machine, which runs on. Throws `WRONG_STATE` for podnet's own.
   */
  async detach(idOrName: string, options: { readonly force: boolean }): Promise<Deleted> {
    const row = this.#parts.records.searchWhole(idOrName);
    if (row !== undefined) requireAttached(usable(row));
    return await this.delete(idOrName, options);
  }

  /**
   * Ends a pod's machine; the pod stays, with its addresses. A stopped one is. `force` does not ask
   * the guest.
   */
  async stop(idOrName: string, options: StopOptions): Promise<PodRow> {
    this.#parts.records.searchWhole(idOrName);
    const row = this.find(idOrName);
    refuseOwners(row, "stop");
    const { id } = row;
    return this.#end(id, async () => {
      this.#parts.records.processes.forgetNextStart(row.plan);
      await stopPod(this.find(id), options, this.#supervision);
      return this.find(id);
    });
  }

  /** Starts a pod by its restart policy, unless it was stopped or deleted meanwhile. */
  #restartLater(id: PodId, pauseMs: number): void {
    const work = async (): Promise<void> => {
      const isMeant = this.#parts.records.processes.get(id)?.nextMs !== undefined;
      if (!isMeant || this.#ending) return;
      const progress = { started: () => {}, finished: () => {} };
      await this.#starts.start(id, { signal: this.#over.signal, progress, byPolicy: true });
    };
    this.#retries.add(`pod ${id}: restart`, work, pauseMs);
  }

  #end<T>(id: PodId, end: () => Promise<T>): Promise<T> {
    // What is being sent to the guest is of no use any more, and a guest may take its time to
    // answer.
    const followed = this.#live.get(id);
    if (followed !== undefined) unsubscribe(followed);
    return this.#locks.run(id, end);
  }

  /**
   * Gives a pod other rules of its own, or none, whatever its state. Policies carry them out:
   * see `Policies.apply`.
   */
  setRules(id: PodId, policy: InlineRules | undefined): Promise<PodRow> {
    return this.#turn(id, async (row) => {
      this.#parts.records.setRules(row, this.#live.get(id), policy);
    });
  }

  /**
   * Changes labels of a pod, whatever its state. Policies that choose by them follow: see
   * `Policies.labelled`.
   */
  setLabels(idOrName: string, change: LabelsChange): Promise<PodRow> {
    return this.#turn(idOrName, async (row) => {
      const labels = changedLabels(row.spec.labels, change);
      if (!isDeepStrictEqual(labels, row.spec.labels))
        this.#parts.records.setLabels(row, this.#live.get(row.id), labels);
    });
  }

  /** Keeps other words of a caller of hyperd's API for a pod, which mean nothing to podnet. */
  setHyperd(id: PodId, hyperd: HyperdSpec): Promise<PodRow> {
    return this.#turn(id, async (row) => {
      this.#parts.records.setHyperd(row, this.#live.get(id), hyperd);
    });
  }

  /** Stops the processors of a running pod; those of a paused one are. */
  pause(idOrName: string): Promise<PodRow> {
    return this.#turn(idOrName, async (row) => {
      refuseOwners(row, "pause");
      if (row.state !== "paused") await pausePod(this.running(row.id), this.#supervision);
    });
  }

  /** Lets the processors of a paused pod run; those of a running one do. */
  resume(idOrName: string): Promise<PodRow> {
    return this.#turn(idOrName, async (row) => {
      refuseOwners(row, "resume");
      if (row.state !== "running") await resumePod(this.withMachine(row.id), this.#supervision);
    });
  }

  async #turn(idOrName: string, work: (row: PodRow) => Promise<void>): Promise<PodRow> {
    const { id } = this.find(idOrName);
    return await this.#locks.run(id, async () => {
      this.#refuseEnding();
      await work(this.find(id));
      return this.find(id);
    });
  }

  /** Applies a network update to the ports and name servers of the network's pods. */
  follow(name: NetworkName): Promise<void> {
    this.reachAgents();
    return followNetwork(name, { ...this.#supervision, networks: this.#parts.networks });
  }

  /** The ports that a network's new definition would change. Takes nothing. */
  changedPorts(network: NetworkDefinition): PodFragment[] {
    return changedPorts(network, this.#parts);
  }

  /**
   * The guests that a change to these networks would send other name servers, for people. Takes
   * nothing.
   */
  changedServersText(name: NetworkName, networks: KnownNetworks): string[] {
    return changedServersText(name, networks, this.#parts);
  }

  /**
   * Recovers pods after a start: adopts running machines and undoes half-done work. Rules of pods
   * that do not run are left to a sweep. With `agentsLater` no agent is reached before
   * `reachAgents` is called.
   */
  async recover(
    bootId: string,
    { agentsLater = false }: { readonly agentsLater?: boolean } = {},
  ): Promise<void> {
    const recovery: Recovery = {
      ...this.#supervision,
      podsDir: this.#parts.config.podsDir,
      netnsDir: this.#parts.config.netnsDir,
      disksDir: this.#parts.config.disksDir,
      kept: this.#parts.kept,
      sweeping: true,
      ...(agentsLater ? { agentsMayCome: this.#agentsMayCome.promise } : {}),
      bootId,
      attached: (live) => this.#live.set(live.plan.podId, live),
    };
    const rows = await recoverPods(recovery);
    this.#pool.start();
    // By now podnetd has found which pods are gone or go back to earlier contents. The API does not
    // answer before this.
    for (const row of rows) await adoptPorts(row, this.#supervision);
  }

  /**
   * Has the agents of adopted machines reached, which traffic does not depend on. Call it before
   * anything is asked of a guest: callers from then on wait for its agent.
   */
  reachAgents(): void {
    this.#agentsMayCome.resolve();
  }

  /** Takes no new pods from here on, until they are admitted again. */
  refuse(): void {
    this.#refusing = true;
    this.#pool.rest();
  }

  admit(): void {
    this.#refusing = false;
    this.#pool.start();
  }

  get #ending(): boolean {
    return this.#closing || this.#refusing;
  }

  /**
   * Refuses new requests, waits up to `graceMs` for those under way, and then undoes them. Running
   * pods stay.
   */
  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    this.#over.abort();
    // (The locks wait for attempts under way; retries without a pod are left to the next podnetd.)
    void this.#retries.close();
    using _limit = timer(graceMs, () => {
      this.#starts.abortAll(
        () => new PodnetError("CANCELLED", "podnetd ends", { hint: "Create the pod again" }),
      );
      // A guest that is configured again right now will be by the next podnetd.
      for (const live of this.#live.values()) unsubscribe(live);
    });
    await this.#locks.idle();
    await this.#pool[Symbol.asyncDispose]();
    // All of them before the first wait, as a machine's events from here on are not to be written
    // down.
    for (const live of this.#live.values()) unsubscribe(live);
    for (const live of this.#live.values()) {
      await live.guest?.close();
      await live.vm?.detach();
    }
    this.#live.clear();
  }

  /** The machine of a pod of which nothing but its size and image is asked. */
  #planMachine({ image, vcpu, memoryMib }: SizeClass): VmPlan {
    const defaults = { network: this.#parts.config.network.name };
    const ofImage =
      image === undefined ? {} : { boot: { image }, ...someProcess(image, this.#parts) };
    const asked = create(CreatePodRequestSchema, {
      spec: { resources: { vcpu, memoryMib }, ...ofImage },
    });
    const { spec } = validateCreate(asked, defaults);
    const found = { links: {} };
    const usersTaken = this.#pool.users();
    const plan = planNew({ spec }, found, this.#parts, { imagesOnly: false, usersTaken });
    return machineOf({ plan, spec });
  }

  #refuseEnding(): void {
    if (!this.#ending) return;
    throw new PodnetError("CANCELLED", "podnetd is ending", {
      hint: "Try again when podnetd runs again",
    });
  }
}
