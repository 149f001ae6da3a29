import { type ErrorCode, type PodnetError, toPodnetError } from "../../core/errors.ts";
import { cniError } from "./refusal.ts";

/**
 * CNI's number for each of podnet's codes, where the error does not bring one: standard where the
 * protocol has a word for it, of podnet's own (100 and above) otherwise. They are promised to
 * runtimes: add, never renumber.
 */
const numbers: Readonly<Partial<Record<ErrorCode, number>>> = {
  DAEMON_UNREACHABLE: cniError.tryLater,
  ETCD_UNREACHABLE: cniError.tryLater,
  OVERLAY_NOT_READY: cniError.tryLater,
  DEADLINE_EXCEEDED: cniError.tryLater,
  CANCELLED: cniError.tryLater,
  LIMIT_REACHED: cniError.tryLater,
  INVALID_ARGUMENT: cniError.config,
  UNKNOWN_FIELD: cniError.config,
  ADDRESS_INVALID: cniError.config,
  MAC_INVALID: cniError.config,
  MTU_OUT_OF_RANGE: cniError.config,
  UNSUPPORTED: cniError.field,
  NETNS_UNUSABLE: cniError.netns,
  ADDRESS_OUT_OF_RANGE: 100,
  ADDRESS_RESERVED: 101,
  ADDRESS_IN_USE: 102,
  ADDRESS_NOT_ALLOCATED: 103,
  POOL_EXHAUSTED: 104,
  NAME_IN_USE: 105,
  PORT_IN_USE: 106,
  PORTS_EXHAUSTED: 107,
  MAC_IN_USE: 108,
  NETWORK_NOT_FOUND: 109,
  INTERFACE_NOT_FOUND: 110,
  REQUEST_CONFLICT: 111,
  WRONG_STATE: 112,
  BRIDGE_CONFLICT: 120,
  BRIDGE_FULL: 121,
  OVERLAY_CONFLICT: 122,
  FIREWALL_FAILED: 123,
  NETLINK_FAILED: 125,
  SYSCALL_FAILED: 126,
  COMMAND_FAILED: 127,
  VERIFY_MISMATCH: 130,
  UNAUTHENTICATED: 140,
  PERMISSION_DENIED: 141,
  STATE_UNWRITABLE: 150,
  STATE_CORRUPT: 151,
};

/** CNI's number for an error. */
export function cniNumber(error: PodnetError): number {
  const own = error.details["cni"];
  return typeof own === "number" ? own : (numbers[error.code] ?? cniError.unclassified);
}

/**
 * An error as a plugin writes it to standard output, equal in every version; like the reference
 * plugins it names no version. `details` has podnet's code, the field at fault and a hint.
 */
export function renderError(thrown: unknown): string {
  const error = toPodnetError(thrown);
  const about = [error.code, error.field, error.step].filter((part) => part !== undefined);
  const details = [about.join(" "), error.hint].filter((part) => part !== undefined).join(": ");
  return JSON.stringify({ code: cniNumber(error), msg: error.message, details });
}
