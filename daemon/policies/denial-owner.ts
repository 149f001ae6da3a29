import type { PodId, PodName } from "../../core/names.ts";
import { containerText } from "../containers/attachment-plan.ts";
import { isDamagedAttachment } from "../containers/attachment-rows.ts";
import { getAttachment } from "../containers/store.ts";
import { getPod } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import type { AttachmentId } from "../store/holder.ts";

/** Of whom something was denied. */
export interface DenialOwner {
  /** Which container it is, for people; absent for a pod. */
  readonly container?: string;
  /** Absent for a container. */
  readonly pod?: { readonly id: PodId; readonly name: PodName };
}

/** The pod or container with this id; undefined for one that has gone. */
export function denialOwner(db: Database, holder: string): DenialOwner | undefined {
  const pod = getPod(db, holder as PodId);
  if (pod !== undefined) return { pod: { id: pod.id, name: pod.name } };
  const row = getAttachment(db, holder as AttachmentId);
  return row === undefined || isDamagedAttachment(row)
    ? undefined
    : { container: containerText(row.plan) };
}
