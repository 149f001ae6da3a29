import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorCode, isPodnetError, PodnetError } from "../core/errors.ts";

const hints: Readonly<Partial<Record<ErrorCode, string>>> = {
  ETCD_UNREACHABLE: "See whether etcd runs and has a leader, and whether this host reaches it",
  ETCD_DENIED: "See the certificates of both ends, and etcd's user, password and roles",
  ETCD_COMPACTED: "Read the keys again, and watch from there",
  ETCD_LEASE_GONE: "Ask for a new lease",
  ETCD_FAILED: "See etcd's log",
};

/** One of the errors of this room. */
export function etcdError(
  code: "ETCD_UNREACHABLE" | "ETCD_DENIED" | "ETCD_COMPACTED" | "ETCD_LEASE_GONE" | "ETCD_FAILED",
  message: string,
  details: PodnetError["details"] = {},
  cause?: unknown,
  hint = hints[code] ?? "",
): PodnetError {
  return new PodnetError(code, message, {
    hint,
    details,
    ...(cause === undefined ? {} : { cause }),
  });
}

/** etcd's errors by their messages: too many errors share a status. */
const words: readonly (readonly [said: RegExp, code: Parameters<typeof etcdError>[0]])[] = [
  [/required revision has been compacted/, "ETCD_COMPACTED"],
  [/requested lease not found/, "ETCD_LEASE_GONE"],
  [/permission denied|authentication failed|user name (?:is empty|not found)/, "ETCD_DENIED"],
  [/invalid auth token|revision of auth store is old/, "ETCD_DENIED"],
  [/no leader|leader changed|server stopped|request timed out|unhealthy/, "ETCD_UNREACHABLE"],
];

const statuses: Readonly<Partial<Record<Code, Parameters<typeof etcdError>[0]>>> = {
  [Code.Unauthenticated]: "ETCD_DENIED",
  [Code.PermissionDenied]: "ETCD_DENIED",
  // A broken connection is reported as any of these; only the caller cancels, and its signal is
  // checked first.
  [Code.Unavailable]: "ETCD_UNREACHABLE",
  [Code.DeadlineExceeded]: "ETCD_UNREACHABLE",
  [Code.Canceled]: "ETCD_UNREACHABLE",
  [Code.Aborted]: "ETCD_UNREACHABLE",
  [Code.Internal]: "ETCD_UNREACHABLE",
  [Code.Unknown]: "ETCD_UNREACHABLE",
};

/** Errors that etcd reports before anything is done. */
const notDone = /no leader|rpc not supported for learner/;

/** An error that etcd reports only as text, as at the end of a watch. */
export function saidError(text: string, details: PodnetError["details"] = {}): PodnetError {
  const code = words.find(([said]) => said.test(text))?.[1] ?? "ETCD_FAILED";
  return etcdError(code, `etcd said: ${text}`, details);
}

/**
 * Converts an error of a call to podnet's own: `write` when the call may have changed something.
 */
export function callError(thrown: unknown, endpoint: string, write: boolean): PodnetError {
  if (thrown instanceof PodnetError) return thrown;
  const { code: status, rawMessage } = ConnectError.from(thrown);
  const code =
    words.find(([said]) => said.test(rawMessage))?.[1] ?? statuses[status] ?? "ETCD_FAILED";
  const uncertain = code === "ETCD_UNREACHABLE" && write && !notDone.test(rawMessage);
  const details = { endpoint, status: Code[status], ...(uncertain ? { uncertain } : {}) };
  return etcdError(code, `etcd at ${endpoint}: ${rawMessage || Code[status]}`, details, thrown);
}

/**
 * Whether a new token may help: this one is of before a restart, or of before a change of users.
 */
export const isTokenRefused = (thrown: unknown): boolean =>
  isPodnetError(thrown, "ETCD_DENIED") &&
  (thrown.details["status"] === Code[Code.Unauthenticated] ||
    /invalid auth token|revision of auth store is old/.test(thrown.message));

/** Why a connection could not be made. */
export function connectionError(thrown: unknown, endpoint: string): PodnetError {
  const errno =
    thrown instanceof Error && "code" in thrown && typeof thrown.code === "string"
      ? thrown.code
      : "";
  const code = /SSL|TLS|CERT|SIGNATURE|ISSUER/.test(errno) ? "ETCD_DENIED" : "ETCD_UNREACHABLE";
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  // OpenSSL's words between numbers and lines of its own source.
  const reason = /SSL routines:[^:]*:([^:]+)/.exec(message)?.[1] ?? message;
  return etcdError(code, `etcd at ${endpoint}: ${reason}`, { endpoint, errno }, thrown);
}

/** Several endpoints, each with its reason; denied only when all of them say so. */
export function togetherError(failures: readonly PodnetError[]): PodnetError {
  const denied = failures.every((failure) => isPodnetError(failure, "ETCD_DENIED"));
  const uncertain = failures.some(({ details }) => details["uncertain"] === true);
  return etcdError(
    denied ? "ETCD_DENIED" : "ETCD_UNREACHABLE",
    `No etcd answered: ${failures.map(({ message }) => message).join("; ")}`,
    { endpoints: failures.length, ...(uncertain ? { uncertain } : {}) },
    failures.at(-1),
  );
}
