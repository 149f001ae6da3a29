import type { PodId } from "../../core/names.ts";
import type { AttachmentId } from "../containers/store.ts";

/** Who can have addresses and host ports: a pod, or a container by its attachment. */
export type HolderId = PodId | AttachmentId;
