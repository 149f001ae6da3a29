import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { throwIfAborted } from "../../../core/aborting.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import { guard, guarded } from "../../../core/guard.ts";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { PodId } from "../../../core/names.ts";
import { type NicPlan, templateNicMac, type VmPlan } from "../../../hypervisor/driver.ts";
import type { Log } from "../../../linux/log.ts";
import type { Config } from "../../config/config.ts";
import type { Host } from "../lifecycle/host.ts";
import { park, unpark } from "./park.ts";
import type { ParkedMachine } from "./parked-machine.ts";

export interface PoolParts {
  readonly config: Pick<Config, "factory" | "pool">;
  readonly host: Host;
  readonly log: Log;
  /**
   * Plans the machine of a pod that nothing is asked of, as a create would now. Takes nothing;
   * throws as a create does.
   */
  planMachine(): VmPlan;
  /** Whether pods are being created: a burst has the host for itself. */
  isBusy(): boolean;
}

/** The machine that a create plans with: an id and a user that it has already. */
export interface Offer {
  readonly podId: PodId;
  readonly uid: number | undefined;
}

/** Why a create that asked for a machine of the pool got none. */
export const missReasons = ["empty", "unlike"] as const;

export type MissReason = (typeof missReasons)[number];

/** What became of the creates that asked for a machine of the pool, since podnetd started. */
export interface PoolCounts {
  readonly claimed: number;
  readonly missed: Readonly<Record<MissReason, number>>;
}

/** The pool as it is now. */
export interface PoolView extends PoolCounts {
  readonly size: number;
  readonly ready: number;
  readonly drained: boolean;
  /** Of the machines that wait. */
  readonly memoryBytes: number;
  /** What its machines are like; undefined while none can be planned. */
  readonly machine: Pick<VmPlan, "kernel" | "initrd" | "vcpu" | "memoryMib"> | undefined;
  /** Why the last machine could not be made; undefined after a success. */
  readonly error: PodnetError | undefined;
}

/** With `Driver.cloneKey` of its plan. */
interface Waiting extends ParkedMachine {
  readonly key: string;
}

/** Milliseconds between two looks at what is to be done. */
const lookMs = 100;
/** Longest that a burst delays the next machine, milliseconds. */
const burstMs = 5000;
/** After a machine could not be parked, milliseconds. */
const againMs = 5000;

/**
 * Machines that were made before anyone asks for a pod, of the default image and size. They have no
 * rows: a podnetd that ends, ends them, and one that starts ends those of one that was killed.
 */
export class MachinePool implements AsyncDisposable {
  readonly #parts: PoolParts;
  readonly #parked: Waiting[] = [];
  readonly #closed = new AbortController();
  /** Users of machines that are being made: no process shows them yet. */
  readonly #coming = new Set<number>();
  #timer: NodeJS.Timeout | undefined;
  /** The machine that is being made, or taken away. */
  #work: Promise<void> | undefined;
  #notBefore = 0;
  #wantedSince: number | undefined;
  #short = false;
  #rests = false;
  /** By an administrator. */
  #drained = false;
  #error: PodnetError | undefined;
  #claimed = 0;
  readonly #missed: Record<MissReason, number> = { empty: 0, unlike: 0 };

  constructor(parts: PoolParts) {
    this.#parts = parts;
  }

  /** Begins to fill it, if pods are to come from it. */
  start(): void {
    this.#rests = false;
    if (!this.isUsed) return;
    this.#timer ??= setInterval(
      guarded("pool", () => this.#look()),
      lookMs,
    ).unref();
  }

  /** Ends its machines, and makes no more until `start` is called. */
  rest(): void {
    this.#rests = true;
  }

  /** Whether pods come from it. */
  get isUsed(): boolean {
    const { config, host } = this.#parts;
    return config.factory === "pool" && host.driver.cloneKey !== undefined;
  }

  /** Machines that wait. */
  get size(): number {
    return this.#parked.length;
  }

