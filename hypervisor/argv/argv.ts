import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Accelerator, type NicPlan, type VmPlan, vmSockets } from "../driver.ts";
import { sandboxWords } from "../jail/argv.ts";
import { diskFiles, diskWords } from "../disks/disk-argv.ts";
import { plugCommands } from "./plug-commands.ts";
import { kindOf, type MachineKind, nicPlaceWords } from "./machine-kinds.ts";
import { sharedMemoryWords, shareWords } from "./share-words.ts";

/** Inputs of the command line in addition to the plan. */
export interface QemuHost {
  /** Absolute path of the architecture's QEMU, or its name when it is not installed. */
  readonly qemu: string;
  readonly accelerator: Accelerator;
  /** Size of the buffer for translated code. QEMU 7.2 reserves 1 GiB by default. */
  readonly tbSizeMib: number;
  /** Whether the host's TSC counts at one rate always (`hasSteadyTsc`). */
  readonly steadyTsc?: boolean;
}

/** QEMU's own files in the run directory, alongside `vmSockets`. */
export const vmFiles = { pid: "qemu.pid", log: "qemu.log" } as const;

/** Ids of the virtserialports, as VSERPORT_CHANGE names them. */
export const channelPorts = ["channel0", "channel1"] as const;

export const maxDisks = 16;

/**
 * Where the guest's memory is. A template writes it to a file that it inherits as its first
 * descriptor; a clone of it reads the same file, keeps what it changes to itself, and waits for the
 * template's state.
 */
export type MemoryRole = "own" | "template" | "clone";

/** How QEMU starts, in addition to its machine. */
export interface Start {
  readonly memory: MemoryRole;
  /** The NIC that it has from its start: a clone of a template with a NIC. */
  readonly nic?: NicPlan;
}

/**
 * The command line of a VM, to be run with `plan.runDir` as working directory: every socket is
 * named relative to it, so that the 107 bytes of a socket address suffice whatever the directory's
 * length. Pure.
 *
 * The guest waits (`-S`) until its console and QMP have a reader; then `cont` lets it go.
 * Throws `INVALID_ARGUMENT` for what cannot be put on a command line safely.
 */
export function qemuArgv(
  plan: VmPlan,
  host: QemuHost,
  { memory, nic }: Start = { memory: "own" },
): readonly string[] {
  const kind = kindOf(plan);
  checkPlan(plan, kind, host);
  const { machine, cpu } = kind.runs[host.accelerator];
  return [
    host.qemu,
    ["-name", `guest=podnet-${plan.podId},debug-threads=on`],
    ["-machine", hasFile(plan, memory) ? `${machine},memory-backend=ram0` : machine],
    ["-accel", host.accelerator === "kvm" ? "kvm" : `tcg,tb-size=${host.tbSizeMib}`],
    ["-cpu", cpu],
    ["-smp", processorWords(plan)],
    ["-m", memoryWords(plan)],
    ...memoryFile(plan, memory),
    ["-nodefaults", "-no-user-config", "-display", "none", "-S"],
    // In a jail QEMU is 1 to itself.
    plan.jail === undefined ? ["-pidfile", vmFiles.pid] : sandboxWords,
    monitor("qmp", vmSockets.qmp),
    monitor("verify", vmSockets.verify),
    [...socket("console", vmSockets.console), "-serial", "chardev:console"],
    nicPlaceWords(kind),
    ["-device", "virtio-serial-pci,id=serial0,bus=pcie.0,addr=0x3"],
    channel(0, vmSockets.channel),
    channel(1, vmSockets.tty),
    ["-object", "rng-builtin,id=rng0", "-device", "virtio-rng-pci,rng=rng0,bus=pcie.0,addr=0x4"],
    ...diskWords(plan, firstDiskFd(memory)),
    ...shareWords(plan),
    ...(nic === undefined ? [] : nicWords(nic, nicFd(plan, memory), kind)),
    bootWords(plan, kind, host),
  ].flat();
}

/** How often a machine can be given memory while it runs; each slot is a device in its ACPI. */
export const memorySlots = 16;

const processorWords = ({ vcpu, room }: VmPlan): string =>
  room === undefined ? `${vcpu}` : `${vcpu},maxcpus=${room.vcpu}`;

/** (QEMU takes no slots where the most is what the machine starts with.) */
const memoryWords = ({ memoryMib, room }: VmPlan): string =>
  room === undefined || room.memoryMib === memoryMib
    ? `size=${memoryMib}M`
    : `size=${memoryMib}M,slots=${memorySlots},maxmem=${room.memoryMib}M`;

/** A kernel of the host's, or else the first disk's bootloader and nothing alongside it. */
function bootWords(plan: VmPlan, kind: MachineKind, host: QemuHost): string[] {
  const { kernel, initrd, cmdline } = plan;
  if (kernel === undefined) return ["-boot", "strict=on"];
  return [
    "-kernel",
    kernel,
    ...(initrd === undefined ? [] : ["-initrd", initrd]),
    "-append",
    kernelWords(cmdline, kind, host),
  ];
}

