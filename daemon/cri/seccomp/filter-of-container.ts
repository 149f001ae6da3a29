import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { isAbsolute, normalize } from "node:path";
import { perform } from "../../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { mostInstructions } from "../../../guest-init/protocol/container-messages.ts";
import { hexText } from "../../../guest-init/protocol/bytes.ts";
import type { Architecture } from "../../../hypervisor/architecture.ts";
import { capabilityNames } from "../containers/capabilities.ts";
import { type LinuxContainerSecurityContext, ProfileType } from "../gen/cri_pb.ts";
import { filterOf, type Profile } from "./filter.ts";
import { parseProfile } from "./profile-file.ts";
import { runtimeDefault } from "./runtime-default.ts";

const at = "config.linux.security_context.seccomp";
const mostBytes = 1024 * 1024;
const instructionBytes = 8;

/** Which profile is asked for; undefined for none. */
type Asked = "default" | { readonly file: string } | undefined;

/**
 * The filter of a container's system calls, as the agent takes it; undefined without one. Throws
 * `INVALID_ARGUMENT`, `UNSUPPORTED`, and `SYSCALL_FAILED` for a profile that cannot be read.
 */
export function systemCallFilter(
  context: LinuxContainerSecurityContext | undefined,
  capabilities: readonly number[] | undefined,
  architecture: Architecture,
): string | undefined {
  const asked = askedOf(context);
  // As runtimes have it: nothing confines a privileged container.
  if (asked === undefined || context?.privileged === true) return undefined;
  const profile: Profile =
    asked === "default"
      ? runtimeDefault(new Set(capabilityNames(capabilities)))
      : parseProfile(readProfile(asked.file));
  const filter = filterOf(profile, architecture);
  if (filter.length <= mostInstructions * instructionBytes) return hexText(filter);
  throw new PodnetError("INVALID_ARGUMENT", "The profile is larger than a kernel takes", {
    field: at,
    hint: "Leave out rules that look at arguments",
  });
}

/** kubelet before 1.27 says it in words, too. */
function askedOf(context: LinuxContainerSecurityContext | undefined): Asked {
  const { seccomp, seccompProfilePath: words = "" } = context ?? {};
  if (seccomp === undefined) {
    if (words === "" || words === "unconfined") return undefined;
    if (words === "runtime/default" || words === "docker/default") return "default";
    if (words.startsWith("localhost/")) return { file: words.slice("localhost/".length) };
    throw new PodnetError("INVALID_ARGUMENT", `There is no profile "${printable(words)}"`, {
      field: "config.linux.security_context.seccomp_profile_path",
      hint: "Use runtime/default, unconfined, or localhost/ and the path of a profile",
    });
  }
  switch (seccomp.profileType) {
    case ProfileType.RUNTIME_DEFAULT:
      return "default";
    case ProfileType.UNCONFINED:
      return undefined;
    case ProfileType.LOCALHOST:
      return { file: seccomp.localhostRef };
    default:
      throw new PodnetError(
        "INVALID_ARGUMENT",
        `There is no profile type ${Number(seccomp.profileType)}`,
        { field: `${at}.profile_type`, hint: "Use RuntimeDefault, Unconfined or Localhost" },
      );
  }
}

/** kubelet gives the path of a file of its node's. */
function readProfile(path: string): string {
  if (!isAbsolute(path) || normalize(path) !== path)
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(path)}" is not an absolute path`, {
      field: `${at}.localhost_ref`,
      hint: "kubelet gives the path of a profile below its directory seccomp",
    });
  try {
    // A pipe without a writer would hold up podnetd.
    const flags = constants.O_RDONLY | constants.O_NONBLOCK;
    const fd = perform("file", "open system call profile", () => openSync(path, flags));
    try {
      if (!fstatSync(fd).isFile()) throw new Error("It is not a file");
      const bytes = Buffer.alloc(mostBytes + 1);
      const length = perform("file", "read system call profile", () => readSync(fd, bytes));
      if (length > mostBytes) throw new Error(`It has more than ${mostBytes} bytes`);
      return bytes.toString("utf8", 0, length);
    } finally {
      closeSync(fd);
    }
  } catch (cause) {
    throw new PodnetError(
      "SYSCALL_FAILED",
      `The profile "${printable(path)}" cannot be read: ${toPodnetError(cause).message}`,
      { field: `${at}.localhost_ref`, hint: "Put the profile there, on this node", cause },
    );
  }
}
