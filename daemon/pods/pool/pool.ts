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
import { imageName, type SizeClass } from "../../config/pool.ts";
import type { Host } from "../lifecycle/host.ts";
import { park, unpark } from "./park.ts";
import type { MarkedMachine, ParkedMachine } from "./parked-machine.ts";
import type { RehearsalRoom } from "./rehearsal-room.ts";

export interface PoolParts {
  readonly config: Pick<Config, "factory" | "pool">;
  readonly host: Host;
  readonly log: Log;
  /**
   * Plans the machine of a pod that nothing but its size and image is asked of, as a create would
   * now. Takes nothing; throws as a create does.
   */
  planMachine(size: SizeClass): VmPlan;
  /** Whether pods are being created: a burst has the host for itself. */
  isBusy(): boolean;
}

/** What a machine of the pool is chosen by. */
type Asked = Pick<PodSpec, "boot" | "resources">;

/** The machine that a create plans with: an id and a user that it has already. */
export interface Offer {
  readonly podId: PodId;
  readonly uid: number | undefined;
}

/** The machines of one size class, and what creates got of them since podnetd started. */
export interface PoolCounts extends SizeClass {
  /** How many wait. */
  readonly ready: number;
  /** Creates that took one. */
  readonly claimed: number;
  /** Creates that found none. */
  readonly missed: number;
}

/** The machines of one size class as people see them. */
export interface PoolView extends PoolCounts {
  /** Of the machines that wait. */
  readonly memoryBytes: number;
  /** What its machines boot; undefined while none can be planned. */
  readonly boots: Pick<VmPlan, "kernel" | "initrd"> | undefined;
  /** Why the last machine could not be made; undefined after a success. */
  readonly error: PodnetError | undefined;
}

/** With `Driver.cloneKey` of its plan. */
interface Waiting extends ParkedMachine {
  readonly key: string;
  readonly of: Pool;
}

/** The machines of one class. */
interface Pool {
  readonly size: SizeClass;
  claimed: number;
  missed: number;
  error: PodnetError | undefined;
  /** No machine is made before, on `performance.now()`. */
  notBefore: number;
}

/** Milliseconds between two looks at what is to be done. */
const lookMs = 100;
/** Longest that a burst delays the next machine, milliseconds. */
const burstMs = 5000;
/** After a machine could not be parked, milliseconds. */
const againMs = 5000;
/** Between two looks whether the images of machines that wait are what they were, milliseconds. */
const compareMs = 60_000;

/**
 * Machines that were made before anyone asks for a pod, a pool for each size and image. They have
 * no rows: a podnetd that ends, ends them, and one that starts ends those of one that was killed.
 */
export class MachinePool implements AsyncDisposable {
  readonly #parts: PoolParts;
  readonly #pools: readonly Pool[];
  readonly #parked: Waiting[] = [];
  readonly #closed = new AbortController();
  /** Machines that could not be ended: this is tried again. */
  readonly #unended = new Set<MarkedMachine>();
  /** When, on `performance.now()`. */
  #endAgain = 0;
  /** Users of machines that are being made: no process shows them yet. */
  readonly #coming = new Set<number>();
  /** Opened for the first machine; null where it cannot be. */
  #room: RehearsalRoom | null | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The machine that is being made, or taken away. */
  #work: Promise<void> | undefined;
  #wantedSince: number | undefined;
  #short = false;
  #rests = false;
  /** By an administrator. */
  #drained = false;
  #unlike = 0;
  /**
   * When machines are compared with what a create would ask for, on `performance.now()`: a file of
   * an image may be replaced, and a name may be given to another image. At once when one did not
   * fit.
   */
  #compareAt = 0;

