import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorCode, isErrorCode, PodnetError, toPodnetError } from "../core/errors.ts";
import { type ErrorInfo, ErrorInfoSchema } from "./gen/podnet/v1/error_pb.ts";

/** Which gRPC status each podnet code travels as; the podnet code itself travels in `ErrorInfo`. */
export const connectCodes: Readonly<Record<ErrorCode, Code>> = {
  INVALID_ARGUMENT: Code.InvalidArgument,
  UNKNOWN_FIELD: Code.InvalidArgument,
  ADDRESS_INVALID: Code.InvalidArgument,
  ADDRESS_OUT_OF_RANGE: Code.InvalidArgument,
  ADDRESS_RESERVED: Code.InvalidArgument,
  ADDRESS_IN_USE: Code.AlreadyExists,
  ADDRESS_NOT_ALLOCATED: Code.FailedPrecondition,
  POOL_EXHAUSTED: Code.ResourceExhausted,
  NAME_IN_USE: Code.AlreadyExists,
  PORT_IN_USE: Code.AlreadyExists,
  PORTS_EXHAUSTED: Code.ResourceExhausted,
  MAC_INVALID: Code.InvalidArgument,
  MAC_IN_USE: Code.AlreadyExists,
  MTU_OUT_OF_RANGE: Code.InvalidArgument,
  GATEWAY_CONFLICT: Code.InvalidArgument,
  MEMORY_TOO_SMALL: Code.InvalidArgument,
  REQUEST_CONFLICT: Code.AlreadyExists,
  POD_NOT_FOUND: Code.NotFound,
  NETWORK_NOT_FOUND: Code.NotFound,
  POLICY_NOT_FOUND: Code.NotFound,
  SERVICE_NOT_FOUND: Code.NotFound,
  IMAGE_NOT_FOUND: Code.NotFound,
  INTERFACE_NOT_FOUND: Code.NotFound,
  DISK_NOT_FOUND: Code.NotFound,
  EXEC_NOT_FOUND: Code.NotFound,
  CONTAINER_NOT_FOUND: Code.NotFound,
  NETWORK_IN_USE: Code.FailedPrecondition,
  NETWORK_OVERLAP: Code.FailedPrecondition,
  WRONG_STATE: Code.FailedPrecondition,
  UNSUPPORTED: Code.Unimplemented,
  PREFLIGHT_FAILED: Code.FailedPrecondition,
  CONFIG_INVALID: Code.FailedPrecondition,
  ALREADY_RUNNING: Code.FailedPrecondition,
  STATE_CORRUPT: Code.DataLoss,
  STATE_NEWER: Code.FailedPrecondition,
  STATE_UNWRITABLE: Code.FailedPrecondition,
  BRIDGE_CONFLICT: Code.FailedPrecondition,
  BRIDGE_FULL: Code.ResourceExhausted,
  TAP_CONFLICT: Code.FailedPrecondition,
  OVERLAY_CONFLICT: Code.FailedPrecondition,
  NETNS_UNUSABLE: Code.FailedPrecondition,
  CHAIN_CONFLICT: Code.FailedPrecondition,
  FIREWALL_FAILED: Code.Internal,
  NETLINK_FAILED: Code.Internal,
  SYSCALL_FAILED: Code.Internal,
  COMMAND_FAILED: Code.Internal,
  REGISTRY_UNREACHABLE: Code.Unavailable,
  REGISTRY_DENIED: Code.FailedPrecondition,
  REGISTRY_FAILED: Code.Internal,
  IMAGE_MISSING: Code.FailedPrecondition,
  IMAGE_UNREADABLE: Code.FailedPrecondition,
  IMAGE_IN_USE: Code.FailedPrecondition,
  SHARE_UNUSABLE: Code.FailedPrecondition,
  QEMU_MISSING: Code.FailedPrecondition,
  JAIL_FAILED: Code.FailedPrecondition,
  QEMU_EXITED: Code.Internal,
  QMP_FAILED: Code.Internal,
  QMP_PROTOCOL: Code.Internal,
  QMP_TIMEOUT: Code.DeadlineExceeded,
  QMP_IN_USE: Code.FailedPrecondition,
  NIC_SLOTS_FULL: Code.ResourceExhausted,
  NIC_UNPLUG_PENDING: Code.FailedPrecondition,
  BOOT_FAILED: Code.Internal,
  AGENT_TIMEOUT: Code.DeadlineExceeded,
  AGENT_PROTOCOL: Code.Internal,
  AGENT_REFUSED: Code.Internal,
  AGENT_DISCONNECTED: Code.Unavailable,
  HOST_RESTARTED: Code.FailedPrecondition,
  PROCESS_FAILED: Code.FailedPrecondition,
  ETCD_UNREACHABLE: Code.Unavailable,
  ETCD_DENIED: Code.FailedPrecondition,
  ETCD_COMPACTED: Code.OutOfRange,
  ETCD_LEASE_GONE: Code.FailedPrecondition,
  ETCD_FAILED: Code.Internal,
  KUBERNETES_UNREACHABLE: Code.Unavailable,
  KUBERNETES_DENIED: Code.FailedPrecondition,
  KUBERNETES_EXPIRED: Code.OutOfRange,
  KUBERNETES_CONFLICT: Code.Aborted,
  KUBERNETES_FAILED: Code.Internal,
  OVERLAY_NOT_FOUND: Code.NotFound,
  OVERLAY_NOT_READY: Code.Unavailable,
  OVERLAY_CONFIG_INVALID: Code.FailedPrecondition,
  SUBNET_TAKEN: Code.AlreadyExists,
  UNAUTHENTICATED: Code.Unauthenticated,
  PERMISSION_DENIED: Code.PermissionDenied,
  LIMIT_REACHED: Code.ResourceExhausted,
  EVENTS_LOST: Code.OutOfRange,
  CANCELLED: Code.Canceled,
  DEADLINE_EXCEEDED: Code.DeadlineExceeded,
  DAEMON_UNREACHABLE: Code.Unavailable,
  VERIFY_MISMATCH: Code.FailedPrecondition,
  INTERNAL: Code.Internal,
};

