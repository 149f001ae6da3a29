import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { perform } from "../../../core/effect.ts";
import { guarded } from "../../../core/guard.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { ServiceParts } from "../../api/context.ts";
import { sweepRecords } from "../../cri/containers/container-log.ts";
import { containersOf, guestMs } from "../../cri/containers/machine-of.ts";
import type { FollowedContainer } from "../../cri/containers/followed-container.ts";
import type { GuestMount } from "../../cri/containers/guest-mounts.ts";
import type { ContainerRow } from "../../cri/containers/rows.ts";
import { SandboxContainers } from "../../cri/containers/sandbox-containers.ts";
import type { CreateOptions } from "../../pods/lifecycle/starts.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import type { UserContainer } from "../requests/user-pod.ts";
import { guestMountsOf, type InnerContainer, type InnerPod, innerContainer } from "./inner-plan.ts";
import { LogFiles } from "./log-files.ts";

/** How often the lengths of logs are looked at, milliseconds. */
const rotateMs = 2000;
/** How long a container may take to end by its stop signal, as hyperd has it, milliseconds. */
const stopMs = 5000;

const recordsIn = ({ stateDir }: Pick<ServiceParts["config"], "stateDir">): string =>
  join(stateDir, "hyperd-log-records");

/** Containers in the machines of hyperd's pods. */
export class InnerContainers implements AsyncDisposable {
  readonly logs: LogFiles;
  readonly #parts: ServiceParts;
  readonly #all: SandboxContainers;
  /** Who waits for the start of a container, by its id. */
  readonly #waiting = new Map<string, Set<(found: FollowedContainer | undefined) => void>>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: ServiceParts) {
    const { db, pods, records, host, log, config } = parts;
    this.#parts = parts;
    this.logs = new LogFiles(join(config.stateDir, "hyperd-logs"));
    perform("file", "make directory of records", () =>
      mkdirSync(recordsIn(config), { recursive: true, mode: 0o700 }),
    );
    this.#all = new SandboxContainers({
      db,
      pods,
      clock: host.clock,
      log,
      recordsDir: recordsIn(config),
      logRoot: this.logs.root,
      isOwn: (podId) => {
        const row = records.getUsable(podId);
        return row !== undefined && row.spec.sandbox === undefined;
      },
    });
  }

  /** Goes on with what runs. */
  start(): void {
    this.#all.recover();
    this.#timer = setInterval(
      guarded("services", () => this.#rotate()),
      rotateMs,
    ).unref();
  }

  /** The containers of a pod, oldest first. */
  of({ id }: Pick<PodRow, "id">): readonly ContainerRow[] {
    return this.#all
      .list()
      .filter(({ podId, state }) => podId === id && state !== "creating")
      .toReversed();
  }

  find(id: string): ContainerRow {
    return this.#all.find(id);
  }

  over(id: string): Promise<unknown> | undefined {
    return this.#all.over(id);
  }

  /** What follows a container that runs. */
  held(id: string): FollowedContainer | undefined {
    return this.#all.find(id).state === "running" ? this.#all.followed(id) : undefined;
  }

  /** What follows a container, once it is started; undefined if it is removed before. */
  next(id: string, signal: AbortSignal): Promise<FollowedContainer | undefined> {
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(id) ?? new Set();
      this.#waiting.set(id, waiting);
      const over = (found: FollowedContainer | undefined): void => {
        signal.removeEventListener("abort", gone);
        waiting.delete(over);
        if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
        resolve(found);
      };
      const gone = (): void => over(undefined);
      waiting.add(over);
      signal.addEventListener("abort", gone, { once: true });
      if (signal.aborted) gone();
    });
  }

  /** What containers are to be. Throws what they are refused with, and `IMAGE_NOT_FOUND`. */
  plan(
    containers: readonly UserContainer[],
    pod: InnerPod,
    podId: string,
    field = (i: number) => `containers[${i}]`,
  ): InnerContainer[] {
    return containers.map((each, i) => {
      const image = this.#parts.images.findImage(each.image);
      const planned = innerContainer(each, pod, image, this.logs.of(podId), field(i));
      // What of the host cannot be copied is refused before there is a container.
      this.#mountsOf(planned.plan);
      return planned;
    });
  }

  /** Throws for volumes whose source cannot be copied, which no container may refer to yet. */
  checkVolumes(volumes: InnerPod["volumes"]): void {
    for (const { name, source } of volumes)
      if (source !== "") this.#mountsOf({ again: [{ source, name, path: "/checked" }] });
  }

  async create(row: PodRow, { plan, image }: InnerContainer): Promise<ContainerRow> {
    const { metadata } = plan;
    if (this.of(row).some((each) => each.plan.metadata.name === metadata.name))
      throw new PodnetError(
        "NAME_IN_USE",
        `Pod ${row.name} has a container ${printable(metadata.name)} already`,
        { field: "name", hint: "Choose another name, or remove that container first" },
      );
    return await this.#all.create(row.id, plan, image, this.#mountsOf(plan));
  }

  /** Starts one that was made, or makes one again that has ended. One that runs is started. */
  async startOne(id: string): Promise<void> {
    const row = this.#all.find(id);
    if (row.state === "ended") {
      const image = this.#parts.images.findImage(row.plan.digest);
      await this.#all.again(id, image, this.#mountsOf(row.plan));
    }
    await this.#all.start(id);
    this.#wake(id);
  }

  /**
   * Starts a pod with its containers: those that were made, and those that ended with an earlier
   * machine. Without all of them none is left running.
   */
  async startPod(row: PodRow, options: CreateOptions): Promise<void> {
    const { pods } = this.#parts;
    const wasUp = row.state === "running";
    await pods.start(row.id, options);
    const waiting = this.of(row).filter(({ state }) => state === "created" || !wasUp);
    try {
      for (const { id } of waiting) await this.startOne(id);
    } catch (thrown) {
      await pods.stop(row.id, { force: true });
      throw thrown;
    }
  }

  /** Ends a container by its stop signal, and then by killing it. */
  async stop(id: string, signal: AbortSignal, ms = stopMs): Promise<void> {
    await this.#all.stop(id, ms, signal);
  }

  /** Ends what runs in a pod, all at once, before its machine ends. */
  async stopAll(row: PodRow, signal: AbortSignal): Promise<void> {
    if (row.state !== "running") return;
    const running = this.of(row).filter(({ state }) => state === "running");
    // The end of the machine ends what does not end by itself.
    await Promise.allSettled(running.map(({ id }) => this.stop(id, signal)));
  }

  async kill(id: string, signal: number): Promise<void> {
    const { live } = this.#all.running(id);
    const containers = await containersOf(live);
    try {
      await containers.signal(id, signal, AbortSignal.timeout(guestMs));
    } catch (thrown) {
      if (!isPodnetError(thrown, "AGENT_REFUSED") || this.find(id).state === "running")
        throw thrown;
    }
  }

  /** Gives a container another name. */
  async rename(id: string, name: string): Promise<void> {
    await this.#all.rename(id, name);
  }

  /** Removes what pods that are gone have left, and lets those go who wait for their containers. */
  sweep(): void {
    const { pods, config } = this.#parts;
    this.logs.sweep(new Set(pods.listAny().map(({ id }) => id)));
    for (const id of this.#waiting.keys()) if (this.#all.search(id) === undefined) this.#wake(id);
    sweepRecords(recordsIn(config), new Set(this.#all.list().map(({ id }) => id)));
  }

  /** Kills what runs in a container, and removes it with its log. */
  async remove(id: string): Promise<void> {
    const { log } = this.#all.find(id).plan;
    await this.#all.remove(id);
    this.#wake(id);
    if (log !== undefined) this.logs.remove(log);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#all[Symbol.asyncDispose]();
  }

  /** A container was started, or removed. */
  #wake(id: string): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    const isRunning = this.#all.search(id)?.state === "running";
    const found = isRunning ? this.#all.followed(id) : undefined;
    for (const over of waiting) over(found);
  }

  #mountsOf(plan: Pick<ContainerRow["plan"], "again">): GuestMount[] {
    return guestMountsOf(plan, this.#parts.config.hyperdMountPaths);
  }

  #rotate(): void {
    for (const { id, state, plan } of this.#all.list())
      if (state === "running" && plan.log !== undefined && this.logs.rotate(plan.log))
        this.#all.reopenLog(id);
  }
}
