import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { PodId } from "../../core/names.ts";
import { closeAllOnExec } from "../../linux/processes/close-on-exec.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { openTap } from "../../linux/tun.ts";
import { attachVm, isAttached, look, reattachVm, releaseVm } from "./attach.ts";
import {
  type Architecture,
  architectureOf,
  architectures,
  hostArchitecture,
} from "../architecture.ts";
import type {
  Capabilities,
  Driver,
  FoundMachine,
  NicPlan,
  RunningVm,
  VmPlan,
  VmRecord,
} from "../driver.ts";
import {
  chooseAccelerator,
  hostHasSteadyTsc,
  type KvmChoice,
  kvmGroup,
} from "../argv/accelerator.ts";
import { restoreState } from "../factory/state.ts";
import { withoutIdentity, templateKey } from "../factory/key.ts";
import { buildTemplate, type AwaitGuest, type Template } from "../factory/template.ts";
import { type TemplateKey, Templates } from "../factory/templates.ts";
import { jailArgv } from "../jail/argv.ts";
import { makeCgroups } from "../jail/cgroup.ts";
import { findLauncher } from "../jail/launcher.ts";
import { afterLastFd, type MemoryRole, qemuArgv, type Start } from "../argv/argv.ts";
import { within } from "../process/connect.ts";
import { type Log, noLog } from "../process/log.ts";
import { kindOf, nicSlots } from "../argv/machine-kinds.ts";
import { leastMemoryMib, preflight } from "../argv/preflight.ts";
import { openDisks } from "../disks/disks.ts";
import { describePlug } from "../argv/plug-commands.ts";
import {
  findProcess,
  isRunning,
  runningMachines,
  type StartedProcess,
  startProcess,
} from "../process/process.ts";
import { removeRemains, withRemains } from "../process/remains.ts";
import { lastLine, logTail, makeRunDir } from "../process/run-dir.ts";
import { endProcess } from "../process/terminate.ts";
import { checkShares, findServers, type ShareServer, startServers } from "../shares/servers.ts";
import { type OpenVmOptions, QemuVm } from "./vm.ts";

export interface QemuDriverOptions {
  /** The architecture of plans that name none; the host's by default. */
  readonly arch?: Architecture;
  /** The QEMU of that architecture; looked up on PATH at each start unless given. */
  readonly qemuPath?: string;
  /** `auto` unless given. */
  readonly kvm?: KvmChoice;
  /** MiB for translated code under software emulation; 64 unless given. */
  readonly tbSizeMib?: number;
  /** MiB below which a VM is refused; 80, the least for the default image, unless given. */
  readonly leastMemoryMib?: number;
  /** Milliseconds QEMU gets to open its sockets; 10 s unless given. */
  readonly socketMs?: number;
  /** Milliseconds a guest gets to let go of a NIC; as its kind of machine needs unless given. */
  readonly unplugMs?: number;
  /**
   * Awaited with the QEMU of a machine before that starts; what it throws keeps the machine from
   * starting.
   */
  readonly prepare?: (qemu: string) => Promise<void>;
  /** How the guest of a template is waited for; without it no VM can be cloned. */
  readonly awaitGuest?: AwaitGuest;
  readonly log?: Log;
}

/** Disposing frees the templates and ends those being built; VMs run on. */
export type QemuDriver = Driver & AsyncDisposable;

/** Opens the QEMU driver. Throws `PREFLIGHT_FAILED` when `kvm` is `on` and KVM is not there. */
export function openQemuDriver(options: QemuDriverOptions = {}): Promise<QemuDriver> {
  closeAllOnExec();
  return Promise.resolve().then(() => new OpenQemuDriver(options, chooseAccelerators(options)));
}

type Accelerators = Capabilities["accelerators"];

/**
 * Machines of another architecture are left from another configuration: what is demanded is not
 * demanded of those.
 */
function chooseAccelerators({ arch, kvm = "auto" }: QemuDriverOptions): Accelerators {
  const chosen = architectures.map((each) => {
    const demanded = each === (arch ?? hostArchitecture) || kvm === "off";
    return [each, chooseAccelerator(demanded ? kvm : "auto", each)] as const;
  });
  return Object.fromEntries(chosen) as Accelerators;
}

/**
 * Templates kept: each holds as much memory as its guest had touched, some 80 MB of the default
 * image's.
 */
const templateLimit = 4;

/** A started QEMU's inputs in addition to its command line. */
interface Origin {
  readonly start: Start;
  /** The memory's file. */
  readonly memoryFds: readonly number[];
  /** The tap of the NIC that it starts with. */
  readonly tapFds: readonly number[];
  readonly restore?: NonNullable<OpenVmOptions["restore"]>;
  readonly templateGuest?: object;
}

/** A machine that boots by itself. */
const booted: Origin = { start: { memory: "own" }, memoryFds: [], tapFds: [] };