/**
 * What a status means when no `ErrorInfo` came with it: an answer by Connect itself, or by a proxy.
 */
const fallbackCodes: Readonly<Partial<Record<Code, ErrorCode>>> = {
  [Code.InvalidArgument]: "INVALID_ARGUMENT",
  [Code.ResourceExhausted]: "LIMIT_REACHED",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
  [Code.PermissionDenied]: "PERMISSION_DENIED",
  [Code.Unimplemented]: "UNSUPPORTED",
  [Code.Canceled]: "CANCELLED",
  [Code.Aborted]: "CANCELLED",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.Unavailable]: "DAEMON_UNREACHABLE",
};

/** An error as its wire form. */
export function toErrorInfo(error: PodnetError): ErrorInfo {
  return create(ErrorInfoSchema, {
    code: error.code,
    message: error.message,
    hint: error.hint ?? "",
    field: error.field ?? "",
    step: error.step ?? "",
    details: Object.fromEntries(Object.entries(error.details).map(([k, v]) => [k, String(v)])),
  });
}

/**
 * An error from its wire form. A code of a newer podnet becomes `INTERNAL` and is kept in the
 * details.
 */
export function fromErrorInfo(info: ErrorInfo, cause?: unknown): PodnetError {
  const known = isErrorCode(info.code);
  return new PodnetError(isErrorCode(info.code) ? info.code : "INTERNAL", info.message, {
    ...(info.hint === "" ? {} : { hint: info.hint }),
    ...(info.field === "" ? {} : { field: info.field }),
    ...(info.step === "" ? {} : { step: info.step }),
    details: known ? info.details : { ...info.details, code: info.code },
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * Anything thrown, as Connect sends it: status, message, and `ErrorInfo` as its one detail.
 * Connect's own errors, of a deadline that has passed say, keep their status.
 */
export function toConnectError(thrown: unknown): ConnectError {
  const own = thrown instanceof ConnectError ? thrown : undefined;
  if (own !== undefined && own.findDetails(ErrorInfoSchema).length > 0) return own;
  const error = own === undefined ? toPodnetError(thrown) : fromConnectError(own);
  return new ConnectError(
    error.message,
    own?.code ?? connectCodes[error.code],
    undefined,
    [{ desc: ErrorInfoSchema, value: toErrorInfo(error) }],
    thrown,
  );
}

/** Anything a client call threw, as the daemon meant it. */
export function fromConnectError(thrown: unknown): PodnetError {
  if (thrown instanceof PodnetError) return thrown;
  if (!(thrown instanceof ConnectError)) return toPodnetError(thrown);
  if (thrown.cause instanceof PodnetError) return thrown.cause;
  const info = thrown.findDetails(ErrorInfoSchema)[0];
  if (info !== undefined) return fromErrorInfo(info, thrown);
  const code = fallbackCodes[thrown.code] ?? "INTERNAL";
  return new PodnetError(code, thrown.rawMessage || "The call failed without a message", {
    cause: thrown,
    details: { status: thrown.code },
  });
}
