import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { shown } from "../../core/shown.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { endOf, hasAgentProgram, startAgentProgram } from "./agent-program.ts";

const field = "config.linux.sysctls";
const hint = "See securityContext.sysctls of the pod";
const most = { settings: 128, length: 4096 } as const;
/** How long a guest may take to set them, milliseconds. */
const guestMs = 20_000;

/** A setting of the machine's kernel: a file below /proc/sys, and what is written to it. */
export type Sysctl = readonly [file: string, value: string];

/**
 * The settings that Kubernetes asks for; kubelet has decided which are safe. Parts of a name are
 * divided by dots, and a slash stands for a dot within one; or the other way round, where a slash
 * comes first. Throws `INVALID_ARGUMENT`. Pure.
 */
export function sysctlsOf(asked: Readonly<Record<string, string>>): readonly Sysctl[] {
  const all = Object.entries(asked).map(([name, value]): Sysctl => {
    const parts = /^[^/]*\./.test(name)
      ? name.split(".").map((part) => part.replaceAll("/", "."))
      : name.split("/");
    const isName = parts.every((part) => /^(?!\.{1,2}$)[A-Za-z0-9_.:-]+$/.test(part));
    if (isName && !value.includes("\0") && value.length <= most.length)
      return [`/proc/sys/${parts.join("/")}`, value];
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `"${printable(name)}" cannot be set to "${printable(value.slice(0, 80))}"`,
      { field, hint },
    );
  });
  if (all.length <= most.settings) return all;
  throw new PodnetError("INVALID_ARGUMENT", `There are more than ${most.settings} sysctls`, {
    field,
    hint,
  });
}

/** Throws `INVALID_ARGUMENT` with what the guest's kernel says, and `UNSUPPORTED`. */
export async function setSysctls(live: LivePod, sysctls: readonly Sysctl[]): Promise<void> {
  if (sysctls.length === 0) return;
  if (!hasAgentProgram(live))
    throw new PodnetError("UNSUPPORTED", "The guest's agent does not set sysctls", {
      field,
      hint: "Use podnet's own kernel and initramfs, and the agent of this podnet",
    });
  const signal = AbortSignal.timeout(guestMs);
  const session = await startAgentProgram(live, ["--sysctl", ...sysctls.flat()], signal);
  const { code, text } = await endOf(session.events);
  if (code === 0) return;
  const said = shown(text.replace(/^\/proc\/sys\//, ""));
  throw new PodnetError("INVALID_ARGUMENT", `The machine's kernel refuses a sysctl: ${said}`, {
    field,
    hint,
  });
}
