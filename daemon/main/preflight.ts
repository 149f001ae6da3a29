import { accessSync, closeSync, constants, openSync, readFileSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { kindFor } from "../../hypervisor/argv/machine-kinds.ts";
import { findProgram, run } from "../../linux/processes/command.ts";
import { errnoHint } from "../../linux/syscall-error.ts";
import type { Config } from "../config/config.ts";

const CAP_NET_ADMIN = 12n;

/** Checks what podnetd cannot do without. Throws `PREFLIGHT_FAILED`, saying what to do. */
export function checkHost(): void {
  if (!hasCapability(readFileSync("/proc/self/status", "latin1"), CAP_NET_ADMIN)) {
    throw new PodnetError("PREFLIGHT_FAILED", "podnetd may not change the network", {
      hint: "Run it as root, or give it CAP_NET_ADMIN",
      details: { missing: "CAP_NET_ADMIN" },
    });
  }
  try {
    closeSync(openSync("/dev/net/tun", "r+"));
  } catch (cause) {
    const { code = "" } = cause as NodeJS.ErrnoException;
    throw new PodnetError("PREFLIGHT_FAILED", "/dev/net/tun cannot be opened", {
      hint:
        (code === "EMFILE" ? errnoHint(code) : undefined) ??
        "Load the module (modprobe tun) and give podnetd access to the device",
      cause,
    });
  }
}

/** The QEMU to run. Throws `QEMU_MISSING`. */
export function qemuPath(config: Config): string {
  const { program, package: where } = kindFor(config.qemu.arch);
  const found = config.qemu.path ?? findProgram(program);
  if (found !== undefined && isExecutable(found)) return found;
  throw new PodnetError(
    "QEMU_MISSING",
    found === undefined ? `"${program}" is not installed` : `There is no program "${found}"`,
    {
      field: "qemu.path",
      hint: `Install it (apt-get install ${where}), or set qemu.path`,
    },
  );
}

/** Whether this process may run the program. */
export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** QEMU's own version, such as `7.2.22`. */
export async function qemuVersion(path: string): Promise<string> {
  const { stdout } = await run([path, "--version"], { timeoutMs: 10_000 });
  return /version (\S+)/.exec(stdout)?.[1] ?? "unknown";
}

/** Whether /proc/PID/status names a capability as effective. */
export function hasCapability(status: string, capability: bigint): boolean {
  const mask = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1];
  return mask !== undefined && ((BigInt(`0x${mask}`) >> capability) & 1n) === 1n;
}
