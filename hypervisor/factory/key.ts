import { statSync } from "node:fs";
import { parsePodId } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { VmPlan } from "../driver.ts";
import type { TemplateKey } from "./templates.ts";

/**
 * The plan without what is one pod's alone: plans alike this way can be cloned from the same
 * template.
 */
export function withoutIdentity(plan: VmPlan): VmPlan {
  const { jail, nic, ...rest } = plan;
  void jail;
  void nic;
  return { ...rest, podId: parsePodId("aaaaaaaaaaaa"), runDir: "/" };
}

/**
 * The key of a plan's template; `argv` is the command line of the plan without the parts of one
 * pod. A replaced or rewritten file counts as another one.
 */
export function templateKey(plan: VmPlan, qemu: string, argv: readonly string[]): TemplateKey {
  const files = [qemu, plan.kernel, plan.initrd, ...plan.disks.map(({ path }) => path)]
    .map((path) => (path === undefined ? "none" : identity(path)))
    .join(" ");
  // A clone has the NICs of its template, no more and no fewer.
  return { machine: JSON.stringify([argv, plan.nic?.slot]), files };
}

function identity(path: string): string {
  try {
    const { dev, ino, size, mtimeNs } = statSync(path, { bigint: true });
    return [dev, ino, size, mtimeNs].join(":");
  } catch (error) {
    throw fileError(error, `Cannot look at "${path}"`);
  }
}