class OpenQemuDriver implements QemuDriver {
  readonly name = "qemu";
  readonly #templates = new Templates(templateLimit);
  readonly #options: QemuDriverOptions;
  readonly #arch: Architecture;
  readonly #accelerators: Accelerators;
  readonly #steadyTsc = hostHasSteadyTsc();

  constructor(options: QemuDriverOptions, accelerators: Accelerators) {
    this.#options = options;
    this.#arch = options.arch ?? hostArchitecture;
    this.#accelerators = accelerators;
  }

  capabilities(): Capabilities {
    return {
      hotplug: true,
      pause: true,
      nicSlots,
      arch: this.#arch,
      accelerators: this.#accelerators,
    };
  }

  lookAt(qmpSocket: string, signal: AbortSignal): Promise<FoundMachine> {
    return look(qmpSocket, signal);
  }

  describe(plan: VmPlan): readonly string[] {
    if (isAttached(plan)) return [];
    const { nic } = plan;
    const start = { memory: roleOf(plan), ...(nic === undefined ? {} : { nic }) };
    return this.#argv(plan, this.#program(plan) ?? kindOf(plan).program, start);
  }

  describePlug(nic: NicPlan, plan: VmPlan, queues: number): readonly string[] {
    return describePlug(nic, plan, queues);
  }