  get counts(): PoolCounts {
    return { claimed: this.#claimed, missed: { ...this.#missed } };
  }

  async view(): Promise<PoolView> {
    const usages = await Promise.all(this.#parked.map(({ vm }) => vm.usage().catch(() => {})));
    return {
      ...this.counts,
      size: this.#parts.config.pool.size,
      ready: this.size,
      drained: this.#drained,
      memoryBytes: usages.reduce((sum, usage) => sum + (usage?.memoryBytes ?? 0), 0),
      machine: this.#likeness(),
      error: this.#error,
    };
  }

  /**
   * Fills it, also after a drain, and resolves when it is full. Throws `UNSUPPORTED` when pods do
   * not come from a pool, `LIMIT_REACHED` when the host is short of memory, `CANCELLED` when the
   * pool is drained meanwhile, and the error of the first machine that cannot be made.
   */
  async fill(signal: AbortSignal): Promise<void> {
    this.#refuseUnused();
    this.#drained = false;
    this.#notBefore = 0;
    this.#error = undefined;
    const { config } = this.#parts;
    const isOver = AbortSignal.any([signal, this.#closed.signal]);
    while (this.size < config.pool.size) {
      throwIfAborted(isOver, "filling the pool");
      if (this.#error !== undefined) throw this.#error;
      if (this.#short) throw shortOfMemory(config.pool.reserveMib);
      if (this.#drained || this.#rests) throw drainedMeanwhile();
      await delay(lookMs, undefined, { signal: isOver }).catch(() => {});
    }
  }

  /**
   * Ends its machines, and makes no more until it is filled or podnetd starts again. Answers how
   * many it ended. Throws `UNSUPPORTED` when pods do not come from a pool.
   */
  async drain(): Promise<number> {
    this.#refuseUnused();
    this.#drained = true;
    await this.#work;
    return await this.#drain();
  }

  /** Users that no other machine may have. */
  users(): ReadonlySet<number> {
    const parked = this.#parked.flatMap(({ plan }) => plan.jail?.uid ?? []);
    return new Set([...this.#coming, ...parked]);
  }

  /** Whether a pod is to come from the pool. */
  serves({ boot }: PodSpec): boolean {
    return (boot.factory ?? this.#parts.config.factory) === "pool";
  }

  /** The machine to plan a pod with, if one waits. */
  offer(): Offer | undefined {
    const [next] = this.#parked;
    return next && { podId: next.plan.podId, uid: next.plan.jail?.uid };
  }

  /** Whether a plan that was made with an offer describes the machine that was offered. */
  fits(plan: VmPlan): boolean {
    const machine = this.#find(plan.podId);
    const { driver } = this.#parts.host;
    return (
      machine !== undefined &&
      plan.factory === "pool" &&
      plan.nic?.tap === machine.plan.nic.tap &&
      plan.nic.nicId === machine.plan.nic.nicId &&
      driver.cloneKey?.(plan) === machine.key
    );
  }

  /** Takes the machine of a pod whose row is written; undefined for a pod of another machine. */
  take(podId: PodId): ParkedMachine | undefined {
    const machine = this.#remove(podId);
    if (machine !== undefined) this.#claimed++;
    return machine;
  }

  /** A pod that is to come from the pool does not. */
  missed(reason: MissReason): void {
    this.#missed[reason]++;
  }

  /** Ends its machines, and makes no more. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed.abort();
    clearInterval(this.#timer);
    await this.#work;
    await this.#drain();
  }

  #find(podId: PodId): Waiting | undefined {
    return this.#parked.find(({ plan }) => plan.podId === podId);
  }

  #remove(podId: PodId): Waiting | undefined {
    const machine = this.#find(podId);
    if (machine !== undefined) this.#parked.splice(this.#parked.indexOf(machine), 1);
    return machine;
  }

  #likeness(): PoolView["machine"] {
    try {
      return this.#parked[0]?.plan ?? this.#parts.planMachine();
    } catch {
      // `error` says why, after the next try.
      return undefined;
    }
  }

  #refuseUnused(): void {
    if (this.isUsed) return;
    throw new PodnetError("UNSUPPORTED", "Pods do not come from a pool on this host", {
      hint: 'Set factory = "pool" in podnetd\'s configuration, and restart podnetd',
    });
  }

  #look(): void {
    if (this.#work !== undefined || this.#closed.signal.aborted) return;
    const work = this.#next();
    if (work === undefined) return;
    this.#work = guard("pool", work).finally(() => {
      this.#work = undefined;
    });
  }

  /** What is to be done now, if anything. */
  #next(): (() => Promise<void>) | undefined {
    const { config, isBusy, log } = this.#parts;
    const now = performance.now();
    const isShort = availableMib() < config.pool.reserveMib;
    if (isShort !== this.#short && isShort)
      log.warn({ parked: this.size }, "The host is short of memory; podnetd empties its pool");
    this.#short = isShort;
    if (isShort || this.#rests || this.#drained)
      return this.size === 0 ? undefined : async () => void (await this.#drain());
    if (this.size >= config.pool.size || now < this.#notBefore) {
      this.#wantedSince = undefined;
      return undefined;
    }
    this.#wantedSince ??= now;
    if (isBusy() && now - this.#wantedSince < burstMs) return undefined;
    this.#wantedSince = undefined;
    return () => this.#fill();
  }

  async #fill(): Promise<void> {
    const { host, log } = this.#parts;
    let uid: number | undefined;
    try {
      const plan = this.#parts.planMachine();
      uid = plan.jail?.uid;
      if (uid !== undefined) this.#coming.add(uid);
      const { nic } = plan;
      if (nic === undefined) return;
      const parked = { ...plan, nic: { ...nic, mac: templateNicMac } satisfies NicPlan };
      // Of the files as they are now: one that is replaced meanwhile is no pod's.
      const key = host.driver.cloneKey?.(parked) ?? "";
      const machine = { key, ...(await park(parked, host, this.#closed.signal)) };
      this.#parked.push(machine);
      this.#error = undefined;
      log.info({ pod_id: machine.plan.podId }, "A machine waits in the pool");
      machine.vm.onEvent((event) => {
        if (event.kind === "exited") void guard("pool", () => this.#lost(machine));
      });
    } catch (thrown) {
      if (this.#closed.signal.aborted) return;
      const error = toPodnetError(thrown);
      this.#error = error;
      log.warn({ err: error }, "Failed to make a machine for the pool; retrying");
      // An image that cannot be cloned stays one that cannot.
      this.#notBefore =
        performance.now() + (isPodnetError(error, "UNSUPPORTED") ? 12 : 1) * againMs;
    } finally {
      if (uid !== undefined) this.#coming.delete(uid);
    }
  }

  /** A machine that has ended while it waited. One that was taken is its pod's. */
  async #lost(machine: ParkedMachine): Promise<void> {
    if (this.#remove(machine.plan.podId) === undefined) return;
    this.#parts.log.warn({ pod_id: machine.plan.podId }, "A machine of the pool has ended");
    await unpark(machine);
  }

  async #drain(): Promise<number> {
    const waiting = this.#parked.splice(0);
    await Promise.all(waiting.map(unpark));
    return waiting.length;
  }
}

/** Memory that programs can have without swapping (proc(5)), MiB. */
function availableMib(): number {
  const line = /^MemAvailable:\s*(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"));
  return Number(line?.[1] ?? Number.POSITIVE_INFINITY) / 1024;
}

const shortOfMemory = (reserveMib: number): PodnetError =>
  new PodnetError("LIMIT_REACHED", `The host has less than ${reserveMib} MiB of memory available`, {
    hint: "End other programs, or lower pool.reserve_mib or pool.size in podnetd's configuration",
  });

const drainedMeanwhile = (): PodnetError =>
  new PodnetError("CANCELLED", "The pool was drained while it was being filled");
