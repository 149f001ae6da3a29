import type { UserContainer, UserPod } from "./user-pod.ts";

/**
 * The container that is the pod's main process: the only one of a pod without volumes. Others are
 * in the machine.
 */
export function mainOf({ containers, volumes }: UserPod): UserContainer | undefined {
  const [first] = containers;
  if (containers.length !== 1 || volumes.length > 0) return undefined;
  return first === undefined || first.volumes.length > 0 ? undefined : first;
}
