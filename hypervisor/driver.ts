import type { IfName, PodId } from "../core/names.ts";
import { type Mac, parseMac } from "../core/address.ts";
import type { Architecture } from "./architecture.ts";

/** The processor's own virtualisation, or software. */
export type Accelerator = "kvm" | "tcg";

/** A disk as the pod asked for it. */
export interface DiskPlan {
  readonly path: string;
  readonly format: "raw" | "qcow2";
  readonly readOnly: boolean;
  /** Whether it is a block device; absent: if its path begins with /dev/. */
  readonly isDevice?: boolean;
  /**
   * Where what the pod writes goes; absent: into the disk itself, as with every disk of an earlier
   * podnetd.
   */
  readonly overlay?: OverlayPlan;
  /**
   * podnetd makes the file, with an empty file system of this size, for what the pod writes over
   * its root, and removes it with the pod.
   */
  readonly layer?: { readonly bytes: number };
}

/** A directory of the host that a guest reads. */
export interface SharePlan {
  /** The name by which the guest finds it; no two of a machine are alike. */
  readonly tag: string;
  /** Without symbolic links. */
  readonly path: string;
  /** Where the guest has it. */
  readonly at: string;
  /** The guest writes to it as the user that it belongs to; absent: it never writes. */
  readonly writable?: true;
}

/** A disk by whose volume name a guest finds what is meant for it. */
export interface SeedPlan {
  readonly volume: string;
  /** Text by name, in the disk's one directory. */
  readonly files: Readonly<Record<string, string>>;
}

/** The pod's own copy-on-write disk (qcow2, created empty) over an image that stays unchanged. */
export interface OverlayPlan {
  readonly path: string;
  /** As large as its image is to the guest. */
  readonly bytes: number;
  /**
   * What the image was when the overlay was begun (`imageMark`): over any other it makes no sense.
   */
  readonly over: string;
  /**
   * As large as the file may become; absent: as large as it takes. QEMU stops the machine at a
   * write beyond it.
   */
  readonly maxBytes?: number;
}

/** A machine's processors and memory. */
export interface VmSize {
  readonly vcpu: number;
  readonly memoryMib: number;
}

/** How large a machine is to be now. */
export const sizeOf = ({ vcpu, memoryMib, grown }: VmSize & { readonly grown?: VmSize }): VmSize =>
  grown ?? { vcpu, memoryMib };

/** The size of memory that a running machine takes at a time: a block of Linux's on x86_64, MiB. */
export const memoryBlockMib = 128;

/**
 * Everything needed to start one VM, decided before anything happens. Plain JSON: it is stored in
 * the pod's plan.
 */
