import { PodnetError } from "../../core/errors.ts";
import type { PodId } from "../../core/names.ts";
import type { JailPlan, VmPlan } from "../driver.ts";
import { within } from "./connect.ts";
import { firstInheritedFd, startProcess } from "./process.ts";
import { removeRemains } from "./remains.ts";
import { lastLine, logTail, makeRunDir } from "./run-dir.ts";
import { jailArgv, sandboxWords } from "../jail/argv.ts";
import { makeCgroups } from "../jail/cgroup.ts";
import { findLauncher } from "../jail/launcher.ts";

export interface Trial {
  readonly podId: PodId;
  readonly runDir: string;
  readonly jail: JailPlan;
  readonly qemu: string;
}

/** Milliseconds for a QEMU that only says its version. */
const trialMs = 20_000;

/**
 * Has QEMU say its version in a jail. Throws `JAIL_FAILED` when the jail, or QEMU in it, does not
 * work; leaves nothing.
 */
export async function tryJail({ podId, runDir, jail, qemu }: Trial): Promise<void> {
  // The trial needs only its program of the host's files.
  const files = { kernel: qemu, initrd: qemu, cmdline: "", disks: [] };
  const plan: VmPlan = { podId, vcpu: 1, memoryMib: 1, ...files, runDir, jail };
  const host = {
    launcher: findLauncher(),
    reportFd: firstInheritedFd,
    accelerator: "tcg",
  } as const;
  try {
    await makeRunDir(plan);
    makeCgroups(jail.cgroups);
    const argv = [...jailArgv(plan, host), qemu, ...sandboxWords, "--version"];
    const { ended } = await startProcess(argv, plan);
    const how = await within(ended, trialMs);
    if (how === "exit code 0") return;
    const said = lastLine(await logTail(runDir));
    throw new PodnetError("JAIL_FAILED", `QEMU ended with ${how ?? "nothing"} in it: ${said}`, {
      hint: "It sees its program, /usr/lib and /usr/share/qemu; see docs/how-to/confinement.md",
    });
  } finally {
    await removeRemains(plan);
  }
}
