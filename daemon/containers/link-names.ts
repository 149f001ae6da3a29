import { type IfName, parseIfName } from "../../core/names.ts";
import type { AttachmentId } from "../store/holder.ts";

/** The host's end of an attachment's pair, unless its caller made the pair. */
export const hostLinkName = (id: AttachmentId): IfName => parseIfName(`pc${id}`);

/** The link that limits the way out of a container. */
export const ifbName = (id: AttachmentId): IfName => parseIfName(`pi${id}`);
