import type { ErrorCode, PodnetError } from "../../core/errors.ts";

/** An answer, whole or piece by piece. */
export interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string | AsyncIterable<Uint8Array>;
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

export const plain = (body: string, status = 200): Answer => ({
  status,
  type: "text/plain; charset=utf-8",
  body,
});

export const nothing = plain("", 204);

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
export const errorAnswer = (error: PodnetError): Answer =>
  plain(
    errorText(error),
    error.details["limit"] === "request_bytes" ? 413 : (statuses[error.code] ?? 500),
  );

export const errorText = ({ code, message, hint }: PodnetError): string =>
  `${message}\n${code}${hint === undefined ? "" : `: ${hint}`}\n`;
