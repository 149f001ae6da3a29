import { assertNever } from "../../core/brand.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import { type Deviation, deviationText } from "../../network/model/deviation.ts";
import type { Journal } from "../events/journal.ts";
import { recordError } from "../events/error-record.ts";
import type { DriftData } from "../events/store.ts";
import type { OverlayPart, Part } from "./parts.ts";

/**
 * Most deviations that an event names; a flushed firewall has a handful, a badly damaged host any
 * number.
 */
const namedMost = 32;

export interface DriftReport {
  readonly part: Part | OverlayPart;
  readonly found: readonly Deviation[];
  /** Why it is not put right. */
  readonly error?: PodnetError | undefined;
  /** It keeps being undone, and is left alone for so long, milliseconds; 0 as a rule. */
  readonly pauseMs: number;
}

/** Counts changes that others made to the host, and whether they were repaired. */
interface DriftMetrics {
  drift(kind: (Part | OverlayPart)["kind"], outcome: "healed" | "failed", alarm: boolean): void;
}

export interface Reporting {
  readonly journal: Journal;
  readonly log: Log;
  readonly metrics: DriftMetrics;
}

/** Reports drift in the journal, in the log and in the metrics. */
export function reportDrift(report: DriftReport, { journal, log, metrics }: Reporting): void {
  const { part, found, error, pauseMs } = report;
  const healed = error === undefined;
  const drift: DriftData = { part: part.key, found: found.slice(0, namedMost), healed, pauseMs };
  const text = driftText(report);
  const named = namesOf(part);
  const level = healed && pauseMs === 0 ? "warn" : "error";
  log[level](
    { ...named, drift: drift.found, ...(error === undefined ? {} : { err: error }) },
    text,
  );
  metrics.drift(part.kind, healed ? "healed" : "failed", pauseMs > 0);
  journal.emit({
    kind: "drift",
    ...(part.kind === "port" || part.kind === "join"
      ? { podId: part.podId, podName: part.podName }
      : {}),
    data: { text, drift, ...(error === undefined ? {} : { error: recordError(error) }) },
  });
}

function namesOf(part: Part | OverlayPart): Readonly<Record<string, string>> {
  switch (part.kind) {
    case "network":
      return { network: part.fragment.key };
    case "services":
      return {};
    case "overlay":
      return { overlay: part.name };
    case "port":
    case "join":
      return { pod_id: part.podId };
    case "attachment":
      return { container: part.containerId };
    default:
      return assertNever(part);
  }
}

/** The drift that was found, and the result of its repair, in one line. Pure. */
function driftText({ part, found, error, pauseMs }: DriftReport): string {
  const [first] = found;
  const more = found.length > 1 ? `, and ${found.length - 1} more` : "";
  const what = first === undefined ? part.key : `${part.key}: ${deviationText(first)}${more}`;
  if (error !== undefined) return `${what}; not healed: ${error.message}`;
  if (pauseMs === 0) return `${what}; healed`;
  return `${what}; healed, but something keeps undoing it: next time in ${pauseMs / 1000} s`;
}
