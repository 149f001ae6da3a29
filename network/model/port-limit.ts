import { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";

/**
 * Ports of one Linux bridge: BR_MAX_PORTS is 1024 and number 0 is never given out
 * (net/bridge/br_private.h).
 */
export const maxBridgePorts = 1023;

/**
 * Throws `BRIDGE_FULL` unless the bridge has room for that many more ports. The planner calls it
 * with its rows before anything happens; applying calls it again with what the kernel has.
 */
export function checkPortRoom(room: {
  readonly bridge: IfName;
  readonly used: number;
  readonly wanted: number;
}): void {
  if (room.used + room.wanted <= maxBridgePorts) return;
  throw bridgeFull(room.bridge, room.used, room.wanted);
}

/** The error for a bridge that has no port left; `cause` is the kernel's own EXFULL. */
export function bridgeFull(
  bridge: IfName,
  used: number,
  wanted: number,
  cause?: unknown,
): PodnetError {
  return new PodnetError(
    "BRIDGE_FULL",
    `Bridge "${bridge}" has ${used} of ${maxBridgePorts} ports taken and cannot take ${wanted} more`,
    {
      hint: "Delete pods or end containers of this network, or put new ones on another network",
      details: { bridge, used, wanted, limit: maxBridgePorts },
      ...(cause === undefined ? {} : { cause }),
    },
  );
}
