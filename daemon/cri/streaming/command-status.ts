import { isPodnetError } from "../../../core/errors.ts";
import { shown } from "../../../core/shown.ts";

/** How a program ended, as Kubernetes' `metav1.Status`: the last thing on the error channel. */
export const exitStatus = (code: number): object =>
  code === 0
    ? { metadata: {}, status: "Success" }
    : {
        metadata: {},
        status: "Failure",
        message: `command terminated with non-zero exit code: exit status ${code}`,
        reason: "NonZeroExitCode",
        details: { causes: [{ reason: "ExitCode", message: String(code) }] },
      };

/** Why a program could not be run to its end. */
export function failureStatus(thrown: unknown): object {
  const message = isPodnetError(thrown) ? thrown.message : "podnetd failed: see its log";
  return {
    metadata: {},
    status: "Failure",
    message: shown(message),
    reason: "InternalError",
    code: 500,
  };
}
