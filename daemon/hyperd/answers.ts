import type { ErrorCode, PodnetError } from "../../core/errors.ts";

/** An answer, whole. */
export interface Answer {
  readonly status: number;
  readonly type: "application/json" | "text/plain; charset=utf-8";
  readonly body: string;
}

/** JSON as Go's encoder ends it. */
export const json = (value: unknown, status = 200): Answer => ({
  status,
  type: "application/json",
  body: `${JSON.stringify(value)}\n`,
});

/** What hyperd builds of keys and values: its keys are in order. */
export const env = (values: Readonly<Record<string, unknown>>, status = 200): Answer =>
  json(Object.fromEntries(Object.entries(values).toSorted(([a], [b]) => (a < b ? -1 : 1))), status);

/** How hyperd reports that something was done; `code` is runv's. */
export const done = (id: string, status = 200, code = 0): Answer =>
  env({ ID: id, Code: code, Cause: "" }, status);

export const nothing: Answer = { status: 204, type: "text/plain; charset=utf-8", body: "" };

export const plain = (body: string, status = 200): Answer => ({
  status,
  type: "text/plain; charset=utf-8",
  body,
});

/**
 * hyperd's statuses: 404 for what hyperctl goes on after, which pulls an image and creates again.
 * What hyperd does not have, roles and limits, has the status of HTTP.
 */
const statuses: Readonly<Partial<Record<ErrorCode, number>>> = {
  IMAGE_NOT_FOUND: 404,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  LIMIT_REACHED: 429,
};

/** An error as hyperd sends it: a sentence in plain text. podnet's code and hint are below it. */
export function errorAnswer({ code, message, hint, details }: PodnetError): Answer {
  const status = details["limit"] === "request_bytes" ? 413 : (statuses[code] ?? 500);
  return plain(`${message}\n${code}${hint === undefined ? "" : `: ${hint}`}\n`, status);
}
