import { PodnetError } from "../../../core/errors.ts";
import type { UserContainer, UserPod } from "./user-pod.ts";

type Refusal = readonly [isGiven: boolean, field: string, message: string, hint: string];

const none = "Leave it out";

/** Throws `UNSUPPORTED` for what of a pod podnet cannot honour. Pure. */
export function refuseUnsupported(pod: UserPod): void {
  const lists = pod.portmappingwhitelists;
  refuseFirst([
    [
      pod.containers.length > 1,
      "containers",
      `podnet runs one container in a pod, and this pod has ${pod.containers.length}`,
      "Create a pod for each",
    ],
    [
      !["", "kubernetes"].includes(pod.type),
      "type",
      "podnet has no pods of this type",
      `${none}, or write "kubernetes"`,
    ],
    [
      pod.volumes.length > 0,
      "volumes",
      "podnet does not mount volumes into a pod",
      "Put the files into the image, or give them as files",
    ],
    [
      (lists?.internalnetworks.length ?? 0) + (lists?.externalnetworks.length ?? 0) > 0,
      "portmappingWhiteLists",
      "podnet does not take white lists of port mappings",
      "Write a policy instead: docs/how-to/policies.md",
    ],
    [
      !["", "json-file"].includes(pod.log?.type ?? "") ||
        Object.keys(pod.log?.config ?? {}).length > 0,
      "log",
      "podnet keeps the output of a container itself, the last 16 MiB of it",
      `${none}: GET /container/logs has the output`,
    ],
  ]);
  for (const [i, each] of pod.containers.entries()) refuseInContainer(each, `containers[${i}]`);
}

function refuseInContainer(container: UserContainer, field: string): void {
  refuseFirst([
    [
      container.image === "",
      `${field}.image`,
      "The container has no image",
      "Name one; a pod without containers needs none",
    ],
    [
      Object.keys(container.sysctl).length > 0,
      `${field}.sysctl`,
      "podnet does not set sysctls in a container",
      none,
    ],
    [
      container.volumes.length > 0,
      `${field}.volumes`,
      "podnet does not mount volumes into a container",
      "Put the files into the image, or give them as files",
    ],
    [container.ulimits.length > 0, `${field}.ulimits`, "podnet does not set ulimits", none],
    [
      container.logpath !== "",
      `${field}.logPath`,
      "podnet does not write the output of a container to a path",
      `${none}: GET /container/logs has the output`,
    ],
    [
      (container.user?.additionalgroups.length ?? 0) > 0,
      `${field}.user.additionalGroups`,
      "podnet takes the additional groups of a user from the image",
      none,
    ],
    [
      container.ports.some(({ serviceport }) => serviceport !== 0),
      `${field}.ports`,
      "podnet has no service ports",
      "Leave servicePort out",
    ],
  ]);
}

function refuseFirst(refusals: readonly Refusal[]): void {
  const [first] = refusals.filter(([isGiven]) => isGiven);
  if (first === undefined) return;
  const [, field, message, hint] = first;
  throw new PodnetError("UNSUPPORTED", message, { field, hint });
}
