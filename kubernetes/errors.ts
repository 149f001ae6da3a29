import { type ErrorCode, PodnetError } from "../core/errors.ts";
import { cutText, shown } from "../core/shown.ts";
import { fieldOf, parseJson, textOf } from "./json.ts";

/** The errors of this module. */
export type KubernetesCode = Extract<ErrorCode, `KUBERNETES_${string}`>;

const hints: Readonly<Record<KubernetesCode, string>> = {
  KUBERNETES_UNREACHABLE:
    "See whether the API server runs, and whether this host reaches it at the address in the kubeconfig",
  KUBERNETES_DENIED:
    "See the authority, certificate or token that podnetd uses, and the RBAC rules of its user",
  KUBERNETES_EXPIRED: "List the objects again, and watch from there",
  KUBERNETES_CONFLICT: "Read the object again, and decide anew",
  KUBERNETES_FAILED: "See the API server's log",
};

/** One of the errors of this module. */
export const kubernetesError = (
  code: KubernetesCode,
  message: string,
  {
    details = {},
    cause,
    hint = hints[code],
  }: {
    readonly details?: PodnetError["details"];
    readonly cause?: unknown;
    readonly hint?: string;
  } = {},
): PodnetError =>
  new PodnetError(code, message, { hint, details, ...(cause === undefined ? {} : { cause }) });

const statusCodes: Readonly<Partial<Record<number, KubernetesCode>>> = {
  401: "KUBERNETES_DENIED",
  403: "KUBERNETES_DENIED",
  409: "KUBERNETES_CONFLICT",
  410: "KUBERNETES_EXPIRED",
  // The API server is overloaded, is starting, or a proxy before it has lost it.
  429: "KUBERNETES_UNREACHABLE",
  502: "KUBERNETES_UNREACHABLE",
  503: "KUBERNETES_UNREACHABLE",
  504: "KUBERNETES_UNREACHABLE",
};

/**
 * A version that the API server has not reached: its data were restored from an older copy. Waiting
 * for it could take for ever, so it is as good as expired.
 */
const restored = /too large resource version/i;

/** Longest that a server may keep its callers away, milliseconds. */
const longestRetryMs = 300_000;

/** When a server that is busy wants to be asked again; undefined where it does not say. */
export const retryAfterOf = (error: unknown): number | undefined => {
  const ms = error instanceof PodnetError ? error.details["retryAfterMs"] : undefined;
  return typeof ms === "number" ? ms : undefined;
};

/** Seconds of a server as milliseconds; undefined for what is no such number. */
const retryMs = (seconds: number): number | undefined =>
  seconds > 0 ? Math.min(longestRetryMs, Math.ceil(seconds * 1000)) : undefined;

/**
 * The error of an answer that is not a success; `body` is a `Status` object, or any text, and
 * `retryAfter` the header. (API servers write seconds: a date would need clocks that agree.)
 */
export function answerError(
  status: number,
  body: string,
  what: string,
  retryAfter = "",
): PodnetError {
  const ofHeader = /^\d{1,9}$/.test(retryAfter) ? retryMs(Number(retryAfter)) : undefined;
  return statusError(parseJson(body), status, what, { text: body.trim(), retryAfterMs: ofHeader });
}

/** The error that a `Status` object describes, as the body of an answer or in a watch. */
export function statusError(
  object: unknown,
  otherwise: number,
  what: string,
  {
    text = "",
    retryAfterMs,
  }: { readonly text?: string; readonly retryAfterMs?: number | undefined } = {},
): PodnetError {
  const seconds = fieldOf(fieldOf(object, "details"), "retryAfterSeconds");
  const again = retryAfterMs ?? (typeof seconds === "number" ? retryMs(seconds) : undefined);
  const number = fieldOf(object, "code");
  const status = typeof number === "number" && Number.isInteger(number) ? number : otherwise;
  const reason = foreign(textOf(object, "reason") ?? "");
  const message = textOf(object, "message") ?? text;
  const code = restored.test(message)
    ? "KUBERNETES_EXPIRED"
    : (statusCodes[status] ?? "KUBERNETES_FAILED");
  const said = message === "" ? `status ${status}` : foreign(message);
  return kubernetesError(code, `Kubernetes' API server cannot ${what}: ${said}`, {
    details: { status, reason, ...(again === undefined ? {} : { retryAfterMs: again }) },
  });
}

/** Errors of a certificate's time, which are as often those of a clock. */
const dated = /CERT_NOT_YET_VALID|CERT_HAS_EXPIRED/;
const ofTime = "See this host's clock; if it is right, the API server needs another certificate";

/** The other end's text, as one line that a terminal can be given. */
const foreign = (text: string): string => shown(cutText(text, 1024).replaceAll(/\s+/g, " "), 1024);

/** The error of a connection that could not be made, or broke. */
export function connectionError(thrown: unknown, server: string): PodnetError {
  if (thrown instanceof PodnetError) return thrown;
  const errno =
    thrown instanceof Error && "code" in thrown && typeof thrown.code === "string"
      ? thrown.code
      : "";
  const untrusted = /SSL|TLS|CERT|SIGNATURE|ISSUER|INVALID_CHAR/.test(errno);
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  // OpenSSL's reason stands between numbers and lines of its own source.
  const reason = /SSL routines:[^:]*:([^:]+)/.exec(message)?.[1] ?? message;
  return kubernetesError(
    untrusted ? "KUBERNETES_DENIED" : "KUBERNETES_UNREACHABLE",
    `Kubernetes' API server at ${server}: ${foreign(reason)}`,
    {
      details: { server, errno },
      ...(dated.test(errno) ? { hint: ofTime } : {}),
      cause: thrown,
    },
  );
}
