import { toPodnetError } from "../../core/errors.ts";
import type { BootMoment } from "../../linux/processes/boot-moment.ts";
import type { Log } from "../../linux/log.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import { type AttachmentRow, isDamagedAttachment } from "./attachment-rows.ts";
import type { AnyAttachment } from "./store.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import { type AttachmentPlan, inNamespace, portsToHold } from "./attachment-plan.ts";
import type { TeardownQueue } from "./teardown-queue.ts";
import { identified, whyLost } from "./namespace.ts";
import type { AttachmentRecords } from "./records.ts";
import type { ReadyAttachments } from "./ready.ts";

export interface RecoverParts {
  readonly network: Pick<AttachmentNetwork, "identify">;
  readonly records: AttachmentRecords;
  readonly published: Pick<HeldPorts, "adopt" | "missing">;
  readonly ready: ReadyAttachments;
  readonly teardowns: TeardownQueue;
  readonly moment: () => BootMoment;
  readonly log: Log;
}

const refused = "The container's record is damaged: nothing is done for it until it is removed";

/** Attachments put right at a time. */
const together = 16;

/**
 * Recovers containers after a start, before podnetd serves requests: unfinished ADDs are undone,
 * unfinished DELs are completed, and ready containers are repaired. What cannot be repaired is
 * reported, and drift repair retries it.
 */
export async function recoverAttachments(
  parts: RecoverParts,
  sameBoot: boolean,
  signal: AbortSignal,
): Promise<void> {
  const waiting = parts.records.listAny().values();
  const worker = async (): Promise<void> => {
    for (const row of waiting) await recoverOne(row, parts, sameBoot, signal);
  };
  await Promise.all(Array.from({ length: together }, worker));
  await parts.teardowns.sweep();
}

async function recoverOne(
  row: AnyAttachment,
  parts: RecoverParts,
  sameBoot: boolean,
  signal: AbortSignal,
): Promise<void> {
  const container = { container: row.containerId };
  try {
    const gone = whyGone(row, parts, sameBoot);
    if (gone !== undefined) await parts.teardowns.detach(row, gone);
    // The desired state of a damaged record's links is unknown, so they stay as they are.
    else if (isDamagedAttachment(row)) parts.log.error({ ...container, err: row.damage }, refused);
    else await takeOver(row, parts, signal);
  } catch (err) {
    parts.log.error({ ...container, err }, "The container's network cannot be put right yet");
  }
}

async function takeOver(
  row: AttachmentRow,
  parts: RecoverParts,
  signal: AbortSignal,
): Promise<void> {
  const { published, ready, log, moment } = parts;
  const plan = identifiedPlan(row, parts);
  const container = { container: row.containerId };
  await published.adopt(row.id, portsToHold(plan));
  const missing = published.missing(row.id);
  if (missing !== undefined)
    log.error({ ...container, err: missing }, "A published port is not held");
  ready.enter(plan, { ageMs: ageOf(plan, moment()) });
  const options = { heal: () => true, linksOnly: false, inside: true };
  const { error } = await ready.inspect(row.id, options, signal);
  if (error !== undefined) throw toPodnetError(error);
}

/** How long ago a container was attached, milliseconds. */
const ageOf = ({ claimed }: AttachmentPlan, now: BootMoment): number =>
  claimed?.boot === now.boot ? (now.us - claimed.us) / 1000 : 0;

/** Why a container has to be detached; undefined while it stays attached. */
function whyGone(
  row: AnyAttachment,
  { network }: RecoverParts,
  sameBoot: boolean,
): string | undefined {
  if (!sameBoot) return "the host was restarted";
  if (row.state !== "ready") return "podnetd ended meanwhile";
  // A damaged record may name another namespace than the container's.
  return isDamagedAttachment(row) ? undefined : whyLost(row.plan, network);
}

/**
 * An earlier podnetd did not write down the container's namespace: the one at its path now is taken
 * to be it, from here on.
 */
function identifiedPlan(
  { plan }: AttachmentRow,
  { network, records }: RecoverParts,
): AttachmentPlan {
  const { netns, namespace, hostVeth } = plan;
  if (namespace !== undefined || hostVeth !== undefined) return plan;
  const there = inNamespace(plan, identified(netns, network));
  if (there !== plan) records.identified(there);
  return there;
}
