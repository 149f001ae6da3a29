import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { writeTinyGuest } from "../peers/tiny-guest.ts";

/** The program that stands in for QEMU: test/standin-vm/README.md. */
export const standInQemu = resolve(import.meta.dirname, "../standin-vm/qemu");

/**
 * Configuration of a podnetd whose machines are stand-ins; its tables come last in the file.
 * `directory` gets a kernel and an initramfs that is never started.
 */
export async function standInConfig(directory: string): Promise<string> {
  mkdirSync(directory, { recursive: true });
  const { kernel, initrd } = await writeTinyGuest(directory, "deaf");
  // A stand-in reads this checkout, which a confined QEMU does not see.
  return `
[qemu]
path = "${standInQemu}"
confine = "off"
[image]
kernel = "${kernel}"
initrd = "${initrd}"
`;
}
