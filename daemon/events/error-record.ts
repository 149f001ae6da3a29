import { type ErrorCode, errorCodes, PodnetError, toPodnetError } from "../../core/errors.ts";
import { damaged, parseJson } from "../store/rows.ts";

/** An error as it is stored and sent to watchers. Plain JSON; causes stay in the log. */
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

/** Reads a record as it was stored. Throws `STATE_CORRUPT`. */
export function parseErrorRecord(text: string): ErrorRecord {
  const value = parseJson(text, "an error");
  if (!isErrorRecord(value)) throw damaged("an error is not as podnetd writes it");
  return value;
}

function isErrorRecord(value: unknown): value is ErrorRecord {
  if (typeof value !== "object" || value === null) return false;
  const { code, message, hint, field, step, details } = value as {
    readonly [Key in keyof ErrorRecord]?: unknown;
  };
  return (
    (errorCodes as readonly unknown[]).includes(code) &&
    typeof message === "string" &&
    [hint, field, step].every((each) => each === undefined || typeof each === "string") &&
    typeof details === "object" &&
    details !== null &&
    Object.values(details).every((each) => ["string", "number", "boolean"].includes(typeof each))
  );
}
