import { join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { guard, guarded } from "../../core/guard.ts";
import {
  type HotDiskPlan,
  type Keyboard,
  type NicPlace,
  type NicPlan,
  type RunState,
  type RunningVm,
  type VmEvent,
  type VmPlan,
  type VmRecord,
  type VmSize,
  type VmUsage,
  vmSockets,
} from "../driver.ts";
import { lookAtMachine } from "../attach/look.ts";
import { attachedPrefix, release } from "../attach/release.ts";
import { saveState } from "../factory/state.ts";
import { ranOutOfMemory } from "../jail/cgroup.ts";
import type { QmpClient } from "../qmp/client.ts";
import { eventData, type QmpEvent } from "../qmp/commands.ts";
import { listPeripherals } from "../qmp/peripherals.ts";
import { within } from "../process/connect.ts";
import { Connections } from "./connections.ts";
import { ConsoleRing } from "../console/console.ts";
import { kindOf } from "../argv/machine-kinds.ts";
import { queuesOf } from "../argv/plug-commands.ts";
import { Typing } from "../console/typing.ts";
import type { Log } from "../process/log.ts";
import { Growth } from "../growth/growth.ts";
import { HotDisks } from "../hot-disks/hot-disks.ts";
import { Nics } from "../nics/nics.ts";
import { isRunning } from "../process/process.ts";
import { removeRemains } from "../process/remains.ts";
import { boundLog, lastLine, logTail } from "../process/run-dir.ts";
import { endProcess } from "../process/terminate.ts";
import { ServedShares } from "../shares/served-shares.ts";
import type { ShareServer } from "../shares/servers.ts";
import { usageOf } from "../process/usage.ts";
import { vmEventOf, VmEvents } from "./vm-events.ts";

export interface OpenVmOptions {
  readonly record: VmRecord;
  readonly plan: VmPlan;
  /** Resolves when our own child ends; undefined for a process that is another daemon's child. */
  readonly ended: Promise<string> | undefined;
  /** Milliseconds QEMU has to open its sockets. */
  readonly socketMs: number;
  readonly unplugMs: number;
  /** Gives a QEMU that waits for a template's state what it waits for. Its guest is left paused. */
  readonly restore?: (qmp: QmpClient, signal: AbortSignal) => Promise<void>;
  /** See `RunningVm`. */
  readonly templateGuest?: object;
  /** The NIC that it has from its start. */
  readonly firstNic?: string;
  /** What serves its shares. */
  readonly servers?: readonly ShareServer[];
  /** The session to begin with, of a foreign machine. */
  readonly session?: QmpClient;
  readonly log: Log;
}

/**
 * How often a process that is not our child is looked at. Its end must be known within a second.
 */
const lookEveryMs = 400;
const boundLogEveryMs = 30_000;
/** Longest until a guest has looked at processors and memory that were plugged in, milliseconds. */
const takenUpMs = 5000;
/** Between two presses of a guest's power button, milliseconds. */
const pressAgainMs = 3000;

/** A QEMU with a live QMP session and console. */
export class QemuVm implements RunningVm {
  readonly record: VmRecord;
  readonly firstNic?: string;
  readonly templateGuest?: object;
  asleep?: true;
  readonly #options: OpenVmOptions;
  readonly #ring = new ConsoleRing();
  readonly #typing = new Typing();
  readonly #nics: Nics;
  readonly #disks: HotDisks;
  readonly #growth: Growth;
  readonly #shares: ServedShares;
  readonly #events: VmEvents;
  readonly #connections: Connections;
  readonly #timers: NodeJS.Timeout[] = [];
  /** Resolves when the process has ended. */
  readonly #gone = Promise.withResolvers<void>();
  #over = false;
  #overwritten = 0;
  #stopping: Promise<void> | undefined;
  #usage: Promise<VmUsage | undefined> | undefined;

  private constructor(options: OpenVmOptions) {
    this.record = options.record;
    if (options.firstNic !== undefined) this.firstNic = options.firstNic;
    if (options.templateGuest !== undefined) this.templateGuest = options.templateGuest;
    this.#options = options;
    const { plan, log } = options;
    const { podId, attached } = plan;
    this.#events = new VmEvents(log);
    this.#nics = new Nics({
      kind: kindOf(plan),
      queues: queuesOf(plan),
      ...(attached === undefined ? {} : { prefix: attachedPrefix(podId) }),
      qmp: () => this.#session(),
      unplugMs: options.unplugMs,
      onRemoved: (nicId, expected) => this.#events.emit({ kind: "nic-removed", nicId, expected }),
    });
    this.#disks = new HotDisks({
      kind: kindOf(plan),
      qmp: () => this.#session(),
      unplugMs: options.unplugMs,
      onRemoved: (disk, expected) => this.#events.emit({ kind: "disk-removed", disk, expected }),
    });
    this.#shares = new ServedShares(options.servers ?? []);
    this.#growth = new Growth({ qmp: () => this.#session(), takenUpMs });
    this.#connections = new Connections({
      plan,
      ring: this.#ring,
      typing: this.#typing,
      runs: () => !this.#over && this.#alive(),
      onEvent: (event) => this.#take(event),
      onOverwritten: (bytes) => {
        this.#overwritten += bytes;
        this.#events.emit({ kind: "console-overwritten" });
      },
      onSessionLost: (reason) => void guard("qemu", () => this.#sessionLost(reason)),
      log,
    });
  }

  /** Connects console and QMP of a QEMU that runs, and lets its guest go if it has not begun. */
  static async open(options: OpenVmOptions, signal: AbortSignal): Promise<QemuVm> {
    const vm = new QemuVm(options);
    try {
      if (options.session === undefined) await vm.#connections.open(options.socketMs, signal);
      else vm.#connections.adopt(options.session);
      if (options.restore !== undefined) {
        await options.restore(vm.#session(), signal);
        vm.asleep = true;
      }
      const [{ status }] = await Promise.all([
        vm.#session().execute("query-status", {}, { signal }),
        vm.#observe(signal),
      ]);
      if (status === "prelaunch" && options.plan.held !== true)
        await vm.#session().execute("cont", {}, { signal });
      vm.#watch();
      return vm;
    } catch (error) {
      await vm.detach();
      throw error;
    }
  }

  socketPath(which: keyof typeof vmSockets): string {
    return join(this.record.runDir, vmSockets[which]);
  }

  plug(nic: NicPlan, tapFds: readonly number[], signal: AbortSignal): Promise<void> {
    if (nic.nicId === this.firstNic && this.#nics.has(nic.nicId)) return Promise.resolve();
    return this.#nics.plug(nic, tapFds, signal);
  }

  unplug(nic: NicPlan, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    return this.#nics.unplug(nic, signal);
  }

  nics(signal: AbortSignal): Promise<readonly string[]> {
    return this.#nics.list(signal);
  }

  plugDisk(disk: HotDiskPlan, fd: number, signal: AbortSignal): Promise<void> {
    return this.#disks.plug(disk, fd, signal);
  }

  unplugDisk(name: string, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    return this.#disks.unplug(name, signal);
  }

  hotDisks(signal: AbortSignal): Promise<readonly string[]> {
    return this.#disks.list(signal);
  }

  endedShares(): readonly string[] {
    return this.#shares.ended;
  }

  size(signal: AbortSignal): Promise<VmSize> {
    return this.#growth.size(signal);
  }

  grow(size: VmSize, signal: AbortSignal): Promise<"taken" | "ignored"> {
    return this.#growth.grow(size, signal);
  }

  async places(signal: AbortSignal): Promise<readonly NicPlace[]> {
    return (await lookAtMachine(this.#session(), signal)).places;
  }

  async pause(signal: AbortSignal): Promise<void> {
    await this.#session().execute("stop", {}, { signal });
  }

  async resume(signal: AbortSignal): Promise<void> {
    await this.#session().execute("cont", {}, { signal });
  }

  async runState(signal: AbortSignal): Promise<RunState> {
    const { running, status } = await this.#session().execute("query-status", {}, { signal });
    return { runs: running, status };
  }

  /**
   * Stops the guest and writes the machine's state to a file. It is of no use to its guest
   * afterwards.
   */
  async save(fd: number, signal: AbortSignal): Promise<void> {
    await this.pause(signal);
    await saveState(this.#session(), fd, signal);
  }

  usage(): Promise<VmUsage | undefined> {
    // Callers share QEMU's pending answer.
    this.#usage ??= usageOf(this.record, this.#options.plan, () => this.#session()).finally(() => {
      this.#usage = undefined;
    });
    return this.#usage;
  }

  stop(options: { readonly graceMs: number; readonly ask?: boolean }): Promise<void> {
    this.#stopping ??= this.#stop(options).finally(() => {
      this.#stopping = undefined;
    });
    return this.#stopping;
  }

  console(signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.#ring.follow(signal);
  }

  takeOverwritten(): number {
    const bytes = this.#overwritten;
    this.#overwritten = 0;
    return bytes;
  }

  consoleTail(): Uint8Array {
    return this.#ring.tail();
  }

  takeKeyboard(by: string): Keyboard {
    return this.#typing.take(by);
  }

  onEvent(listener: (event: VmEvent) => void): () => void {
    return this.#events.subscribe(listener);
  }

  detach(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#connections.close();
    this.#ring.close();
    this.#events.clear();
    return Promise.resolve();
  }

  #session(): QmpClient {
    if (this.#over) throw new PodnetError("QEMU_EXITED", "QEMU has ended");
    const { qmp } = this.#connections;
    if (qmp === undefined) throw new PodnetError("INTERNAL", "podnetd stopped managing the VM");
    return qmp;
  }

  /** Learns what is plugged in; of a foreign machine only the NICs are podnet's. */
  async #observe(signal: AbortSignal): Promise<void> {
    const peripherals = await listPeripherals(this.#session(), { signal });
    await this.#nics.observe(peripherals);
    if (this.#options.plan.attached === undefined) this.#disks.observe(peripherals);
  }

  #watch(): void {
    const { ended } = this.#options;
    if (ended !== undefined) void guard("qemu", () => ended.then((how) => this.#exited(how)));
    else
      this.#every(lookEveryMs, () => {
        if (!this.#alive())
          void guard("qemu", async () => this.#exited("it ended while podnetd was not its parent"));
      });
    if (this.#options.plan.attached !== undefined) return;
    if (this.#shares.any) this.#every(lookEveryMs, () => this.#lookAtShares());
    this.#every(boundLogEveryMs, () => void boundLog(this.record.runDir));
  }

  #every(ms: number, look: () => void): void {
    this.#timers.push(setInterval(guarded("qemu", look), ms).unref());
  }

  /** A look that fails (no descriptor left to open /proc with) proves no end. */
  #alive(): boolean {
    try {
      return isRunning(this.record);
    } catch {
      return true;
    }
  }

  /** A server ends with its machine; one that ends before leaves a guest that waits for it. */
  #lookAtShares(): void {
    if (this.#over || this.#stopping !== undefined || !this.#alive()) return;
    for (const tag of this.#shares.look()) this.#events.emit({ kind: "share-ended", tag });
  }

  #take(event: QmpEvent): void {
    const deleted = eventData(event, "DEVICE_DELETED")?.device;
    if (deleted !== undefined && this.#nics.deviceDeleted(deleted)) return;
    if (deleted !== undefined && this.#disks.deviceDeleted(deleted)) return;
    const looked = eventData(event, "ACPI_DEVICE_OST")?.info.device;
    if (looked !== undefined) this.#growth.looked(looked);
    this.#events.emit(vmEventOf(event));
  }

  /**
   * The end of the stream is the first sign that QEMU has ended; when it has not, a new session is
   * opened.
   */
  async #sessionLost(reason: PodnetError): Promise<void> {
    if (this.#connections.closed || this.#over) return;
    const { ended } = this.#options;
    // The kernel closes QEMU's descriptors before its parent hears of the end, and with it of the
    // exit code.
    if (ended !== undefined) await within(ended, 300);
    if (!this.#alive()) return this.#exited(reason.message);
    this.#options.log("warn", "The QMP session was lost", { reason: reason.message });
    this.#connections.openQmpAgain(async (signal) => {
      // A session that cannot be used is lost as well, which opens the next: QEMU serves one at a
      // time.
      await this.#observe(signal).catch(() => this.#connections.qmp?.close());
      // Events were missed while the session was down.
      this.#events.emit({ kind: "run-state" });
    });
  }

  async #exited(how: string): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    const said = lastLine(await logTail(this.record.runDir));
    const limited = ranOutOfMemory(this.#options.plan.jail?.cgroups ?? []);
    const why = limited ? `${how}, beyond its memory limit` : how;
    const exit = { kind: "exited", detail: said === "" ? why : `${why}: ${said}` } as const;
    this.#gone.resolve();
    this.#events.emit(exit);
    await this.detach();
  }

  /**
   * Presses until the guest has ended, or the time is up: a guest that boots does not notice the
   * button yet, and a guest that powers off ignores it. A guest without support for it runs on.
   */
  async #pressPowerButton(graceMs: number): Promise<void> {
    for (let left = graceMs; left > 0 && !this.#over; left -= pressAgainMs) {
      await this.#connections.qmp
        ?.execute("system_powerdown", {}, { deadlineMs: 1000 })
        .catch(() => {});
      await within(this.#gone.promise, Math.min(left, pressAgainMs));
    }
  }

  /** Of a foreign machine: it runs on, and is not ours to watch any more. */
  async #giveBack(): Promise<void> {
    try {
      if (!this.#over) await release(this.#nics, this.#options.plan.podId);
    } finally {
      await this.detach();
    }
  }

  async #stop({
    graceMs,
    ask,
  }: {
    readonly graceMs: number;
    readonly ask?: boolean;
  }): Promise<void> {
    if (this.#options.plan.attached !== undefined) return this.#giveBack();
    if (ask === true) await this.#pressPowerButton(graceMs);
    else await within(this.#gone.promise, graceMs);
    const qmp = this.#over ? undefined : this.#connections.qmp;
    const asked = qmp?.execute("quit", {}, { deadlineMs: 1000 }).then(
      () => true,
      () => false,
    );
    await endProcess(this.record, { asked: (await asked) ?? false });
    if (this.#options.ended === undefined) await this.#exited("it was stopped");
    await this.#gone.promise;
    await removeRemains(this.#options.plan);
  }
}