  async start(plan: VmPlan, signal: AbortSignal, tapFd?: number): Promise<RunningVm> {
    if (isAttached(plan)) return attachVm(plan, this.#log(plan), signal);
    const leastMemory = this.#options.leastMemoryMib ?? leastMemoryMib;
    const qemu = await preflight(plan, this.#program(plan), leastMemory);
    checkShares(plan);
    await this.#options.prepare?.(qemu);
    if (roleOf(plan) === "own") return this.#run(plan, qemu, booted, signal);
    try {
      return await this.#templates.use(
        this.#templateKey(plan, qemu),
        (stop) => this.#build(plan, qemu, stop),
        signal,
        (template) => this.#clone(plan, qemu, template, signal, tapFd),
      );
    } catch (thrown) {
      if (plan.factory !== "pool" || signal.aborted) throw thrown;
      this.#log(plan)("warn", "The machine boots, as it cannot be cloned", {
        reason: toPodnetError(thrown).message,
      });
      return await this.#run(plan, qemu, booted, signal);
    }
  }

  cloneKey(plan: VmPlan): string {
    const { machine, files } = this.#templateKey(plan, this.#program(plan) ?? "");
    return `${machine} ${files}`;
  }

  #templateKey(plan: VmPlan, qemu: string): TemplateKey {
    const argv = this.#argv(withoutIdentity(plan), qemu, { memory: "template" });
    return templateKey(plan, qemu, argv);
  }

  async #build(plan: VmPlan, qemu: string, signal: AbortSignal): Promise<Template> {
    const { awaitGuest } = this.#options;
    if (awaitGuest === undefined)
      throw new PodnetError("UNSUPPORTED", "This driver cannot clone VMs", {
        hint: "Create the pod with --factory cold",
      });
    const start = (each: VmPlan, memoryFd: number, stop: AbortSignal): Promise<QemuVm> =>
      this.#run(
        each,
        qemu,
        { start: { memory: "template" }, memoryFds: [memoryFd], tapFds: [] },
        stop,
      );
    return await buildTemplate(plan, { start, awaitGuest, openTap }, signal);
  }

  async #clone(
    plan: VmPlan,
    qemu: string,
    { memory, state, hasNic, guest }: Template,
    signal: AbortSignal,
    tapFd: number | undefined,
  ): Promise<QemuVm> {
    using reader = state.openReader();
    const { nic } = plan;
    const begins = hasNic && nic !== undefined && tapFd !== undefined;
    const origin: Origin = {
      start: { memory: "clone", ...(begins ? { nic } : {}) },
      memoryFds: [memory.fd],
      tapFds: begins ? [tapFd] : [],
      restore: (qmp, stop) => restoreState(qmp, reader.fd, stop),
      templateGuest: guest,
    };
    return await this.#run(plan, qemu, origin, signal);
  }

  async #run(plan: VmPlan, qemu: string, origin: Origin, signal: AbortSignal): Promise<QemuVm> {
    const { start, memoryFds, tapFds } = origin;
    const argv = this.#argv(plan, qemu, start);
    let started: StartedProcess | undefined;
    try {
      await makeRunDir(plan);
      makeCgroups(plan.jail?.cgroups ?? []);
      if (signal.aborted)
        throw new PodnetError("CANCELLED", "The caller gave up", { cause: signal.reason });
      const servers = await startServers(plan);
      using disks = openDisks(plan);
      started = await startProcess(argv, plan, { fds: [...memoryFds, ...disks.fds, ...tapFds] });
      return await this.#open(plan, started, origin, servers, signal);
    } catch (error) {
      const failure = toPodnetError(error, "INTERNAL");
      throw await undoStart(failure, plan, started?.record);
    }
  }

  async reattach(
    record: VmRecord,
    plan: VmPlan,
    signal: AbortSignal,
  ): Promise<RunningVm | undefined> {
    if (!isRunning(record)) return undefined;
    if (isAttached(plan)) return reattachVm(record, plan, this.#log(plan), signal);
    try {
      return await QemuVm.open(
        { ...this.#vmOptions(record, plan, undefined), servers: findServers(plan) },
        signal,
      );
    } catch (error) {
      // It may have ended in between.
      if (!isRunning(record)) return undefined;
      throw toPodnetError(error).with({ step: "vm.reattach", details: { pid: record.pid } });
    }
  }

  running(): ReadonlyMap<PodId, number> {
    return runningMachines();
  }

  withRemains(plans: readonly VmPlan[]): ReadonlySet<PodId> {
    return withRemains(plans, this.running());
  }

  recordOf(plan: VmPlan): VmRecord | undefined {
    return isAttached(plan) ? undefined : findProcess(plan);
  }

  async reap(record: VmRecord | undefined, plan: VmPlan): Promise<void> {
    if (isAttached(plan)) return releaseVm(record, plan, this.#log(plan));
    if (record !== undefined) await endProcess(record, { asked: false });
    // The record may be that of an earlier run, and the daemon have died before it wrote the next
    // one.
    const unrecorded = findProcess(plan);
    if (unrecorded !== undefined) await endProcess(unrecorded, { asked: false });
    await removeRemains(plan);
  }

  /** Opens the VM; a QEMU that ends meanwhile ends the wait at once, with what it said. */
  async #open(
    plan: VmPlan,
    started: StartedProcess,
    { start, restore, templateGuest }: Origin,
    servers: readonly ShareServer[],
    signal: AbortSignal,
  ): Promise<QemuVm> {
    const gone = new AbortController();
    void started.ended.then((how) => gone.abort(how));
    const options = {
      ...this.#vmOptions(started.record, plan, started.ended),
      servers,
      ...(restore === undefined ? {} : { restore }),
      ...(templateGuest === undefined ? {} : { templateGuest }),
      ...(start.nic === undefined ? {} : { firstNic: start.nic.nicId }),
    };
    try {
      return await QemuVm.open(options, AbortSignal.any([signal, gone.signal]));
    } catch (error) {
      // Its sockets close before its parent hears of its end.
      const how = signal.aborted ? undefined : await within(started.ended, 300);
      if (how === undefined) throw error;
      const said = await logTail(plan.runDir);
      throw new PodnetError(
        "QEMU_EXITED",
        `QEMU ended at its start with ${how}: ${lastLine(said)}`,
        {
          step: "vm.start",
          hint: said.includes("Cannot allocate memory")
            ? "The host has no room for this machine: give it less memory, or stop other pods"
            : "See what QEMU said, and run the command of `podnet create --plan` by hand",
          details: { how, stderr: said },
          cause: error,
        },
      );
    }
  }

  #vmOptions(record: VmRecord, plan: VmPlan, ended: Promise<string> | undefined) {
    const { socketMs = 10_000, unplugMs = kindOf(plan).unplugMs } = this.#options;
    return { record, plan, ended, socketMs, unplugMs, log: this.#log(plan) };
  }

  #log({ podId }: VmPlan): Log {
    const { log = noLog } = this.#options;
    return (level, message, fields) => log(level, message, { pod_id: podId, ...fields });
  }

  #program(plan: VmPlan): string | undefined {
    const named = architectureOf(plan) === this.#arch ? this.#options.qemuPath : undefined;
    return named ?? findProgram(kindOf(plan).program);
  }

  #argv(plan: VmPlan, qemu: string, start: Start): readonly string[] {
    const { tbSizeMib = 64 } = this.#options;
    const accelerator = this.#accelerators[architectureOf(plan)];
    return [
      ...jailArgv(plan, {
        launcher: findLauncher(),
        reportFd: afterLastFd(plan, start),
        accelerator,
        ...(accelerator === "kvm" ? { kvmGroup: kvmGroup() } : {}),
      }),
      ...qemuArgv(plan, { qemu, accelerator, tbSizeMib, steadyTsc: this.#steadyTsc }, start),
    ];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#templates[Symbol.asyncDispose]();
  }
}

const roleOf = ({ factory }: VmPlan): MemoryRole => (factory === undefined ? "own" : "clone");

/**
 * Removes what a failed start left; the failure stays the error, what could not be undone goes
 * along.
 */
async function undoStart(
  failure: PodnetError,
  plan: VmPlan,
  record: VmRecord | undefined,
): Promise<PodnetError> {
  try {
    if (record !== undefined) await endProcess(record, { asked: false });
    await removeRemains(plan);
    return failure.with({ step: "vm.start" });
  } catch (error) {
    const { message } = toPodnetError(error);
    return failure.with({ step: "vm.start", details: { undo: message } });
  }
}