  constructor(parts: PoolParts) {
    this.#parts = parts;
    this.#pools = parts.config.pool.classes.map((size) => ({
      size,
      claimed: 0,
      missed: 0,
      error: undefined,
      notBefore: 0,
    }));
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

  /** Whether an administrator drained it. */
  get isDrained(): boolean {
    return this.#drained;
  }

  /** Creates that asked for a machine like none of any size class, since podnetd started. */
  get unlike(): number {
    return this.#unlike;
  }

  counts(): PoolCounts[] {
    return this.#pools.map((pool) => ({
      ...pool.size,
      ready: this.#waiting(pool).length,
      claimed: pool.claimed,
      missed: pool.missed,
    }));
  }

  async view(): Promise<PoolView[]> {
    const counts = this.counts();
    return await Promise.all(
      this.#pools.map(async (pool, i) => {
        const machines = this.#waiting(pool);
        const usages = await Promise.all(machines.map(({ vm }) => vm.usage().catch(() => {})));
        return {
          ...(counts[i] as PoolCounts),
          memoryBytes: usages.reduce((sum, usage) => sum + (usage?.memoryBytes ?? 0), 0),
          boots: this.#boots(pool),
          error: pool.error,
        };
      }),
    );
  }

  /**
   * Fills it, also after a drain, and resolves when every size class is full. Throws `UNSUPPORTED`
   * when pods do not come from a pool, `LIMIT_REACHED` when the host is short of memory,
   * `CANCELLED` when the pool is drained meanwhile, and the error of the first machine that cannot
   * be made.
   */
  async fill(signal: AbortSignal): Promise<void> {
    this.#refuseUnused();
    this.#drained = false;
    for (const pool of this.#pools) Object.assign(pool, { notBefore: 0, error: undefined });
    const isOver = AbortSignal.any([signal, this.#closed.signal]);
    while (this.#pools.some((pool) => this.#lack(pool) > 0)) {
      throwIfAborted(isOver, "filling the pool");
      const failed = this.#pools.find(({ error }) => error !== undefined);
      if (failed?.error !== undefined) throw failed.error;
      if (this.#short) throw shortOfMemory(this.#parts.config.pool.reserveMib);
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
    const held = [...this.#parked, ...this.#unended].flatMap(({ plan }) => plan.jail?.uid ?? []);
    return new Set([...this.#coming, ...held]);
  }

  /** Whether a pod is to come from the pool. */
  serves({ boot }: PodSpec): boolean {
    if (boot.disks.length > 0 || boot.layer !== undefined) return false;
    return (boot.factory ?? this.#parts.config.factory) === "pool";
  }

  /** The machine to plan a pod with, if one of its size and image waits. */
  offer(spec: Asked): Offer | undefined {
    const next = this.#parked.find(({ of }) => isLike(of, spec));
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
    if (machine !== undefined) machine.of.claimed++;
    return machine;
  }

  /** A pod that is to come from the pool does not, though it was offered a machine or not. */
  missed(spec: Asked, offer: Offer | undefined): void {
    const pool = this.#pools.find((each) => isLike(each, spec));
    if (offer !== undefined) this.#compareAt = 0;
    if (pool === undefined || offer !== undefined) this.#unlike++;
    else pool.missed++;
  }

  /** Ends its machines, and makes no more. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed.abort();
    clearInterval(this.#timer);
    await this.#work;
    // What it cannot end, the next podnetd ends.
    await this.#end([...this.#parked.splice(0), ...this.#unended]);
    this.#room?.[Symbol.dispose]();
  }

  #find(podId: PodId): Waiting | undefined {
    return this.#parked.find(({ plan }) => plan.podId === podId);
  }

  #remove(podId: PodId): Waiting | undefined {
    const machine = this.#find(podId);
    if (machine !== undefined) this.#parked.splice(this.#parked.indexOf(machine), 1);
    return machine;
  }

  #waiting(pool: Pool): Waiting[] {
    return this.#parked.filter(({ of }) => of === pool);
  }

  /** How many machines of a size class are still to be made. */
  #lack(pool: Pool): number {
    return pool.size.size - this.#waiting(pool).length;
  }

  /** The size class that lacks most, of those that may be tried now. */
  #emptiest(now: number): Pool | undefined {
    const share = (pool: Pool): number => this.#lack(pool) / pool.size.size;
    return this.#pools
      .filter((pool) => this.#lack(pool) > 0 && now >= pool.notBefore)
      .toSorted((a, b) => share(b) - share(a))[0];
  }

  #boots(pool: Pool): PoolView["boots"] {
    try {
      return this.#waiting(pool)[0]?.plan ?? this.#parts.planMachine(pool.size);
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
      log.warn(
        { parked: this.#parked.length },
        "The host is short of memory; podnetd empties its pool",
      );
    this.#short = isShort;
    if (this.#unended.size > 0 && now >= this.#endAgain)
      return async () => void (await this.#end(this.#unended));
    if (isShort || this.#rests || this.#drained)
      return this.#parked.length === 0 ? undefined : async () => void (await this.#drain());
    if (this.#parked.length > 0 && now >= this.#compareAt) {
      this.#compareAt = now + compareMs;
      return () => this.#endOutdated();
    }
    const pool = this.#emptiest(now);
    if (pool === undefined) {
      this.#wantedSince = undefined;
      return undefined;
    }
    this.#wantedSince ??= now;
    if (isBusy() && now - this.#wantedSince < burstMs) return undefined;
    this.#wantedSince = undefined;
    return () => this.#fill(pool);
  }

  /** Ends machines that no create will take: those of an image that was replaced or removed. */
  async #endOutdated(): Promise<void> {
    const { log } = this.#parts;
    for (const pool of this.#pools) {
      if (this.#waiting(pool).length === 0) continue;
      const key = this.#keyNow(pool);
      const outdated = this.#waiting(pool).filter((machine) => machine.key !== key);
      for (const { plan } of outdated) this.#remove(plan.podId);
      if (outdated.length > 0)
        log.info({ ended: outdated.length }, "The image was replaced; podnetd replaces its pool");
      await this.#end(outdated);
    }
  }

  /** The key of a machine that a create would ask for; undefined when there is no such image. */
  #keyNow({ size }: Pool): string | undefined {
    try {
      return this.#parts.host.driver.cloneKey?.(this.#parts.planMachine(size));
    } catch (thrown) {
      if (isPodnetError(thrown, "IMAGE_NOT_FOUND", "IMAGE_MISSING")) return undefined;
      throw thrown;
    }
  }

  /** Makes one machine. */
  async #fill(pool: Pool): Promise<void> {
    const { host, log } = this.#parts;
    let uid: number | undefined;
    try {
      const plan = this.#parts.planMachine(pool.size);
      uid = plan.jail?.uid;
      if (uid !== undefined) this.#coming.add(uid);
      const { nic } = plan;
      if (nic === undefined) return;
      const parked = { ...plan, nic: { ...nic, mac: templateNicMac } satisfies NicPlan };
      // Of the files as they are now: one that is replaced meanwhile is no pod's.
      const key = host.driver.cloneKey?.(parked) ?? "";
      const { signal } = this.#closed;
      const made = await park(parked, host, this.#openRoom(), signal, (each) => this.#end([each]));
      const machine = { key, of: pool, ...made };
      this.#parked.push(machine);
      pool.error = undefined;
      log.info({ pod_id: machine.plan.podId }, "A machine waits in the pool");
      machine.vm.onEvent((event) => {
        if (event.kind === "exited") void guard("pool", () => this.#lost(machine));
      });
    } catch (thrown) {
      if (this.#closed.signal.aborted) return;
      const error = toPodnetError(thrown);
      // One that stays, such as that there is no such image, is logged once.
      if (pool.error?.message !== error.message)
        log.warn({ err: error }, "Failed to make a machine for the pool; retrying");
      pool.error = error;
      // An image that cannot be cloned stays one that cannot.
      pool.notBefore = performance.now() + (isPodnetError(error, "UNSUPPORTED") ? 12 : 1) * againMs;
    } finally {
      if (uid !== undefined) this.#coming.delete(uid);
    }
  }

  /** Undefined where podnetd may make no network namespace: a pod's first packets take longer. */
  #openRoom(): RehearsalRoom | undefined {
    if (this.#room !== undefined) return this.#room ?? undefined;
    const { host, log } = this.#parts;
    try {
      this.#room = host.openRehearsalRoom?.() ?? null;
    } catch (thrown) {
      log.info({ err: toPodnetError(thrown) }, "Machines of the pool rehearse without a neighbour");
      this.#room = null;
    }
    return this.#room ?? undefined;
  }

  /** A machine that has ended while it waited. One that was taken is its pod's. */
  async #lost(machine: ParkedMachine): Promise<void> {
    if (this.#remove(machine.plan.podId) === undefined) return;
    this.#parts.log.warn({ pod_id: machine.plan.podId }, "A machine of the pool has ended");
    await this.#end([machine]);
  }

  /** Ends machines. Answers why it cannot end some, which it tries again some time later. */
  async #end(machines: Iterable<MarkedMachine>): Promise<PodnetError[]> {
    const { host, log } = this.#parts;
    const ending = Array.from(machines, async (machine) => {
      const { podId } = machine.plan;
      try {
        await unpark(machine, host.driver);
        this.#unended.delete(machine);
        return [];
      } catch (thrown) {
        const err = toPodnetError(thrown);
        this.#unended.add(machine);
        this.#endAgain = performance.now() + againMs;
        log.error({ pod_id: podId, err }, "Failed to end a machine of the pool; retrying");
        return [err];
      }
    });
    return (await Promise.all(ending)).flat();
  }

  async #drain(): Promise<number> {
    const waiting = this.#parked.splice(0);
    const [failed] = await this.#end([...waiting, ...this.#unended]);
    if (failed !== undefined) throw failed;
    return waiting.length;
  }
}

function isLike({ size }: Pool, { boot, resources }: Asked): boolean {
  const { vcpu, memoryMib, maxVcpu, maxMemoryMib } = resources;
  if (size.vcpu !== vcpu || size.memoryMib !== memoryMib) return false;
  // (Machines that wait have no room to grow.)
  if (maxVcpu !== undefined || maxMemoryMib !== undefined) return false;
  return size.image === (boot.image === undefined ? undefined : imageName(boot.image));
}

/** Memory that programs can have without swapping (proc(5)), MiB. */
function availableMib(): number {
  const line = /^MemAvailable:\s*(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"));
  return Number(line?.[1] ?? Number.POSITIVE_INFINITY) / 1024;
}

const shortOfMemory = (reserveMib: number): PodnetError =>
  new PodnetError("LIMIT_REACHED", `The host has less than ${reserveMib} MiB of memory available`, {
    hint: "End other programs, or lower pool.reserve_mib or the sizes in [pool] of podnetd's configuration",
  });

const drainedMeanwhile = (): PodnetError =>
  new PodnetError("CANCELLED", "The pool was drained while it was being filled");
