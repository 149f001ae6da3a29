import { writeFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * An instruction at which an emulated processor returns to QEMU, as at a timer's interrupt. After a
 * refused `device_add` QEMU 7.2 waits until each processor has done so (drain_call_rcu), and serves
 * no monitor meanwhile: with a guest that only spins it may wait for ever.
 */
const pause = [0xf3, 0x90];

/**
 * Guests of a few instructions, for what an operating system would not do on demand. Each is an ELF
 * file with a PVH entry note, which QEMU's `-kernel` starts in 32-bit protected mode with
 * interrupts off.
 *
 * Ports, as QEMU 7.2 lays out a q35: ACPI PCI hot-plug at 0xcc0 (docs/specs/acpi_pci_hotplug.txt:
 * up +0, down +4, eject +8, bus select +0x10), ACPI power management at 0x600, reset control at
 * 0xcf9, serial port at 0x3f8.
 */
export const tinyGuests = {
  /** Sleeps for ever: answers nothing. */
  deaf: [0xfa, 0xf4, 0xeb, 0xfd],
  /** Lets go of what it is asked to let go of. */
  polite: ejecting(0xcc4),
  /** Ejects every card as soon as it is plugged in, unasked. */
  spitting: ejecting(0xcc0),
  /** Writes `x` to its console without end. */
  chatty: [...dx(0x3f8), 0xb0, 0x78, 0xee, 0xeb, 0xfd],
  /** Powers itself off: sleep type 0 with sleep enable into PM1a control. */
  quitting: [...dx(0x604), 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef, 0xf4, 0xeb, 0xfd],
  /** Resets itself, every time it starts. */
  rebooting: [...dx(0xcf9), 0xb0, 0x06, 0xee, 0xf4, 0xeb, 0xfd],
} as const;

/** mov dx, port */
function dx(port: number): number[] {
  return [0x66, 0xba, port & 0xff, port >> 8];
}

/**
 * Selects bus 0, reads which slots are marked at `port`, ejects the lowest of them, and starts
 * over.
 */
function ejecting(port: number): number[] {
  const out = 0xef;
  const select = [...dx(0xcd0), 0x31, 0xc0, out];
  const read = [...dx(port), 0xed, 0x85, 0xc0];
  const eject = [...dx(0xcc8), out];
  const jump = (opcode: number, bytesBefore: number): number[] => [opcode, 256 - bytesBefore - 2];
  const ifNone = jump(0x74, pause.length + select.length + read.length);
  const head = [...pause, ...select, ...read, ...ifNone, ...eject];
  return [...head, ...jump(0xeb, head.length)];
}

const load = 0x10_0000;

/** An ELF64 executable with one segment at 1 MiB and the note XEN_ELFNOTE_PHYS32_ENTRY (18). */
function elf(code: readonly number[]): Uint8Array {
  const file = new Uint8Array(0x200);
  const view = new DataView(file.buffer);
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  view.setUint16(16, 2, true);
  view.setUint16(18, 62, true);
  view.setUint32(20, 1, true);
  view.setBigUint64(24, BigInt(load), true);
  view.setBigUint64(32, 64n, true);
  view.setUint16(52, 64, true);
  view.setUint16(54, 56, true);
  view.setUint16(56, 2, true);
  const segment = (at: number, type: number, offset: number, size: number): void => {
    view.setUint32(at, type, true);
    view.setUint32(at + 4, 5, true);
    for (const [field, value] of [offset, load, load, size, size, 4].entries())
      view.setBigUint64(at + 8 + 8 * field, BigInt(value), true);
  };
  segment(64, 1, 0x100, code.length);
  segment(120, 4, 0xc0, 24);
  view.setUint32(0xc0, 4, true);
  view.setUint32(0xc4, 8, true);
  view.setUint32(0xc8, 18, true);
  file.set([0x58, 0x65, 0x6e, 0], 0xcc);
  view.setBigUint64(0xd0, BigInt(load), true);
  file.set(code, 0x100);
  return file;
}

export interface GuestFiles {
  readonly kernel: string;
  readonly initrd: string;
}

/** Writes the guest's kernel and an initrd that is never read into a directory. */
export async function writeTinyGuest(
  directory: string,
  guest: keyof typeof tinyGuests,
): Promise<GuestFiles> {
  const kernel = join(directory, `${guest}.elf`);
  const initrd = join(directory, "initrd");
  await writeFile(kernel, elf(tinyGuests[guest]));
  await writeFile(initrd, "none");
  return { kernel, initrd };
}
