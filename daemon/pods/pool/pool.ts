import { readFileSync } from "node:fs";
import { isPodnetError, toPodnetError } from "../../../core/errors.ts";
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

  constructor(parts: PoolParts) {
    this.#parts = parts;
  }

  /** Begins to fill it, if pods are to come from it. */
  start(): void {
    const { config, host } = this.#parts;
    this.#rests = false;
    if (config.factory !== "pool" || host.driver.cloneKey === undefined) return;
    this.#timer ??= setInterval(
      guarded("pool", () => this.#look()),
      lookMs,
    ).unref();
  }

  /** Ends its machines, and makes no more until `start` is called. */
  rest(): void {
    this.#rests = true;
  }

  /** Machines that wait. */
  get size(): number {
    return this.#parked.length;
  }

  /** Users that no other machine may have. */
  users(): ReadonlySet<number> {
    const parked = this.#parked.flatMap(({ plan }) => plan.jail?.uid ?? []);
    return new Set([...this.#coming, ...parked]);
  }

  /** The machine to plan a pod with; undefined where the pod is not to come from the pool. */
  offer({ boot }: PodSpec): Offer | undefined {
    if ((boot.factory ?? this.#parts.config.factory) !== "pool") return undefined;
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
    const machine = this.#find(podId);
    if (machine !== undefined) this.#parked.splice(this.#parked.indexOf(machine), 1);
    return machine;
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
    if (isShort || this.#rests) return this.size === 0 ? undefined : () => this.#drain();
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
      log.info({ pod_id: machine.plan.podId }, "A machine waits in the pool");
      machine.vm.onEvent((event) => {
        if (event.kind === "exited") void guard("pool", () => this.#lost(machine));
      });
    } catch (thrown) {
      if (this.#closed.signal.aborted) return;
      const error = toPodnetError(thrown);
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
    if (this.take(machine.plan.podId) === undefined) return;
    this.#parts.log.warn({ pod_id: machine.plan.podId }, "A machine of the pool has ended");
    await unpark(machine);
  }

  async #drain(): Promise<void> {
    await Promise.all(this.#parked.splice(0).map(unpark));
  }
}

/** Memory that programs can have without swapping (proc(5)), MiB. */
function availableMib(): number {
  const line = /^MemAvailable:\s*(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"));
  return Number(line?.[1] ?? Number.POSITIVE_INFINITY) / 1024;
}
