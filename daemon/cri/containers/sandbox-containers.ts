import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { abortError } from "../../../core/aborting.ts";
import type { Clock } from "../../../core/clock.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import {
  type ContainerLimits,
  type ContainerUsage,
  containerLimit,
} from "../../../guest-init/protocol/container-messages.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { PodId } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import type { Pods } from "../../pods/pods.ts";
import { KeyedLock } from "../../reconcile/keyed-lock.ts";
import type { Database } from "../../store/database.ts";
import { type ContainerEvent, ContainerEvents } from "../container-events.ts";
import { beginRecord, ContainerLog, dropRecord, sweepRecords } from "./container-log.ts";
import { usageOf } from "./container-usage.ts";
import { FollowedContainer } from "./followed-container.ts";
import type { GuestMount } from "./guest-mounts.ts";
import { makeInMachine, takeFromMachine } from "./make-container.ts";
import { asStored, containersOf, guestMs, machineOf, wrongState } from "./machine-of.ts";
import { writeMessage } from "./termination-message.ts";
import {
  type ContainerPlan,
  type ContainerRow,
  deleteContainer,
  getContainer,
  listContainers,
  putContainer,
} from "./rows.ts";

/** How long a killed container may take to end, milliseconds. */
const killedMs = 5000;
/** Between two tries of what a guest did not do, milliseconds. */
const againMs = 1000;
const killSignal = 9;
/** Of a container that ended unseen, as if it was killed. */
const lost: ProcessEnd = { signal: 9 };

/** What a container that comes into a state means to those who follow. */
const happenings: Partial<Record<ContainerRow["state"], ContainerEvent["kind"]>> = {
  created: "created",
  running: "started",
  ended: "stopped",
};

export interface ContainersParts {
  readonly db: Database;
  readonly pods: Pods;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  /** Where podnetd keeps how far logs go. */
  readonly recordsDir: string;
  /** The directory that logs must be in. */
  readonly logRoot: string;
  /** Whether the containers of a pod are looked after here. */
  readonly isOwn: (podId: PodId) => boolean;
}

/** The containers of sandboxes: rows first, then the guest. */
export class SandboxContainers implements AsyncDisposable {
  /** What happens to them. */
  readonly events: ContainerEvents;
  readonly #parts: ContainersParts;
  readonly #locks = new KeyedLock<string>();
  readonly #followed = new Map<string, FollowedContainer>();
  readonly #over = new AbortController();

  constructor(parts: ContainersParts) {
    this.#parts = parts;
    this.events = new ContainerEvents(parts.clock);
  }

  /** Takes over what a podnetd before has left: completes removals, and follows what runs. */
  recover(): void {
    const { db, recordsDir, isOwn } = this.#parts;
    // Deleted pods left theirs.
    sweepRecords(recordsDir, new Set(listContainers(db).map(({ id }) => id)));
    for (const row of listContainers(db).filter(({ podId }) => isOwn(podId))) {
      if (row.state === "running") this.#follow(row);
      // The call that made it got no answer.
      if (row.state === "creating" || row.state === "removing") void this.#removeLater(row.id);
    }
  }