export interface VmPlan extends VmSize {
  readonly podId: PodId;
  /** Absent in a plan of an earlier podnetd: x86_64. */
  readonly arch?: Architecture;
  /** How large it may become while it runs; absent: it stays as it starts. */
  readonly room?: VmSize;
  /** How large it is to be now, since it was resized while it runs; absent: as it started. */
  readonly grown?: VmSize;
  /**
   * An ELF vmlinux (PVH) or a bzImage, for arm64 an Image; absent: the first disk's own bootloader
   * starts.
   */
  readonly kernel?: string;
  readonly initrd?: string;
  /** Kernel words added to the driver's own. */
  readonly cmdline: string;
  readonly disks: readonly DiskPlan[];
  /** Needs a jail, and memory that stays as large as it starts; such a machine boots. */
  readonly shares?: readonly SharePlan[];
  /** Likewise `imagesWithin` of shares. */
  readonly sharesWithin?: readonly string[];
  /** Where shares that are writable must lie, whoever created the pod. Absent: nowhere. */
  readonly writableWithin?: readonly string[];
  /**
   * Real paths of the directories and files that kernel, initrd and disks must lie in when they are
   * opened; absent when the pod's creator may name any path.
   */
  readonly imagesWithin?: readonly string[];
  /**
   * Likewise of disks that are written through; a plan of an earlier podnetd has none, and
   * `imagesWithin` counts.
   */
  readonly writeWithin?: readonly string[];
  /** Files on one more disk, read-only, which is made for each start and held in memory. */
  readonly seed?: SeedPlan;
  /**
   * It waits after its start until `resume`: its NICs are to be there before its guest looks for
   * them.
   */
  readonly held?: true;
  /**
   * A clone of a template instead of a boot of its own; `pool`: one that was made before the pod,
   * if there is one, and a boot if it cannot be cloned. A plan of an earlier podnetd has none.
   */
  readonly factory?: "template" | "pool";
  /**
   * The NIC that a clone has from its start, when its template has one (`templateNicMac`). Its
   * tap's descriptor is given to `start`.
   */
  readonly nic?: NicPlan;
  /** What its guest will run: the guest of a template has read the files of it. */
  readonly program?: ProgramPlan;
  /**
   * Another program runs the machine: podnetd gives it NICs and never ends it. The rest of the plan
   * is ignored.
   */
  readonly attached?: AttachPlan;
  /** The VM's own directory; every socket of `vmSockets` lives in it. */
  readonly runDir: string;
  /** How it is shut in; a machine of an earlier podnetd, or with `qemu.confine = "off"`, is not. */
  readonly jail?: JailPlan;
}

/** A program as a shell looks for it: the words of its command line, and the variable PATH. */
export interface ProgramPlan {
  readonly args: readonly string[];
  /** Absent: the guest's own. */
  readonly path?: string;
  readonly workdir: string;
}

/** Where a foreign machine is reached, and what it is. */
export interface AttachPlan {
  /** Paths of its sockets. */
  readonly qmp: string;
  /** Absent: no agent is asked for anything. */
  readonly channel?: string;
  /** Absent: nothing can be run in the guest. */
  readonly tty?: string;
  readonly type: "q35" | "pc";
  readonly accelerator: Accelerator;
}

/** A foreign machine, looked at. */
export interface FoundMachine {
  readonly pid: number;
  readonly type: "q35" | "pc";
  readonly accelerator: Accelerator;
  readonly vcpu: number;
  readonly memoryMib: number;
  /** Where it takes NICs, in the order they are to be used. */
  readonly places: readonly NicPlace[];
}

/** A free slot of a bus. */
export interface NicPlace {
  readonly bus: string;
  readonly slot: number;
}

export interface JailPlan {
  /** User and group of this VM alone. */
  readonly uid: number;
  readonly cgroups: readonly CgroupPlan[];
}

/** A control group of one VM. */
export interface CgroupPlan {
  /** Its absolute path; its last part is the pod's id. */
  readonly path: string;
  /** Names of its files, with what is written into each, in order. */
  readonly files: readonly (readonly [name: string, value: string])[];
}

/**
 * Prefix of the names of templates' directories, before the id. Template machines have no row; a
 * starting podnetd ends those that its predecessor was building, and no other machine without a
 * row.
 */
export const templatePrefix = "template-";

/**
 * The MAC of a template's NIC, which its clones give their own before their link is up: it is never
 * on a wire. Locally administered, and none that podnet gives a pod.
 */
export const templateNicMac = parseMac("06:70:6e:00:00:00");

/** File names inside `VmPlan.runDir`. */
export const vmSockets = {
  /** QMP of the daemon. */
  qmp: "qmp.sock",
  /** A second QMP monitor, for sources: QEMU serves one client per monitor at a time. */
  verify: "witness.sock",
  /** virtserialport `sh.hyper.channel.0`: control frames. */
  channel: "channel.sock",
  /** virtserialport `sh.hyper.channel.1`: tty frames. */
  tty: "tty.sock",
  /** The serial console. */
  console: "console.sock",
} as const;

/**
 * One network card to plug. Ids derive from the pod and the slot, so that recovery finds them
 * again.
 */
