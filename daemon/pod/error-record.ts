import { type ErrorCode, PodnetError, toPodnetError } from "../../core/errors.ts";

/** An error as it is stored and told to watchers. Plain JSON; causes stay in the log. */
export interface ErrorRecord {
  readonly code: ErrorCode;
  readonly message: string;
  readonly hint?: string;
  readonly field?: string;
  readonly step?: string;
  readonly details: Readonly<Record<string, string | number | boolean>>;
}

export function recordError(thrown: unknown): ErrorRecord {
  const { code, message, hint, field, step, details } = toPodnetError(thrown);
  return {
    code,
    message,
    ...(hint === undefined ? {} : { hint }),
    ...(field === undefined ? {} : { field }),
    ...(step === undefined ? {} : { step }),
    details,
  };
}

/** The error a record was made of, without its cause. */
export function errorFromRecord(record: ErrorRecord): PodnetError {
  const { code, message, ...context } = record;
  return new PodnetError(code, message, context);
}
