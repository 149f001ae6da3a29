import { type Logger, destination, pino } from "pino";
import { isPodnetError } from "../core/errors.ts";

export type Log = Logger;

/** An error for the log: code and hint beside what any error has, causes included, guest text escaped by JSON. */
function errorFields(thrown: unknown): unknown {
  if (!(thrown instanceof Error)) return { message: String(thrown) };
  return {
    ...(isPodnetError(thrown)
      ? {
          code: thrown.code,
          hint: thrown.hint,
          field: thrown.field,
          step: thrown.step,
          details: thrown.details,
        }
      : { type: thrown.name }),
    message: thrown.message,
    // The stack of an expected failure says where it was noticed, not why; INTERNAL ones are bugs.
    ...(isPodnetError(thrown) && thrown.code !== "INTERNAL" ? {} : { stack: thrown.stack }),
    ...(thrown.cause === undefined ? {} : { cause: errorFields(thrown.cause) }),
    ...(thrown instanceof AggregateError ? { errors: thrown.errors.map(errorFields) } : {}),
  };
}

/** JSON lines on standard error, one write each, so that none is lost when the process is killed. */
export function createLog(level: string): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: errorFields },
    },
    destination({ fd: 2, sync: true }),
  );
}