export interface NicPlan {
  /** QEMU's front end, `device_add id=`. */
  readonly nicId: string;
  /** QEMU's back end, `netdev_add id=`. */
  readonly netdevId: string;
  /** Name under which the tap's descriptor is handed over, `getfd fdname=`. */
  readonly fdName: string;
  readonly tap: IfName;
  readonly mac: Mac;
  /**
   * In a machine of our own 1 to `Capabilities.nicSlots`, else the slot on its bus; reused after
   * removal.
   */
  readonly slot: number;
  /** The bus, in a foreign machine. */
  readonly bus?: string;
}

/** One disk to plug into a running machine; QEMU's ids derive from its name: see `HotDisks`. */
export interface HotDiskPlan {
  /** At most 20 bytes: the disk's serial number, by which a guest finds it. */
  readonly name: string;
  readonly path: string;
  readonly format: DiskPlan["format"];
  readonly readOnly: boolean;
  readonly isDevice?: boolean;
  /** `firstDiskSlot` to `Capabilities.nicSlots`; reused after removal. */
  readonly slot: number;
  /**
   * Real paths of the directories and files that it must lie in when it is opened; absent when it
   * may lie anywhere.
   */
  readonly within?: readonly string[];
}

/** The first of a machine's slots that are for disks; NICs have those before. */
export const firstDiskSlot = 25;

/** How to find a process again. */
export interface ProcessRecord {
  readonly pid: number;
  /** Field 22 of /proc/PID/stat (clock ticks since boot): distinguishes a reused pid from ours. */
  readonly startTime: string;
  /** /proc/sys/kernel/random/boot_id at start. */
  readonly bootId: string;
}

/** How to find a running VM again; stored as the pod's `runs` row. */
export interface VmRecord extends ProcessRecord {
  readonly uid: number;
  readonly runDir: string;
}

export interface Capabilities {
  readonly hotplug: boolean;
  readonly pause: boolean;
  /** NICs one VM can hold. */
  readonly nicSlots: number;
  /** Of machines that do not say. */
  readonly arch: Architecture;
  /**
   * `kvm` only for the host's own architecture, when the processor offers it and /dev/kvm opens;
   * `tcg` otherwise.
   */
  readonly accelerators: Readonly<Record<Architecture, Accelerator>>;
}

export type VmEvent =
  | { readonly kind: "exited"; readonly detail: string }
  /** A NIC left without being asked to, or after its unplug timed out. */
  | { readonly kind: "nic-removed"; readonly nicId: string; readonly expected: boolean }
  /** A disk left without being asked to, or after its unplug timed out. */
  | { readonly kind: "disk-removed"; readonly disk: string; readonly expected: boolean }
  /** What served a directory has ended before the machine: the guest cannot read it any more. */
  | { readonly kind: "share-ended"; readonly tag: string }
  /** The agent opened or closed a channel port (QMP VSERPORT_CHANGE). */
  | { readonly kind: "channel"; readonly port: 0 | 1; readonly open: boolean }
  | { readonly kind: "guest-reset" }
  | { readonly kind: "guest-shutdown" }
  /**
   * The processors paused or run again, on any program's request. `runs` is absent when this is
   * unknown: ask `runState`.
   */
  | { readonly kind: "run-state"; readonly runs?: boolean }
  /** The hypervisor reported something that means nothing here. */
  | { readonly kind: "unheeded" }
  /** The console's ring was full: see `takeOverwritten`. */
  | { readonly kind: "console-overwritten" };

export interface RunState {
  readonly runs: boolean;
  /** `running`, `paused`, `io-error`, `internal-error` … */
  readonly status: string;
}

/** Types on a VM's serial console; released when it is disposed of. */
export interface Keyboard extends Disposable {
  /**
   * Resolves when QEMU has taken the bytes, which it does as fast as the guest reads: one that
   * reads nothing, or has ended, holds the writer back until `signal` aborts (`CANCELLED`).
   */
  type(data: Uint8Array, signal: AbortSignal): Promise<void>;
}

