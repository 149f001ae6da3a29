import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Mac } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import { type AttachmentPlan, attachmentPlanVersion } from "./attachment-plan.ts";
import { attachmentTrouble } from "./check-attachment.ts";
import type { AttachmentId } from "../store/holder.ts";
import { type Row, damaged, integer, optionalText, parseJson, text } from "../store/rows.ts";
import { checkVersion } from "../store/stored-version.ts";

/**
 * `adding` and `deleting` are under way or were cut short: the next start undoes an `adding` and
 * completes a `deleting`.
 */
export type AttachmentState = "adding" | "ready" | "deleting";

/** How a runtime names an attachment: CNI keeps these values from ADD to DEL. */
export interface AttachmentName {
  readonly containerId: string;
  readonly ifName: string;
}

/** The columns of an attachment that can be read without its plan. */
interface AttachmentColumns extends AttachmentName {
  readonly id: AttachmentId;
  /** The name of the runtime's network configuration. */
  readonly config: string;
  readonly network: NetworkName;
  readonly netns: string;
  readonly state: AttachmentState;
  readonly createdMs: number;
}

export interface AttachmentRow extends AttachmentColumns {
  readonly plan: AttachmentPlan;
  readonly changedMs: number;
}

/**
 * A container whose record is unreadable. podnetd changes nothing of it until it is removed, and
 * then removes what the other columns and tables name.
 */
export interface DamagedAttachment extends AttachmentColumns {
  /**
   * Undefined when an earlier podnetd wrote the row, and its plan was unreadable when the columns
   * were added.
   */
  readonly mac: Mac | undefined;
  readonly hostLink: IfName | undefined;
  /** `STATE_CORRUPT`: answers every request for this container but its removal. */
  readonly damage: PodnetError;
}

export const isDamagedAttachment = (
  row: AttachmentRow | DamagedAttachment,
): row is DamagedAttachment => "damage" in row;

const states: ReadonlySet<string> = new Set(["adding", "ready", "deleting"]);

/**
 * Reads a row. An unreadable row does not affect the others, so it is returned as damaged. Throws
 * `STATE_NEWER` for a plan of a newer podnetd, `STATE_CORRUPT` where even the columns that name the
 * container are unreadable.
 */
export function anyAttachment(row: Row): AttachmentRow | DamagedAttachment {
  const state = text(row, "state");
  const columns: AttachmentColumns = {
    id: text<AttachmentId>(row, "id"),
    containerId: text(row, "container_id"),
    ifName: text(row, "if_name"),
    config: text(row, "config"),
    network: text<NetworkName>(row, "network"),
    netns: text(row, "netns"),
    state: states.has(state) ? (state as AttachmentState) : "ready",
    createdMs: integer(row, "created_ms"),
  };
  try {
    if (!states.has(state)) throw damaged(`state is "${state}"`);
    const plan = parseStoredAttachment(text(row, "plan"));
    requireOwn(plan, columns);
    return { ...columns, plan, changedMs: integer(row, "changed_ms") };
  } catch (thrown) {
    if (isPodnetError(thrown, "STATE_NEWER")) throw thrown;
    return {
      ...columns,
      mac: optionalText<Mac>(row, "mac"),
      hostLink: optionalText<IfName>(row, "host_link"),
      damage: damageOf(columns, thrown),
    };
  }
}

/** Throws where the plan is another container's, whose links podnetd would change and remove. */
function requireOwn(plan: AttachmentPlan, columns: AttachmentColumns): void {
  for (const key of ["id", "containerId", "ifName", "config", "network", "netns"] as const)
    if (plan[key] !== columns[key]) throw damaged(`plan has another ${key} than its row`);
}

function damageOf({ containerId, ifName }: AttachmentColumns, cause: unknown): PodnetError {
  const { message, details } = toPodnetError(cause);
  return new PodnetError(
    "STATE_CORRUPT",
    `The record of container "${containerId}" (${ifName}) is damaged: ${String(details["damaged"] ?? message)}`,
    {
      hint: "Its links are left as they are. Remove the container with its runtime: podnetd then removes what it knows of it",
      details: { container: containerId },
      cause,
    },
  );
}

/**
 * Reads a stored plan. Throws `STATE_NEWER` when a newer podnetd wrote it, `STATE_CORRUPT` when
 * none did.
 */
function parseStoredAttachment(text: string): AttachmentPlan {
  const plan = parseJson(text, "plan") as AttachmentPlan | null;
  if (plan === null) throw damaged("plan has no version");
  checkVersion(plan.version, attachmentPlanVersion, "plan");
  const trouble = attachmentTrouble(plan);
  if (trouble !== undefined) throw damaged(trouble);
  return plan;
}
