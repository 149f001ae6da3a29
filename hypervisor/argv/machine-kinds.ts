import { type Architecture, architectureOf } from "../architecture.ts";
import type { Accelerator, NicPlan, VmPlan } from "../driver.ts";

/** NICs a machine takes, in slots from 1 on. */
export const nicSlots = 31;

/** The bus of machines that have one for all NICs. */
export const hotplugBridge = "br0";

/** The differences between machines of different architectures. */
export interface MachineKind {
  readonly arch: Architecture;
  readonly program: string;
  /** Debian's package of the program. */
  readonly package: string;
  readonly runs: Readonly<Record<Accelerator, { readonly machine: string; readonly cpu: string }>>;
  /**
   * Kernel words every guest gets. After a panic the guest restarts and its agent says READY once
   * more.
   */
  readonly cmdline: string;
  /**
   * More of them under emulation on a host with a steady TSC, which is the guest's own then. The
   * guest's kernel would wake up twice a second to compare it with another clock.
   */
  readonly trustsTsc: string;
  /** Whether the firmware can boot from a disk by itself. */
  readonly bootsDisks: boolean;
  /** One bridge with a slot for each NIC, or one port for each. */
  readonly nics: "bridge" | "ports";
  /** Whether processors and memory can be plugged in while it runs. */
  readonly grows: boolean;
  /** Milliseconds a guest gets to let go of a NIC. */
  readonly unplugMs: number;
}

const q35 = "q35,usb=off,vmport=off,sata=off,smbus=off";

const kinds: Readonly<Record<Architecture, MachineKind>> = {
  x86_64: {
    arch: "x86_64",
    program: "qemu-system-x86_64",
    package: "qemu-system-x86",
    // qemu64 boots 90 ms sooner than `max` under emulation (QEMU 7.2, Debian's kernel).
    runs: { kvm: { machine: q35, cpu: "host" }, tcg: { machine: q35, cpu: "qemu64" } },
    // The kernel's check of its timer counts ticks, and panics where a busy host gives the machine
    // none meanwhile. The last two save a quarter of the boot under software emulation (Debian's
    // 6.1 kernel).
    cmdline: "console=ttyS0 quiet panic=1 no_timer_check noreplace-smp cryptomgr.notests",
    trustsTsc: "tsc=nowatchdog",
    bootsDisks: true,
    nics: "bridge",
    grows: true,
    unplugMs: 3000,
  },
  arm64: {
    arch: "arm64",
    program: "qemu-system-aarch64",
    package: "qemu-system-arm",
    // The interrupt controller of version 2 takes 8 processors. `max` boots a third slower than
    // cortex-a57 under emulation.
    runs: {
      kvm: { machine: "virt,gic-version=host", cpu: "host" },
      tcg: { machine: "virt,gic-version=3", cpu: "cortex-a57" },
    },
    cmdline: "console=ttyAMA0 quiet panic=1 cryptomgr.notests",
    trustsTsc: "",
    bootsDisks: false,
    // Without firmware there is no ACPI hot-plug, and Linux uses a bridge's own hot-plug controller
    // only with ACPI's permission.
    nics: "ports",
    // QEMU 7.2 plugs no processors into `virt`, and memory only with firmware's ACPI.
    grows: false,
    // The kernel waits five seconds after a press of a port's button, during which it can be
    // cancelled.
    unplugMs: 12_000,
  },
};

/** The kind of machine of this architecture. */
export const kindFor = (arch: Architecture): MachineKind => kinds[arch];

/** The kind of the plan's machine. */
export const kindOf = (plan: Pick<VmPlan, "arch">): MachineKind => kinds[architectureOf(plan)];

/** QEMU's words for what NICs will be plugged into. */
export function nicPlaceWords({ nics }: MachineKind): string[] {
  if (nics === "bridge")
    return ["-device", `pcie-pci-bridge,id=${hotplugBridge},bus=pcie.0,addr=0x2`];
  return Array.from({ length: nicSlots }, (_, i) => {
    const [device, fn] = [firstPortDevice + (i >> 3), i & 7];
    const more = fn === 0 ? ",multifunction=on" : "";
    return [
      "-device",
      `pcie-root-port,id=${portOf(i + 1)},chassis=${i + 1},bus=pcie.0,addr=0x${device.toString(16)}.${fn}${more}`,
    ];
  }).flat();
}

/** Eight ports a device, beyond the last disk. */
const firstPortDevice = 0x19;

const portOf = (slot: number): string => `port${slot}`;

/** Bus and address of a NIC, which in a foreign machine it brings along. */
export function nicAddress(
  { bus, slot }: Pick<NicPlan, "bus" | "slot">,
  { nics }: MachineKind,
): { readonly bus: string; readonly addr: number } {
  if (bus !== undefined) return { bus, addr: slot };
  return nics === "bridge" ? { bus: hotplugBridge, addr: slot } : { bus: portOf(slot), addr: 0 };
}

/** The slot of one of podnet's ports. */
export const slotOfPort = (bus: string): number => Number(bus.slice(portOf(0).length - 1));
