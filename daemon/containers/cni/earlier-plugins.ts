import { PodnetError } from "../../../core/errors.ts";
import type { AttachmentRequest } from "./attachment-request.ts";

/**
 * Plugins before podnet's in a list may have made anything but the link that podnet is asked for:
 * all plugins of a list get one interface name. Throws `NAME_IN_USE` when one has made it.
 */
export function refuseTaken({ config, ifName, netns }: AttachmentRequest): void {
  const taken = config.prevResult?.interfaces.some(
    ({ name, sandbox }) => name === ifName && sandbox === netns,
  );
  if (taken !== true) return;
  throw new PodnetError("NAME_IN_USE", `A plugin before podnet-cni has made "${ifName}" already`, {
    field: "prevResult.interfaces",
    hint: "A list has one plugin that makes the link: leave out bridge, ptp, macvlan and the like, or podnet-cni",
  });
}
