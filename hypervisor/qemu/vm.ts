import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { connectUnix, type UnixConnection } from "../../linux/unix-socket.ts";
import {
  type Keyboard,
  type NicPlace,
  type NicPlan,
  type RunState,
  type RunningVm,
  type VmEvent,
  type VmPlan,
  type VmRecord,
  type VmUsage,
  vmSockets,
} from "../driver.ts";
import { lookAtMachine } from "../attach/look.ts";
import { attachedPrefix, release } from "../attach/release.ts";
import { saveState } from "../factory/state.ts";
import { ranOutOfMemory } from "../jail/cgroup.ts";
import { QmpClient } from "../qmp/client.ts";
import { eventData, type QmpEvent } from "../qmp/commands.ts";
import { channelPorts } from "./argv.ts";
import { whenThere, within } from "./connect.ts";
import { ConsoleRing, drainConsole } from "./console.ts";
import { kindOf } from "./machine-kinds.ts";
import { Typing } from "./typing.ts";
import type { Log } from "./log.ts";
import { Nics } from "./nics.ts";
import { isRunning } from "./process.ts";
import { removeRemains } from "./remains.ts";
import { boundLog, lastLine, logTail } from "./run-dir.ts";
import { endProcess } from "./terminate.ts";
import { usageOf } from "./usage.ts";

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
  /** The session to begin with, of a machine of somebody else. */
  readonly session?: QmpClient;
  readonly log: Log;
}

/** How often a process that is not our child is looked at. Its end must be known within a second. */
const lookEveryMs = 400;
const boundLogEveryMs = 30_000;
/** Between two presses of a guest's power button, milliseconds. */
const pressAgainMs = 3000;

/** A QEMU with a live QMP session and console. */
export class QemuVm implements RunningVm {
  readonly record: VmRecord;
  asleep?: true;
  readonly #options: OpenVmOptions;
  readonly #ring = new ConsoleRing();
  readonly #typing = new Typing();
  readonly #nics: Nics;
  readonly #listeners = new Set<(event: VmEvent) => void>();
  readonly #timers: NodeJS.Timeout[] = [];
  /** Resolves when the process has ended. */
  readonly #gone = Promise.withResolvers<void>();
  /** Aborted when the VM is let go of: it ends the connecting nobody else waits for. */
  readonly #letGo = new AbortController();
  #over = false;
  #exit: VmEvent | undefined;
  #qmp: QmpClient | undefined;
  /** Who listened at the socket of a machine of somebody else. */
  #listener: number | undefined;
  #console: UnixConnection | undefined;
  #stopping: Promise<void> | undefined;
  #usage: Promise<VmUsage | undefined> | undefined;