  /** Newest first. */
  list(): ContainerRow[] {
    const { db, isOwn } = this.#parts;
    return listContainers(db)
      .filter(({ podId }) => isOwn(podId))
      .map((row) => this.#asItIs(row));
  }

  /** Throws `CONTAINER_NOT_FOUND`. */
  find(id: string): ContainerRow {
    const row = this.search(id);
    if (row !== undefined) return row;
    throw new PodnetError("CONTAINER_NOT_FOUND", `There is no container "${printable(id)}"`, {
      field: "container_id",
      hint: "Give the whole id, as ListContainers has it",
    });
  }

  search(id: string): ContainerRow | undefined {
    const row = getContainer(this.#parts.db, id);
    return row !== undefined && this.#parts.isOwn(row.podId) ? this.#asItIs(row) : undefined;
  }

  /**
   * Makes a container in a sandbox that is ready. Asked again for the same, whose answer was lost
   * say, it is that one. Throws `NAME_IN_USE`, `LIMIT_REACHED`, and as plugging a disk does.
   */
  create(
    podId: string,
    plan: ContainerPlan,
    image: { readonly file: string },
    mounts: readonly GuestMount[],
  ): Promise<ContainerRow> {
    return this.#locks.run(podId, async () => {
      const { db, pods, clock } = this.#parts;
      const others = this.of(podId);
      const there = others.find((row) => isDeepStrictEqual(row.plan.metadata, plan.metadata));
      if (there?.state === "created" && isDeepStrictEqual(there.plan, asStored(plan))) return there;
      if (there !== undefined)
        throw new PodnetError("NAME_IN_USE", `Container ${there.id} has this name and attempt`, {
          field: "config.metadata",
          hint: "Remove that container first, or raise attempt",
        });
      if (others.length >= containerLimit)
        throw new PodnetError("LIMIT_REACHED", `The sandbox has ${others.length} containers`, {
          hint: "Remove one first",
          details: { limit: containerLimit },
        });
      const live = pods.running(podId);
      await containersOf(live);
      const id = randomBytes(32).toString("hex");
      const row: ContainerRow = {
        id,
        podId: live.plan.podId,
        state: "creating",
        plan,
        machine: machineOf(live),
        createdMs: clock.now(),
        startedMs: undefined,
        endedMs: undefined,
        end: undefined,
        message: undefined,
      };
      putContainer(db, row);
      try {
        this.#beginLog(row);
        await makeInMachine(pods, live, row, image, mounts);
        return this.#become(row, { state: "created" });
      } catch (thrown) {
        await this.#takeAway(row).catch(() => void this.#removeLater(id));
        throw toPodnetError(thrown);
      }
    });
  }

