import type { ErrorCode, PodnetError } from "../core/errors.ts";

/** Exit codes of the process. Programs rely on these: they never change meaning. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  unreachable: 3,
  notFound: 4,
  conflict: 5,
  preflight: 6,
  timeout: 124,
  /** `podnet exec` itself failed; 126 and 127 are the guest's own: not executable, not found. */
  exec: 125,
  /** Plus the signal's number. */
  signal: 128,
} as const;

const byCode: Readonly<Partial<Record<ErrorCode, number>>> = {
  INVALID_ARGUMENT: exitCodes.usage,
  UNKNOWN_FIELD: exitCodes.usage,
  ADDRESS_INVALID: exitCodes.usage,
  ADDRESS_OUT_OF_RANGE: exitCodes.usage,
  MAC_INVALID: exitCodes.usage,
  MTU_OUT_OF_RANGE: exitCodes.usage,
  GATEWAY_CONFLICT: exitCodes.usage,
  MEMORY_TOO_SMALL: exitCodes.usage,
  DAEMON_UNREACHABLE: exitCodes.unreachable,
  POD_NOT_FOUND: exitCodes.notFound,
  NETWORK_NOT_FOUND: exitCodes.notFound,
  POLICY_NOT_FOUND: exitCodes.notFound,
  SERVICE_NOT_FOUND: exitCodes.notFound,
  IMAGE_NOT_FOUND: exitCodes.notFound,
  INTERFACE_NOT_FOUND: exitCodes.notFound,
  DISK_NOT_FOUND: exitCodes.notFound,
  EXEC_NOT_FOUND: exitCodes.notFound,
  CONTAINER_NOT_FOUND: exitCodes.notFound,
  OVERLAY_NOT_FOUND: exitCodes.notFound,
  NETWORK_IN_USE: exitCodes.conflict,
  NETWORK_OVERLAP: exitCodes.conflict,
  ADDRESS_IN_USE: exitCodes.conflict,
  ADDRESS_RESERVED: exitCodes.conflict,
  NAME_IN_USE: exitCodes.conflict,
  PORT_IN_USE: exitCodes.conflict,
  MAC_IN_USE: exitCodes.conflict,
  REQUEST_CONFLICT: exitCodes.conflict,
  WRONG_STATE: exitCodes.conflict,
  QMP_IN_USE: exitCodes.conflict,
  IMAGE_IN_USE: exitCodes.conflict,
  SHARE_UNUSABLE: exitCodes.preflight,
  ALREADY_RUNNING: exitCodes.conflict,
  BRIDGE_CONFLICT: exitCodes.conflict,
  TAP_CONFLICT: exitCodes.conflict,
  OVERLAY_CONFLICT: exitCodes.conflict,
  NETNS_UNUSABLE: exitCodes.conflict,
  CHAIN_CONFLICT: exitCodes.conflict,
  SUBNET_TAKEN: exitCodes.conflict,
  OVERLAY_CONFIG_INVALID: exitCodes.preflight,
  PREFLIGHT_FAILED: exitCodes.preflight,
  CONFIG_INVALID: exitCodes.preflight,
  QEMU_MISSING: exitCodes.preflight,
  JAIL_FAILED: exitCodes.preflight,
  IMAGE_MISSING: exitCodes.preflight,
  IMAGE_UNREADABLE: exitCodes.preflight,
  STATE_UNWRITABLE: exitCodes.preflight,
  DEADLINE_EXCEEDED: exitCodes.timeout,
  AGENT_TIMEOUT: exitCodes.timeout,
  QMP_TIMEOUT: exitCodes.timeout,
};

/**
 * The exit code for an error; 1 unless it has one of its own, 128+n when signal n ended the
 * command.
 */
export function exitCodeOf(error: PodnetError): number {
  const { code, details } = error;
  if (code === "CANCELLED" && typeof details["signal"] === "number") {
    return exitCodes.signal + details["signal"];
  }
  return byCode[code] ?? exitCodes.failed;
}
