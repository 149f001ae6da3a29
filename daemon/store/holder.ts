import type { Brand } from "../../core/brand.ts";
import type { PodId } from "../../core/names.ts";

/** The id of a container's attachment to a network. */
export type AttachmentId = Brand<string, "AttachmentId">;

/** Who can have addresses and host ports: a pod, or a container by its attachment. */
export type HolderId = PodId | AttachmentId;
