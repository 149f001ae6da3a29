import { limited } from "../../core/aborting.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { QmpClient } from "../qmp/client.ts";

/**
 * Deadline for the greeting of a foreign monitor, milliseconds. A monitor that is free greets at
 * once.
 */
const greetingMs = 1500;
/** The limit from the first attempt to connect until commands are taken. */
const openMs = 1900;

const field = "qmp_socket";

/**
 * Opens a QMP monitor of a foreign machine. Throws `QMP_IN_USE` without a greeting in time,
 * `INVALID_ARGUMENT` when there is nothing to connect to, `PERMISSION_DENIED` when podnetd's own
 * user may not, `SYSCALL_FAILED`, `QMP_PROTOCOL`, `CANCELLED`.
 */
export async function openMonitor(path: string, signal: AbortSignal): Promise<QmpClient> {
  try {
    return await QmpClient.open(path, { signal: limited(openMs, signal), greetingMs });
  } catch (thrown) {
    if (signal.aborted) throw thrown;
    throw explained(toPodnetError(thrown), path);
  }
}

function explained(error: PodnetError, path: string): PodnetError {
  const { errno } = error.details;
  // A second client is queued by the kernel, or waits for room in the queue: QEMU does not take it.
  if (["QMP_TIMEOUT", "DEADLINE_EXCEEDED", "CANCELLED"].includes(error.code))
    return new PodnetError("QMP_IN_USE", `No greeting at the QMP socket "${path}"`, {
      field,
      hint: "QEMU serves one client per monitor: end the other one, or give podnet a monitor of its own with a second -qmp",
      details: { path },
      cause: error,
    });
  if (errno === "ENOENT" || errno === "ENOTDIR" || errno === "ECONNREFUSED")
    return new PodnetError(
      "INVALID_ARGUMENT",
      errno === "ECONNREFUSED"
        ? `No process listens at the QMP socket "${path}"`
        : `There is no QMP socket "${path}"`,
      {
        field,
        hint: "Give the path of -qmp unix:PATH,server=on,wait=off of a machine that runs",
        details: { path },
        cause: error,
      },
    );
  if (errno === "EACCES" || errno === "EPERM") return denied(path, field, error);
  return error.with({ field, details: { path } });
}

/** podnetd runs as a user who may not use a foreign socket machine. */
export const denied = (path: string, of: string, cause: unknown): PodnetError =>
  new PodnetError("PERMISSION_DENIED", `podnetd's user may not open the socket "${path}"`, {
    field: of,
    hint: `Let user ${process.getuid?.() ?? 0} write to it and search (x) the directories above it, by their group or setfacl`,
    details: { path },
    cause,
  });
