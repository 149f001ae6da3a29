import { type IfName, parseIfName } from "../../core/names.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";

/** The host's end of an attachment's pair: the caller's, or the one that podnet makes. */
export const hostLinkOf = ({ id, hostVeth }: Pick<AttachmentPlan, "id" | "hostVeth">): IfName =>
  hostVeth ?? parseIfName(`pc${id}`);
