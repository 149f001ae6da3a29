import { PodnetError } from "../../../../core/errors.ts";

/** Refuses a VLAN on a bridge that does not filter VLANs. `how` is the hint. */
export const noVlans = (bridge: string, field: string, how: string): PodnetError =>
  new PodnetError("BRIDGE_CONFLICT", `Bridge "${bridge}" does not filter VLANs`, {
    field: `${field}.port.vlan`,
    hint: `Leave the VLAN out, or ${how}`,
    details: { bridge },
  });
