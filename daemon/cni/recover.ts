import { toPodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { HeldPorts } from "../ports/held-ports.ts";
import type { AttachmentRow } from "../store/attachments.ts";
import { type AttachmentPlan, portsToHold } from "./attachment-plan.ts";
import type { Departures } from "./departures.ts";
import { isNamespace } from "./namespace.ts";
import type { AttachmentRecords } from "./records.ts";
import type { ReadyAttachments } from "./ready.ts";

export interface RecoverParts {
  readonly records: AttachmentRecords;
  readonly published: Pick<HeldPorts, "adopt" | "missing">;
  readonly ready: ReadyAttachments;
  readonly departures: Departures;
  readonly log: Log;
  /** A plan as its network is now, written down where it is another. */
  refit(plan: AttachmentPlan): AttachmentPlan;
}

/** Attachments put right at a time. */
const together = 16;

/**
 * After a start, before anybody asks: half ADDs are undone, half DELs gone through with, and what is ready is as it should
 * be. What cannot be put right is told of, and looked at again by drift repair.
 */
export async function recoverAttachments(
  parts: RecoverParts,
  sameBoot: boolean,
  signal: AbortSignal,
): Promise<void> {
  const waiting = parts.records.list().values();
  const worker = async (): Promise<void> => {
    for (const row of waiting) await recoverOne(row, parts, sameBoot, signal);
  };
  await Promise.all(Array.from({ length: together }, worker));
  await parts.departures.bury();
}

async function recoverOne(
  row: AttachmentRow,
  parts: RecoverParts,
  sameBoot: boolean,
  signal: AbortSignal,
): Promise<void> {
  const container = { container: row.containerId };
  try {
    const lives = row.state === "ready" && sameBoot && isNamespace(row.netns);
    if (lives) await takeOver(row, parts, signal);
    else await parts.departures.detach(row, whyGone(row, sameBoot));
  } catch (err) {
    parts.log.error({ ...container, err }, "The container's network cannot be put right yet");
  }
}

async function takeOver(
  row: AttachmentRow,
  { published, ready, refit, log }: RecoverParts,
  signal: AbortSignal,
): Promise<void> {
  const plan = refit(row.plan);
  const container = { container: row.containerId };
  await published.adopt(row.id, portsToHold(plan));
  const missing = published.missing(row.id);
  if (missing !== undefined)
    log.error({ ...container, err: missing }, "A published port is not held");
  ready.enter(plan);
  const options = { heal: () => true, linksOnly: false, inside: true };
  const { error } = await ready.inspect(row.id, options, signal);
  if (error !== undefined) throw toPodnetError(error);
}

function whyGone({ state }: AttachmentRow, sameBoot: boolean): string {
  if (!sameBoot) return "the host was restarted";
  return state === "ready" ? "its namespace is gone" : "podnetd ended meanwhile";
}
