import { PodnetError } from "../../../core/errors.ts";
import type { GuestContainers } from "../../../guest-init/channel/containers.ts";
import { type LivePod, requireGuest } from "../../pods/lifecycle/live-pod.ts";
import type { ContainerPlan, ContainerRow } from "./rows.ts";

/** How long a guest may take to do what it is asked for, milliseconds. */
export const guestMs = 20_000;

/** A plan as its row has it. */
export const asStored = (plan: ContainerPlan): unknown =>
  JSON.parse(JSON.stringify(plan)) as unknown;

/** Throws `AGENT_DISCONNECTED`, and `UNSUPPORTED` for an agent that runs none. */
export const containersOf = (live: LivePod): Promise<GuestContainers> =>
  requireGuest(live).containers(AbortSignal.timeout(guestMs));

/** Which start of the pod's machine it is. */
export const machineOf = ({ record }: LivePod): string =>
  record === undefined ? "" : `${record.bootId} ${record.pid} ${record.startTime}`;

export const wrongState = ({ id, state }: ContainerRow, wanted: string): PodnetError =>
  new PodnetError("WRONG_STATE", `Container ${id} is ${state}, not ${wanted}`, {
    hint: "See its state: ContainerStatus",
  });
