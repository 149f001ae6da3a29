import { isPodnetError, PodnetError } from "../../core/errors.ts";

/** What limits need of the kernel, with the modules that have it. */
const modules = {
  queue: "sch_tbf",
  link: "ifb",
  redirect: "sch_ingress, cls_u32 and act_mirred",
} as const;

/** What the kernel answers for a kind of link (EOPNOTSUPP), queue or filter (ENOENT) it lacks. */
const lacking: readonly unknown[] = ["EOPNOTSUPP", "ENOENT"];

/**
 * Waits for a part of a limit to be made. Throws `UNSUPPORTED` where the kernel has nothing of that
 * kind, and otherwise what the work throws.
 */
export async function needing(what: keyof typeof modules, work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (cause) {
    if (!isPodnetError(cause) || !lacking.includes(cause.details["errno"])) throw cause;
    throw new PodnetError("UNSUPPORTED", `This kernel cannot limit rates: ${cause.message}`, {
      hint: `Load ${modules[what]}, use a kernel that has it, or set no limit`,
      cause,
    });
  }
}
