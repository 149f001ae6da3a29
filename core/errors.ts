import { shown, shownLines } from "./shown.ts";

/**
 * Every failure podnet reports has one of these codes; `docs/reference/errors.md` explains each.
 * The code is stable and machine-readable, the message is for people.
 */
export const errorCodes = [
  // The caller's request is wrong.
  "INVALID_ARGUMENT",
  "UNKNOWN_FIELD",
  "ADDRESS_INVALID",
  "ADDRESS_OUT_OF_RANGE",
  "ADDRESS_RESERVED",
  "ADDRESS_IN_USE",
  "ADDRESS_NOT_ALLOCATED",
  "POOL_EXHAUSTED",
  "NAME_IN_USE",
  "PORT_IN_USE",
  "PORTS_EXHAUSTED",
  "MAC_INVALID",
  "MAC_IN_USE",
  "MTU_OUT_OF_RANGE",
  "GATEWAY_CONFLICT",
  "MEMORY_TOO_SMALL",
  "REQUEST_CONFLICT",
  "POD_NOT_FOUND",
  "NETWORK_NOT_FOUND",
  "POLICY_NOT_FOUND",
  "SERVICE_NOT_FOUND",
  "IMAGE_NOT_FOUND",
  "INTERFACE_NOT_FOUND",
  "DISK_NOT_FOUND",
  "EXEC_NOT_FOUND",
  "CONTAINER_NOT_FOUND",
  "NETWORK_IN_USE",
  "NETWORK_OVERLAP",
  "WRONG_STATE",
  "UNSUPPORTED",
  // The host is not as podnet needs it.
  "PREFLIGHT_FAILED",
  "CONFIG_INVALID",
  "ALREADY_RUNNING",
  "STATE_CORRUPT",
  "STATE_NEWER",
  "STATE_UNWRITABLE",
  "BRIDGE_CONFLICT",
  "BRIDGE_FULL",
  "TAP_CONFLICT",
  "OVERLAY_CONFLICT",
  "NETNS_UNUSABLE",
  "CHAIN_CONFLICT",
  "FIREWALL_FAILED",
  "NETLINK_FAILED",
  "SYSCALL_FAILED",
  "COMMAND_FAILED",
  // The virtual machine or its agent misbehaves.
  "IMAGE_MISSING",
  "IMAGE_UNREADABLE",
  "IMAGE_IN_USE",
  "SHARE_UNUSABLE",
  "REGISTRY_UNREACHABLE",
  "REGISTRY_DENIED",
  "REGISTRY_FAILED",
  "QEMU_MISSING",
  "JAIL_FAILED",
  "QEMU_EXITED",
  "QMP_FAILED",
  "QMP_PROTOCOL",
  "QMP_TIMEOUT",
  "QMP_IN_USE",
  "NIC_SLOTS_FULL",
  "NIC_UNPLUG_PENDING",
  "BOOT_FAILED",
  "AGENT_TIMEOUT",
  "AGENT_PROTOCOL",
  "AGENT_REFUSED",
  "AGENT_DISCONNECTED",
  "HOST_RESTARTED",
  "PROCESS_FAILED",
  // etcd is not there, or not as podnet needs it.
  "ETCD_UNREACHABLE",
  "ETCD_DENIED",
  "ETCD_COMPACTED",
  "ETCD_LEASE_GONE",
  "ETCD_FAILED",
  // Kubernetes' API server is not there, or not as podnet needs it.
  "KUBERNETES_UNREACHABLE",
  "KUBERNETES_DENIED",
  "KUBERNETES_EXPIRED",
  "KUBERNETES_CONFLICT",
  "KUBERNETES_FAILED",
  // Many hosts.
  "OVERLAY_NOT_FOUND",
  "OVERLAY_NOT_READY",
  "OVERLAY_CONFIG_INVALID",
  "SUBNET_TAKEN",
  // General.
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "LIMIT_REACHED",
  "EVENTS_LOST",
  "CANCELLED",
  "DEADLINE_EXCEEDED",
  "DAEMON_UNREACHABLE",
  "VERIFY_MISMATCH",
  "INTERNAL",
] as const;

export type ErrorCode = (typeof errorCodes)[number];

export const isErrorCode = (text: string): text is ErrorCode =>
  (errorCodes as readonly string[]).includes(text);

export interface ErrorContext {
  /** The remedy, as an instruction. */
  readonly hint?: string;
  /** The request field or configuration key at fault, e.g. `interfaces[0].mac`. */
  readonly field?: string;
  /** The step of a plan that failed, e.g. `nic.plug`. */
  readonly step?: string;
  /** Machine-readable particulars (errno, holder, wanted and found values). */
  readonly details?: Readonly<Record<string, string | number | boolean>>;
  readonly cause?: unknown;
}

/**
 * The one error class: a stable code, a message in sentence case, and what to do. Its texts may
 * quote what guests, callers and commands said: here, once for all, they become what may be shown
 * (`shown`), and of bounded length.
 */
export class PodnetError extends Error {
  override readonly name = "PodnetError";
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly field: string | undefined;
  readonly step: string | undefined;
  readonly details: Readonly<Record<string, string | number | boolean>>;

  constructor(code: ErrorCode, message: string, context: ErrorContext = {}) {
    super(shown(message), context.cause === undefined ? undefined : { cause: context.cause });
    this.code = code;
    this.hint = context.hint === undefined ? undefined : shown(context.hint);
    this.field = context.field === undefined ? undefined : shown(context.field);
    this.step = context.step === undefined ? undefined : shown(context.step);
    this.details = shownDetails(context.details ?? {});
  }

  /**
   * Adds context to an error; what is already there wins, so the innermost place speaks.
   */
  with(context: ErrorContext): PodnetError {
    const merged = new PodnetError(this.code, this.message, {
      ...context,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
      ...(this.field === undefined ? {} : { field: this.field }),
      ...(this.step === undefined ? {} : { step: this.step }),
      details: { ...context.details, ...this.details },
      cause: this.cause ?? context.cause,
    });
    if (this.stack !== undefined) merged.stack = this.stack;
    return merged;
  }
}

/** Details may have lines: the end of a console has. */
function shownDetails(details: NonNullable<ErrorContext["details"]>): typeof details {
  return Object.fromEntries(
    Object.entries(details).map(([key, value]) => [
      shown(key),
      typeof value === "string" ? shownLines(value) : value,
    ]),
  );
}

/** Turns anything thrown into a `PodnetError`, keeping the original as its cause. */
export function toPodnetError(thrown: unknown, fallback: ErrorCode = "INTERNAL"): PodnetError {
  if (thrown instanceof PodnetError) return thrown;
  if (thrown instanceof Error) {
    const code = thrown.name === "AbortError" ? "CANCELLED" : fallback;
    return new PodnetError(code, thrown.message, { cause: thrown });
  }
  return new PodnetError(fallback, String(thrown), { cause: thrown });
}

/** Narrows to a `PodnetError`, of one of the given codes when any are given. */
export function isPodnetError(
  thrown: unknown,
  ...codes: readonly ErrorCode[]
): thrown is PodnetError {
  return thrown instanceof PodnetError && (codes.length === 0 || codes.includes(thrown.code));
}