  private constructor(options: OpenVmOptions) {
    this.record = options.record;
    this.#options = options;
    const { podId, attached } = options.plan;
    this.#nics = new Nics({
      kind: kindOf(options.plan),
      ...(attached === undefined ? {} : { prefix: attachedPrefix(podId) }),
      qmp: () => this.#session(),
      unplugMs: options.unplugMs,
      onRemoved: (nicId, expected) => this.#emit({ kind: "nic-removed", nicId, expected }),
    });
  }

  /** Connects console and QMP of a QEMU that runs, and lets its guest go if it has not begun. */
  static async open(options: OpenVmOptions, signal: AbortSignal): Promise<QemuVm> {
    const vm = new QemuVm(options);
    try {
      if (options.session === undefined) {
        await vm.#connectConsole(options.socketMs, signal);
        await vm.#connectQmp(options.socketMs, signal);
      } else vm.#adopt(options.session);
      if (options.restore !== undefined) {
        await options.restore(vm.#session(), signal);
        vm.asleep = true;
      }
      await vm.#nics.observe(signal);
      const { status } = await vm.#session().execute("query-status", {}, { signal });
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

  plug(nic: NicPlan, tapFd: number, signal: AbortSignal): Promise<void> {
    return this.#nics.plug(nic, tapFd, signal);
  }

  unplug(nic: NicPlan, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    return this.#nics.unplug(nic, signal);
  }

  nics(signal: AbortSignal): Promise<readonly string[]> {
    return this.#nics.list(signal);
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

  /** Stops the guest and writes the machine's state to a file. It is of no use to its guest afterwards. */
  async save(fd: number, signal: AbortSignal): Promise<void> {
    await this.pause(signal);
    await saveState(this.#session(), fd, signal);
  }

  usage(): Promise<VmUsage | undefined> {
    // Whoever asks while QEMU owes an answer waits for that one.
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
    this.#refuseOthers();
    return this.#ring.follow(signal);
  }

  consoleTail(): Uint8Array {
    return this.#ring.tail();
  }

  takeKeyboard(by: string): Keyboard {
    this.#refuseOthers();
    return this.#typing.take(by);
  }

  onEvent(listener: (event: VmEvent) => void): () => void {
    this.#listeners.add(listener);
    const exit = this.#exit;
    // Whoever subscribes after the end hears of it all the same.
    if (exit !== undefined) queueMicrotask(() => this.#tell(listener, exit));
    return () => this.#listeners.delete(listener);
  }

  detach(): Promise<void> {
    this.#letGo.abort();
    for (const timer of this.#timers) clearInterval(timer);
    this.#qmp?.close();
    this.#console?.close();
    this.#ring.close();
    this.#listeners.clear();
    return Promise.resolve();
  }

  /** The console of a machine of somebody else is its owner's. */
  #refuseOthers(): void {
    if (this.#options.plan.attached === undefined) return;
    throw new PodnetError("UNSUPPORTED", "podnet has no console of a machine it did not start", {
      hint: "Whoever started it has",
    });
  }

  get #detached(): boolean {
    return this.#letGo.signal.aborted;
  }

  #session(): QmpClient {
    if (this.#over) throw new PodnetError("QEMU_EXITED", "QEMU has ended");
    if (this.#qmp === undefined) throw new PodnetError("INTERNAL", "The VM was let go of");
    return this.#qmp;
  }

  async #connectConsole(withinMs: number, signal: AbortSignal): Promise<void> {
    const path = this.socketPath("console");
    const connection = await whenThere(() => connectUnix(path, signal), withinMs, signal);
    if (this.#detached) return connection.close();
    this.#console = connection;
    this.#typing.connected(connection.socket);
    drainConsole(connection, this.#ring, {
      overwritten: (bytes) => this.#emit({ kind: "console-overwritten", bytes }),
      onEnd: () => this.#again("console", () => this.#connectConsole(0, this.#letGo.signal)),
    });
  }

  async #connectQmp(withinMs: number, signal: AbortSignal): Promise<void> {
    const path = this.#options.plan.attached?.qmp ?? this.socketPath("qmp");
    const qmp = await whenThere(() => QmpClient.open(path, { signal }), withinMs, signal);
    if (this.#detached) return qmp.close();
    this.#refuseAnother(qmp);
    this.#adopt(qmp);
  }

  /** The socket of a machine of somebody else may be given to another one while the first still runs. */
  #refuseAnother(qmp: QmpClient): void {
    const before = this.#listener;
    if (before === undefined || qmp.peer.pid === before) return;
    qmp.close();
    throw new PodnetError("QMP_PROTOCOL", "Another machine has the QMP socket now");
  }

  #adopt(qmp: QmpClient): void {
    if (this.#options.plan.attached !== undefined) this.#listener = qmp.peer.pid;
    this.#qmp = qmp;
    qmp.onEvent((event) => this.#take(event));
    qmp.onClose((reason) => void this.#sessionLost(reason));
  }

  #watch(): void {
    const { ended } = this.#options;
    if (ended !== undefined) void ended.then((how) => this.#exited(how));
    else
      this.#every(lookEveryMs, () => {
        if (!this.#alive()) void this.#exited("it ended while podnetd was not its parent");
      });
    if (this.#options.plan.attached !== undefined) return;
    this.#every(boundLogEveryMs, () => void boundLog(this.record.runDir));
  }

  #every(ms: number, look: () => void): void {
    this.#timers.push(setInterval(look, ms).unref());
  }

  /** A look that fails (no descriptor left to open /proc with) proves no end. */
  #alive(): boolean {
    try {
      return isRunning(this.record);
    } catch {
      return true;
    }
  }

  #take(event: QmpEvent): void {
    const deleted = eventData(event, "DEVICE_DELETED")?.device;
    if (deleted !== undefined && this.#nics.deviceDeleted(deleted)) return;
    const port = eventData(event, "VSERPORT_CHANGE");
    for (const number of [0, 1] as const)
      if (port?.id === channelPorts[number])
        return this.#emit({ kind: "channel", port: number, open: port.open });
    if (eventData(event, "STOP")) return this.#emit({ kind: "run-state", runs: false });
    if (eventData(event, "RESUME")) return this.#emit({ kind: "run-state", runs: true });
    if (eventData(event, "RESET")?.guest === true) this.#emit({ kind: "guest-reset" });
    else if (eventData(event, "SHUTDOWN")?.guest === true) this.#emit({ kind: "guest-shutdown" });
    else this.#emit({ kind: "unheeded" });
  }

  /** The end of the stream is the first sign that QEMU has ended; when it has not, a new session is opened. */
  async #sessionLost(reason: PodnetError): Promise<void> {
    if (this.#detached || this.#over) return;
    const { ended } = this.#options;
    // The kernel closes QEMU's descriptors before its parent hears of the end, and with it of the exit code.
    if (ended !== undefined) await within(ended, 300);
    if (!this.#alive()) return this.#exited(reason.message);
    this.#options.log("warn", "The QMP session was lost", { reason: reason.message });
    this.#again("QMP", async () => {
      await this.#connectQmp(0, this.#letGo.signal);
      // A session that cannot be used is lost as well, which opens the next: QEMU serves one at a time.
      await this.#nics.observe(this.#letGo.signal).catch(() => this.#qmp?.close());
      // Nobody has heard what it did meanwhile.
      this.#emit({ kind: "run-state" });
    });
  }

  /** Tries to connect again, ever less often, as long as QEMU runs. */
  #again(what: string, connect: () => Promise<void>): void {
    const attempt = async (waitMs: number): Promise<void> => {
      await delay(waitMs, undefined, { ref: false });
      if (this.#detached || this.#over || !this.#alive()) return;
      try {
        await connect();
        this.#options.log("info", `Connected to QEMU's ${what} again`, {});
      } catch (error) {
        const { message } = toPodnetError(error);
        this.#options.log("warn", `Cannot connect to QEMU's ${what}`, { reason: message });
        await attempt(Math.min(waitMs * 2, 5000));
      }
    };
    if (!this.#detached) void attempt(50);
  }

  async #exited(how: string): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    const said = lastLine(await logTail(this.record.runDir));
    const limited = ranOutOfMemory(this.#options.plan.jail?.cgroups ?? []);
    const why = limited ? `${how}, beyond its memory limit` : how;
    const exit = { kind: "exited", detail: said === "" ? why : `${why}: ${said}` } as const;
    this.#exit = exit;
    this.#gone.resolve();
    this.#emit(exit);
    await this.detach();
  }

  #emit(event: VmEvent): void {
    for (const listener of this.#listeners) this.#tell(listener, event);
  }

  #tell(listener: (event: VmEvent) => void, event: VmEvent): void {
    try {
      listener(event);
    } catch (error) {
      const { message } = toPodnetError(error);
      this.#options.log("error", "A listener to the VM's events failed", { reason: message });
    }
  }

  /**
   * Until the guest has ended, or the time is up: one that is booting does not feel the button yet, one that is powering off
   * does not mind. A guest that knows none goes on as it does.
   */
  async #pressPowerButton(graceMs: number): Promise<void> {
    for (let left = graceMs; left > 0 && !this.#over; left -= pressAgainMs) {
      await this.#qmp?.execute("system_powerdown", {}, { deadlineMs: 1000 }).catch(() => {});
      await within(this.#gone.promise, Math.min(left, pressAgainMs));
    }
  }

  /** Of a machine of somebody else: it runs on, and is not ours to watch any more. */
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
    const qmp = this.#over ? undefined : this.#qmp;
    const told = qmp?.execute("quit", {}, { deadlineMs: 1000 }).then(
      () => true,
      () => false,
    );
    await endProcess(this.record, { told: (await told) ?? false });
    if (this.#options.ended === undefined) await this.#exited("it was stopped");
    await this.#gone.promise;
    await removeRemains(this.#options.plan);
  }
}