/** A machine's use of its host's resources. */
export interface VmUsage {
  /** Time that its processors took, and QEMU itself, since it started. */
  readonly cpuMs: number;
  readonly memoryBytes: number;
  /** The limit of its control group; absent without one. */
  readonly memoryLimitBytes?: number;
  /** In the plan's order; absent when the hypervisor does not say. */
  readonly disks?: readonly DiskUsage[];
}

/** A guest's requests to a disk since its machine started. */
export interface DiskUsage {
  readonly path: string;
  readonly readBytes: number;
  readonly readRequests: number;
  readonly writeBytes: number;
  readonly writeRequests: number;
}

export interface RunningVm {
  readonly record: VmRecord;
  /**
   * A clone that has not run yet. Its agent said READY before it was cloned: connect its channel,
   * send the agent the secrets that its twins must not have, and `resume`.
   */
  readonly asleep?: true;
  /** Of a clone that has not run yet: what whoever waited for its template's guest knows of it. */
  readonly templateGuest?: object;
  /** Id of the NIC that it has from its start: `plan.nic`, if its template has one. */
  readonly firstNic?: string;
  /**
   * Absolute path of a socket in the run directory. It may exceed 107 bytes: connect with
   * `linux/sockets/unix-socket`.
   */
  socketPath(which: keyof typeof vmSockets): string;
  /**
   * getfd → netdev_add → device_add. `tapFds`, one for each queue, stay the caller's to close. The
   * NIC that the machine has from its start is left as it is.
   * A failure leaves neither netdev nor descriptor behind.
   */
  plug(nic: NicPlan, tapFds: readonly number[], signal: AbortSignal): Promise<void>;
  /**
   * device_del → DEVICE_DELETED → netdev_del. When the guest does not release the NIC within 3 s,
   * the netdev is removed anyway (no traffic passes) and the answer is `pending`; the slot stays
   * taken until a `nic-removed` event or the VM's end. An absent NIC answers `unplugged`.
   */
  unplug(nic: NicPlan, signal: AbortSignal): Promise<"unplugged" | "pending">;
  /** Ids of the NICs the VM has now, for reattach and verification. */
  nics(signal: AbortSignal): Promise<readonly string[]>;
  /**
   * add-fd → blockdev-add → remove-fd → device_add. `fd` stays the caller's to close. A failure
   * leaves neither device nor node nor descriptor behind, unless the guest keeps what it has seen:
   * then the disk is as after a `pending` unplug.
   */
  plugDisk(disk: HotDiskPlan, fd: number, signal: AbortSignal): Promise<void>;
  /**
   * device_del → DEVICE_DELETED → blockdev-del. `pending` when the guest does not release the disk
   * in time: it can use the disk until a `disk-removed` event or the VM's end. An absent disk
   * answers `unplugged`.
   */
  unplugDisk(name: string, signal: AbortSignal): Promise<"unplugged" | "pending">;
  /** Names of the plugged disks the VM has now. */
  hotDisks(signal: AbortSignal): Promise<readonly string[]>;
  /** Tags of the shares that nothing serves any more. */
  endedShares(): readonly string[];
  /** The processors and memory that it has now, those included that its guest has not taken up. */
  size(signal: AbortSignal): Promise<VmSize>;
  /**
   * Plugs memory and processors in until the machine has this size; what it has is left. `ignored`
   * when the guest did not look at them within 5 s. The caller has raised the limits of its jail.
   * Memory that could not be plugged in leaves nothing; a processor that could not leaves what was
   * plugged before it: see `size`.
   */
  grow(size: VmSize, signal: AbortSignal): Promise<"taken" | "ignored">;
  pause(signal: AbortSignal): Promise<void>;
  resume(signal: AbortSignal): Promise<void>;
  /** Whether the processors run, with the hypervisor's word for how it is. */
  runState(signal: AbortSignal): Promise<RunState>;
  /**
   * Current usage; undefined when the machine has ended. When the hypervisor does not answer within
   * a second, only the disks are missing.
   */
  usage(): Promise<VmUsage | undefined>;
  /**
   * Free places for NICs, in a foreign machine; undefined in one of ours, whose slots only podnetd
   * uses.
   */
  places?(signal: AbortSignal): Promise<readonly NicPlace[]>;
  /**
   * Lets go of an attached VM with its NICs taken back: `NIC_UNPLUG_PENDING` when the guest keeps
   * one, from which nothing passes any more. Ends any other: waits `graceMs` for a guest that is
   * powering off — with `ask` it is pressed the power button of, until it feels it —, then quit,
   * TERM, KILL by pid and start time.
   */
  stop(options: { readonly graceMs: number; readonly ask?: boolean }): Promise<void>;
  /**
   * The console's last bytes (bounded ring, 1 MiB), in one piece, be it empty; then what follows
   * until the signal aborts.
   */
  console(signal: AbortSignal): AsyncIterable<Uint8Array>;
  /** Console output so far, as the ring holds it. */
  consoleTail(): Uint8Array;
  /**
   * Bytes of the console that were overwritten before a reader had read them, since the machine was
   * opened or this was last called.
   */
  takeOverwritten(): number;
  /**
   * Takes the console's keyboard, which one at a time has: `WRONG_STATE` names the holder. `by`
   * says who takes it.
   */
  takeKeyboard(by: string): Keyboard;
  /** Subscribes; the function returned unsubscribes. `exited` is delivered exactly once. */
  onEvent(listener: (event: VmEvent) => void): () => void;
  /** Lets go of sockets and timers; the VM runs on. */
  detach(): Promise<void>;
}