  /**
   * Makes a container that has ended again, in the machine that its pod has now. Until it is made
   * its row says that it has ended. Throws `WRONG_STATE`, and as `create`.
   */
  again(
    id: string,
    image: { readonly file: string },
    mounts: readonly GuestMount[],
  ): Promise<ContainerRow> {
    return this.#locks.run(this.find(id).podId, async () => {
      const row = this.find(id);
      if (row.state !== "ended") throw wrongState(row, "ended");
      const live = this.#parts.pods.running(row.podId);
      // Of this machine, or of a try before.
      await (await containersOf(live)).remove(id, AbortSignal.timeout(guestMs));
      this.#beginLog(row);
      await makeInMachine(this.#parts.pods, live, row, image, mounts);
      return this.#become(row, {
        state: "created",
        machine: machineOf(live),
        startedMs: undefined,
        endedMs: undefined,
        end: undefined,
        message: undefined,
      });
    });
  }

  /** Gives a container another name. Throws `NAME_IN_USE` where one of its pod has it. */
  rename(id: string, name: string): Promise<ContainerRow> {
    const { podId } = this.find(id);
    return this.#locks.run(podId, () =>
      this.#locks.run(id, () => {
        const row = this.find(id);
        const taken = this.of(podId).some(
          (each) => each.id !== id && each.plan.metadata.name === name,
        );
        if (taken)
          throw new PodnetError(
            "NAME_IN_USE",
            `The pod has a container ${printable(name)} already`,
            {
              field: "name",
              hint: "Choose another name, or remove that container first",
            },
          );
        const metadata = { ...row.plan.metadata, name };
        return Promise.resolve(this.#become(row, { plan: { ...row.plan, metadata } }));
      }),
    );
  }

  /** Starts a container that was made. Throws `WRONG_STATE`, `PROCESS_FAILED`. */
  start(id: string): Promise<void> {
    return this.#locks.run(id, async () => {
      const row = this.find(id);
      if (row.state === "running") return;
      if (row.state !== "created") throw wrongState(row, "created");
      const { pods, clock } = this.#parts;
      const containers = await containersOf(pods.running(row.podId));
      const running = this.#become(row, { state: "running", startedMs: clock.now() });
      try {
        const { start } = row.plan;
        await containers.start({ ...start, id }, AbortSignal.timeout(guestMs));
      } catch (thrown) {
        const { message } = toPodnetError(thrown);
        this.#become(running, {
          state: "ended",
          endedMs: clock.now(),
          end: { code: 128 },
          message,
        });
        // It may have started although no answer came.
        await containers.signal(id, killSignal, AbortSignal.timeout(guestMs)).catch(() => {});
        throw isPodnetError(thrown, "AGENT_REFUSED")
          ? new PodnetError("PROCESS_FAILED", `The container cannot be started: ${message}`, {
              field: "container_id",
              hint: "See that the image has the program, the user and the working directory",
              cause: thrown,
            })
          : thrown;
      }
      this.#follow(running);
    });
  }

  /**
   * Ends a container: with the signal of its image, and after `timeoutMs` by killing it. One that
   * does not run has ended. While this waits, another call may end it sooner.
   */
  async stop(id: string, timeoutMs: number, caller: AbortSignal): Promise<void> {
    const { plan } = this.search(id) ?? {};
    if (plan === undefined) return;
    const signals = [
      ...(timeoutMs > 0 ? [[plan.stopSignal, timeoutMs] as const] : []),
      [killSignal, killedMs] as const,
    ];
    for (const [signal, waitMs] of signals) {
      const isRunning = await this.#locks.run(id, () => this.#signal(id, signal));
      if (!isRunning) return;
      await this.#ended(id, waitMs, caller);
      if (caller.aborted) throw abortError(caller, "Stopping a container");
    }
    if (this.search(id)?.state === "running")
      throw new PodnetError("DEADLINE_EXCEEDED", `Container ${id} does not end`, {
        hint: "Try again, or stop its sandbox",
      });
  }

  /** Answers whether it runs. */
  async #signal(id: string, signal: number): Promise<boolean> {
    const row = this.search(id);
    if (row?.state !== "running") return false;
    const containers = await containersOf(this.#parts.pods.running(row.podId));
    await containers.signal(id, signal, AbortSignal.timeout(guestMs)).catch((thrown: unknown) => {
      // It may have ended just now.
      if (!isPodnetError(thrown, "AGENT_REFUSED")) throw thrown;
    });
    return true;
  }

  /** Changes limits of a container, also before it starts. Throws `WRONG_STATE` after its end. */
  limit(id: string, limits: ContainerLimits): Promise<void> {
    return this.#locks.run(id, async () => {
      const row = this.find(id);
      if (row.state !== "created" && row.state !== "running") throw wrongState(row, "running");
      if (row.state === "running") {
        const containers = await containersOf(this.#parts.pods.running(row.podId));
        await containers.limit(id, limits, AbortSignal.timeout(guestMs));
      }
      // The row says what is in force, so the guest comes first.
      const { plan } = row;
      const start = { ...plan.start, limits: { ...plan.start.limits, ...limits } };
      this.#become(this.find(id), { plan: { ...plan, start } });
    });
  }

  /** What containers that run use, by their ids: of those whose guests say so in time. */
  usage(rows: readonly ContainerRow[]): Promise<ReadonlyMap<string, ContainerUsage>> {
    return usageOf(this.#parts.pods, rows);
  }

  /** Kills a container and removes all that there is of it. An absent one is removed. */
  remove(id: string): Promise<void> {
    return this.#locks.run(id, async () => {
      const row = this.search(id);
      if (row === undefined) return;
      await this.#locks.run(row.podId, () => this.#takeAway(row));
    });
  }

  /** Resolves with the end of a container that runs; undefined for another. */
  over(id: string): Promise<unknown> | undefined {
    return this.#followed.get(id)?.over;
  }

  /** The containers of a sandbox. */
  of(podId: string): ContainerRow[] {
    return this.list().filter((row) => row.podId === podId);
  }

  /** Lets go of the containers of a sandbox that was removed: they went with its machine. */
  forget(rows: readonly ContainerRow[]): void {
    for (const row of rows) this.#drop(row);
  }

  /** The connections of a container that runs. Throws `WRONG_STATE`. */
  running(id: string): { readonly row: ContainerRow; readonly live: LivePod } {
    const row = this.find(id);
    if (row.state !== "running") throw wrongState(row, "running");
    return { row, live: this.#parts.pods.running(row.podId) };
  }

  /** What follows a container that runs. Throws `WRONG_STATE`. */
  followed(id: string): FollowedContainer {
    const { row } = this.running(id);
    const followed = this.#followed.get(row.id);
    if (followed === undefined) throw wrongState(row, "started yet");
    return followed;
  }

  /** Goes on with the log of a container in a new file. */
  reopenLog(id: string): void {
    this.followed(id).reopenLog();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    for (const followed of this.#followed.values()) followed[Symbol.dispose]();
    this.#followed.clear();
    await this.#locks.idle();
  }

  /** A row as it is by now: with its machine a container has ended. */
  #asItIs(row: ContainerRow): ContainerRow {
    if (row.state !== "created" && row.state !== "running") return row;
    if (this.#machineOf(row) !== undefined) return row;
    return this.#end(row.id, lost, "The machine of its sandbox has ended") ?? row;
  }

  /** What this podnetd holds of the machine that a container is in; undefined without it. */
  #machineOf(row: ContainerRow): LivePod | undefined {
    const live = this.#parts.pods.live(row.podId);
    return live?.vm !== undefined && machineOf(live) === row.machine ? live : undefined;
  }

  #become(row: ContainerRow, change: Partial<ContainerRow>): ContainerRow {
    const next = { ...row, ...change };
    putContainer(this.#parts.db, next);
    const happened = happenings[next.state];
    if (next.state !== row.state && happened !== undefined)
      this.events.publish(happened, row.id, row.podId);
    return next;
  }

  /** Records an end, once. */
  #end(id: string, end: ProcessEnd, message?: string): ContainerRow | undefined {
    const row = getContainer(this.#parts.db, id);
    if (row === undefined || (row.state !== "running" && row.state !== "created")) return row;
    const endedMs = this.#parts.clock.now();
    return this.#become(row, { state: "ended", endedMs, end, message });
  }

  #follow(row: ContainerRow): void {
    const { clock, log, logRoot } = this.#parts;
    if (this.#followed.has(row.id)) return;
    const followed = new FollowedContainer({
      row,
      record: this.#recordOf(row.id),
      logRoot,
      clock,
      log,
      machine: () => this.#machineOf(row),
    });
    this.#followed.set(row.id, followed);
    void followed.over.then((end) => {
      this.#followed.delete(row.id);
      if (this.#over.signal.aborted) return;
      if (end === "lost") this.#end(row.id, lost, "The guest has lost the container");
      else if (end === "gone") this.#asItIs(row);
      else {
        this.#say(row, end);
        this.#end(row.id, end);
      }
    });
  }

  /** kubelet reads the message as soon as it sees the end. */
  #say({ id, plan: { messageFile } }: ContainerRow, { message }: ProcessEnd): void {
    if (messageFile === undefined || message === undefined) return;
    try {
      writeMessage(messageFile, message);
    } catch (thrown) {
      this.#parts.log.warn({ err: thrown, container: id }, "A termination message is lost");
    }
  }

  /** Waits for the end of a container, at most so long, and no longer than the caller. */
  async #ended(id: string, ms: number, caller: AbortSignal): Promise<void> {
    const followed = this.#followed.get(id);
    if (followed === undefined) return;
    const limit = new AbortController();
    const signal = AbortSignal.any([limit.signal, caller]);
    const late = delay(ms, undefined, { signal }).catch(() => {});
    await Promise.race([followed.over, late]);
    limit.abort();
  }

  /** Opens the log for a look: a container without the log that it should have is not made. */
  #beginLog({ id, plan }: ContainerRow): void {
    if (plan.log === undefined) return;
    const record = this.#recordOf(id);
    beginRecord(record);
    new ContainerLog({ path: plan.log, root: this.#parts.logRoot, record }, () => {}).close();
  }

  /** Removes a container and, with the last one of its image, the disk. */
  async #takeAway(row: ContainerRow): Promise<void> {
    const { pods, db } = this.#parts;
    // A container whose create was never answered stays hidden while it is removed.
    const removing = row.state === "creating" ? row : this.#become(row, { state: "removing" });
    const live = this.#machineOf(removing);
    if (live !== undefined) {
      const isUsed = listContainers(db).some(
        (each) =>
          each.id !== row.id && each.podId === row.podId && each.plan.disk === row.plan.disk,
      );
      await takeFromMachine(pods, live, row, isUsed);
    }
    this.#drop(row);
  }

  #drop(row: ContainerRow): void {
    if (row.state !== "creating") this.events.publish("deleted", row.id, row.podId);
    this.#followed.get(row.id)?.[Symbol.dispose]();
    this.#followed.delete(row.id);
    dropRecord(this.#recordOf(row.id));
    deleteContainer(this.#parts.db, row.id);
  }

  /** Removes one in the background, as soon as its guest can be reached. */
  async #removeLater(id: string): Promise<void> {
    while (!this.#over.signal.aborted) {
      try {
        return await this.remove(id);
      } catch {
        await delay(againMs, undefined, { signal: this.#over.signal, ref: false }).catch(() => {});
      }
    }
  }

  #recordOf(id: string): string {
    return join(this.#parts.recordsDir, id);
  }
}
