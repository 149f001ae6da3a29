import { PodnetError } from "../../core/errors.ts";
import type { AttachmentName } from "./attachment-rows.ts";

/** podnetd is ending and takes no new requests. */
export const ending = (): PodnetError =>
  new PodnetError("CANCELLED", "podnetd is ending", { hint: "Try again when it runs again" });

/** A container can be attached by one interface name only once. */
export const attached = ({ containerId, ifName }: AttachmentName): PodnetError =>
  new PodnetError("NAME_IN_USE", `Container "${containerId}" has "${ifName}" already`, {
    field: "CNI_IFNAME",
    hint: "Send DEL first, or use another interface name",
    details: { holder: containerId },
  });

/** No container has that name: CNI's error 3. */
export const unknown = ({ containerId, ifName }: AttachmentName): PodnetError =>
  new PodnetError(
    "INTERFACE_NOT_FOUND",
    `Container "${containerId}" has no "${ifName}" of podnet's`,
    { field: "CNI_CONTAINERID", hint: "See which there are: podnet cni list", details: { cni: 3 } },
  );
