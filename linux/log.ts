import { pino, stdSerializers, type DestinationStream, type Logger } from "pino";
import { isPodnetError } from "../core/errors.ts";
import { shown, shownLines } from "../core/shown.ts";

/** Optional fields of every line in addition to its time, level, message and component. */
export interface LogFields {
  readonly pod_id?: string;
  /** Step of a plan, e.g. `nic.plug`. */
  readonly step?: string;
  readonly duration_ms?: number;
  /** A `PodnetError` is written with its code, hint and details. */
  readonly err?: unknown;
  readonly [field: string]: unknown;
}

/** From the lowest; a log writes lines of its level and of those behind it. */
const levels = ["trace", "debug", "info", "warn", "error", "silent"] as const;

export type LogLevel = (typeof levels)[number];

export interface Log {
  debug(fields: LogFields, msg: string): void;
  info(fields: LogFields, msg: string): void;
  warn(fields: LogFields, msg: string): void;
  error(fields: LogFields, msg: string): void;
  /** A log with fields that every line of it carries. */
  with(fields: LogFields): Log;
}

/** Where lines go: standard error's descriptor, a file's, or anything with `write`. */
export interface LogOptions {
  readonly component: string;
  /** `info` unless given; a threshold's level may change at any time. */
  readonly level?: LogLevel | LogThreshold;
  /**
   * A descriptor or a stream; standard error unless given. Written synchronously: a crash loses no
   * line.
   */
  readonly to?: number | DestinationStream;
}

/** The level of all logs that are opened with it. */
export class LogThreshold {
  level: LogLevel;

  constructor(level: LogLevel) {
    this.level = level;
  }

  /** Whether lines of a level are written now. */
  passes(level: LogLevel): boolean {
    return levels.indexOf(level) >= levels.indexOf(this.level);
  }
}

/**
 * A log of one JSON object per line: `time` (ISO 8601, UTC), `level` (a word), `msg`, `component`,
 * and what each line adds (`pod_id`, `step`, `duration_ms`, …).
 */
export function openLog(options: LogOptions): Log {
  const to = options.to ?? 2;
  const { level = "info" } = options;
  const threshold = typeof level === "string" ? new LogThreshold(level) : level;
  const destination = typeof to === "number" ? pino.destination({ fd: to, sync: true }) : to;
  const logger = pino(
    {
      // (A child of pino's keeps the level that its parent had; the threshold is everybody's.)
      level: "trace",
      base: { component: options.component },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (level) => ({ level }) },
      serializers: { err: serializeError },
    },
    destination,
  );
  return new PinoLog(logger, threshold);
}

class PinoLog implements Log {
  readonly #logger: Logger;
  readonly #threshold: LogThreshold;

  constructor(logger: Logger, threshold: LogThreshold) {
    this.#logger = logger;
    this.#threshold = threshold;
  }

  debug(fields: LogFields, msg: string): void {
    if (this.#threshold.passes("debug")) this.#logger.debug(shownFields(fields), shown(msg));
  }

  info(fields: LogFields, msg: string): void {
    if (this.#threshold.passes("info")) this.#logger.info(shownFields(fields), shown(msg));
  }

  warn(fields: LogFields, msg: string): void {
    if (this.#threshold.passes("warn")) this.#logger.warn(shownFields(fields), shown(msg));
  }

  error(fields: LogFields, msg: string): void {
    if (this.#threshold.passes("error")) this.#logger.error(shownFields(fields), shown(msg));
  }

  with(fields: LogFields): Log {
    return new PinoLog(this.#logger.child(shownFields(fields)), this.#threshold);
  }
}

/** Deeper than that a field is not followed. */
const depthLimit = 4;

/**
 * Makes fields safe for a log, since their texts may be foreign: JSON alone would keep C1 controls,
 * characters that reverse the direction of a line, and megabytes. Errors are shown separately,
 * below.
 */
function shownFields<T extends object>(fields: T, depth = 0): T {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [shown(key), shownField(value, depth)]),
  ) as T;
}

function shownField(value: unknown, depth: number): unknown {
  if (typeof value === "string") return shown(value);
  if (typeof value !== "object" || value === null || value instanceof Error) return value;
  if (depth >= depthLimit) return "…";
  return Array.isArray(value)
    ? value.slice(0, 256).map((each) => shownField(each, depth + 1))
    : shownFields(value, depth + 1);
}

function plainError(error: Error): unknown {
  const { type, message, stack } = stdSerializers.err(error);
  return { type, message: shown(message), stack: shownLines(stack) };
}

function serializeError(error: unknown): unknown {
  if (!isPodnetError(error))
    return error instanceof Error ? plainError(error) : { message: shown(String(error)) };
  const { code, message, hint, field, step, details, cause } = error;
  return {
    code,
    message,
    hint,
    field,
    step,
    details,
    ...(cause === undefined ? {} : { cause: serializeError(cause) }),
  };
}