/** The pod's own come last: the kernel takes the last of two that disagree. */
function kernelWords(
  cmdline: string,
  kind: MachineKind,
  { accelerator, steadyTsc = false }: QemuHost,
): string {
  const trust = accelerator === "tcg" && steadyTsc ? kind.trustsTsc : "";
  return [kind.cmdline, trust, cmdline].filter((part) => part !== "").join(" ");
}

/** The memory's file in QEMU: the first descriptor that it inherits. */
const memoryFd = 3;

/** Whether the memory is an object of its own. */
const hasFile = ({ shares }: VmPlan, memory: MemoryRole): boolean =>
  memory !== "own" || shares !== undefined;

function memoryFile(plan: VmPlan, memory: MemoryRole): string[][] {
  if (!hasFile(plan, memory)) return [];
  if (memory === "own") return [["-object", sharedMemoryWords(plan)]];
  const share = memory === "template" ? "on" : "off";
  const file = `mem-path=/proc/self/fd/${memoryFd}`;
  const object = `memory-backend-file,id=ram0,size=${plan.memoryMib}M,${file},share=${share}`;
  return [["-object", object], ...(memory === "clone" ? [["-incoming", "defer"]] : [])];
}

function socket(id: string, name: string): string[] {
  return ["-chardev", `socket,id=${id},path=${name},server=on,wait=off`];
}

function monitor(id: string, name: string): string[] {
  return [...socket(id, name), "-mon", `chardev=${id},mode=control`];
}

function channel(port: 0 | 1, name: string): string[] {
  const id = channelPorts[port];
  // Port 0 of the bus is reserved for a console, so numbers start at 1.
  const device = `virtserialport,bus=serial0.0,nr=${port + 1},id=${id},chardev=${id},name=sh.hyper.channel.${port}`;
  return [...socket(id, name), "-device", device];
}

/** The disks' descriptors come after the memory's. */
const firstDiskFd = (memory: MemoryRole): number => (memory === "own" ? memoryFd : memoryFd + 1);

/** The tap's descriptor comes after those of the disks. */
const nicFd = (plan: VmPlan, memory: MemoryRole): number =>
  firstDiskFd(memory) + diskFiles(plan).length;

/** The number after those of the descriptors that QEMU inherits. */
export const afterLastFd = (plan: VmPlan, { memory, nic }: Start): number =>
  nicFd(plan, memory) + (nic === undefined ? 0 : 1);

function nicWords(nic: NicPlan, fd: number, kind: MachineKind): string[] {
  const { netdev_add, device_add } = plugCommands(nic, kind);
  const words = (object: Readonly<Record<string, string | number | boolean>>): string =>
    Object.entries(object)
      .map(([key, value]) => `${key}=${value === false ? "off" : value}`)
      .join(",");
  const { type, id } = netdev_add;
  const { driver, ...device } = device_add;
  return ["-netdev", `${type},id=${id},fd=${fd}`, "-device", `${driver},${words(device)}`];
}

function checkPlan(plan: VmPlan, kind: MachineKind, host: QemuHost): void {
  if (plan.kernel !== undefined) checkPath(plan.kernel, "boot.kernel");
  if (plan.initrd !== undefined) checkPath(plan.initrd, "boot.initrd");
  checkPath(plan.runDir, "runDir");
  plan.disks.forEach(({ path, overlay }, index) => {
    checkPath(path, `boot.disks[${index}].path`);
    if (overlay !== undefined) checkPath(overlay.path, `boot.disks[${index}].overlay`);
  });
  if (plan.disks.length > maxDisks) {
    throw refused("boot.disks", `${plan.disks.length} disks are more than a VM takes`, {
      hint: `Give at most ${maxDisks} disks`,
    });
  }
  checkCount(plan.vcpu, 255, "resources.vcpu");
  checkCount(plan.memoryMib, 4 * 1024 * 1024, "resources.memory_mib");
  plan.shares?.forEach(({ path }, index) => checkPath(path, `shares[${index}].path`));
  if (plan.room !== undefined) {
    checkCount(plan.room.vcpu, 255, "resources.max_vcpu");
    checkCount(plan.room.memoryMib, 4 * 1024 * 1024, "resources.max_memory_mib");
  }
  // Kernels take 2047 bytes (COMMAND_LINE_SIZE of x86 and of arm64); QEMU refuses nothing.
  if (!/^[\x20-\x7e]*$/.test(plan.cmdline) || kernelWords(plan.cmdline, kind, host).length > 2047) {
    throw refused(
      "boot.cmdline",
      `Kernel command line "${printable(plan.cmdline)}" is not usable`,
      {
        hint: "Use at most 1900 printable ASCII characters",
      },
    );
  }
}

function checkPath(path: string, field: string): void {
  // QEMU runs in the run directory, so a relative path would mean another file than the caller's.
  if (!path.startsWith("/") || path.includes("\0")) {
    throw refused(field, `Path "${printable(path)}" is not usable`, {
      hint: "Give an absolute path",
    });
  }
}

function checkCount(value: number, most: number, field: string): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= most) return;
  throw refused(field, `${value} is out of range`, {
    hint: `Use a whole number from 1 to ${most}`,
  });
}

const refused = (field: string, message: string, context: { readonly hint: string }): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field, ...context });