/** A way to run VMs. */
export interface Driver {
  readonly name: string;
  capabilities(): Capabilities;
  /** The command line `start` would run, for `--plan`. Pure. */
  describe(plan: VmPlan): readonly string[];
  /** The commands that plugging the NIC would send, for `--plan`. Pure. */
  describePlug(nic: NicPlan, plan: VmPlan, queues: number): readonly string[];
  /**
   * Inspects a foreign machine through its QMP socket, and disconnects. A driver without this
   * method cannot attach machines.
   */
  lookAt?(qmpSocket: string, signal: AbortSignal): Promise<FoundMachine>;
  /**
   * Starts a VM, or connects to the one `attached` names. `tapFd` is the tap of `plan.nic`, and
   * stays the caller's to close. On failure nothing is left: no process, no socket, no file.
   */
  start(plan: VmPlan, signal: AbortSignal, tapFd?: number): Promise<RunningVm>;
  /**
   * Plans with one key can be clones of one template, as far as their files are as they are now.
   * A driver without this method keeps no pool.
   */
  cloneKey?(plan: VmPlan): string;
  /** Finds a VM started by an earlier daemon; undefined when it no longer runs. */
  reattach(record: VmRecord, plan: VmPlan, signal: AbortSignal): Promise<RunningVm | undefined>;
  /**
   * Pids of the machines that run on this host, by their pods; those of another podnetd's may be
   * among them.
   */
  running(): ReadonlyMap<PodId, number>;
  /**
   * Of machines of our own, the pods of which something may be left on this host: a process, a
   * directory, a control group. One look at the host for all of them, where `reap` looks for each.
   */
  withRemains(plans: readonly VmPlan[]): ReadonlySet<PodId>;
  /**
   * Rebuilds the record of a plan's running machine, when it was lost or never written; undefined
   * when no such machine runs.
   */
  recordOf(plan: VmPlan): VmRecord | undefined;
  /**
   * Ends whatever is left of a run (process, files) without a live connection; from an attached VM
   * takes back what it has of the pod. Absent means success.
   */
  reap(record: VmRecord | undefined, plan: VmPlan): Promise<void>;
}
