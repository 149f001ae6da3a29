import type { VmPlan } from "../../../hypervisor/driver.ts";
import { attachedTo } from "./attached.ts";
import type { MachineKind } from "./kind.ts";
import { own } from "./own.ts";

/** The kind of a pod's machine, as planned. */
export const machineKindOf = ({ attached }: Pick<VmPlan, "attached">): MachineKind =>
  attached === undefined ? own : attachedTo(attached);
