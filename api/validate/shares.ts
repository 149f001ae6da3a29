import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import { checkCount, invalid } from "../fields.ts";
import type { PodSpec, ShareSpec } from "../pod-spec.ts";

const limits = { shares: 8, path: 1024 } as const;

/** What podnet's agent needs as it is. */
const systemPaths = ["/proc", "/sys", "/dev"] as const;

/** Checks the shares of a pod. */
export function validateShares(shares: readonly wire.Share[]): readonly ShareSpec[] {
  checkCount(shares, limits.shares, "shares");
  const checked = shares.map(({ hostPath, path, writable }, i) => ({
    hostPath: checkPath(hostPath, `shares[${i}].host_path`, "on the host"),
    path: checkGuestPath(path, `shares[${i}].path`),
    ...(writable ? { writable } : {}),
  }));
  checked.forEach(({ path }, i) => {
    const other = checked.find((each, j) => j !== i && isWithin(path, each.path));
    if (other !== undefined)
      throw invalid(
        `shares[${i}].path`,
        `"${printable(path)}" lies in another share, "${printable(other.path)}"`,
        "Give each share a place of its own",
      );
  });
  return checked;
}

/** Refuses shares of a machine that cannot have any. */
export function refuseShares({
  shares,
  boot,
  resources,
}: Pick<PodSpec, "shares" | "boot" | "resources">): void {
  if (shares === undefined) return;
  if (boot.factory !== undefined && boot.factory !== "cold")
    throw new PodnetError("UNSUPPORTED", "A machine with shares cannot be cloned from a template", {
      field: "boot.factory",
      hint: "Use factory cold for it, or leave it out",
    });
  if (resources.maxMemoryMib !== undefined)
    throw new PodnetError("UNSUPPORTED", "The memory of a machine with shares cannot grow", {
      field: "resources.max_memory_mib",
      hint: "Leave the maximum out, and give the pod what it is to have at most",
    });
}

function checkGuestPath(path: string, field: string): string {
  checkPath(path, field, "in the guest");
  const system = systemPaths.find((each) => isWithin(path, each));
  if (path !== "/" && system === undefined) return path;
  throw invalid(
    field,
    `A share cannot be at "${printable(path)}"`,
    `Name another path than / and what is in ${systemPaths.join(", ")}`,
  );
}

function checkPath(path: string, field: string, where: string): string {
  const parts = path === "/" ? [] : path.split("/").slice(1);
  const isPath = path.startsWith("/") && path.length <= limits.path && !/\p{Cc}/u.test(path);
  if (isPath && !parts.some((part) => ["", ".", ".."].includes(part))) return path;
  throw invalid(
    field,
    `"${printable(path)}" is not the path of a directory ${where}`,
    `Write an absolute path of at most ${limits.path} characters, without ".", ".." and a "/" at its end`,
  );
}

const isWithin = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(`${directory}/`);
