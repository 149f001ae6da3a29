import { PodnetError } from "../../../core/errors.ts";
import { invalid } from "../../../api/fields.ts";
import { printable } from "../../../core/names.ts";
import { mainOf } from "./main-of.ts";
import type { UserContainer, UserPod } from "./user-pod.ts";

type Refusal = readonly [isGiven: boolean, field: string, message: string, hint: string];

const none = "Leave it out";

/** Throws `UNSUPPORTED` for what of a pod podnet cannot honour. Pure. */
export function refuseUnsupported(pod: UserPod): void {
  refuseFirst([
    [
      !["", "kubernetes"].includes(pod.type),
      "type",
      "podnet has no pods of this type",
      `${none}, or write "kubernetes"`,
    ],
    [
      !["", "json-file"].includes(pod.log?.type ?? "") ||
        Object.keys(pod.log?.config ?? {}).length > 0,
      "log",
      "podnet keeps the output of a container itself, the last 16 MiB of it",
      `${none}: GET /container/logs has the output`,
    ],
  ]);
  refuseVolumes(pod.volumes, "volumes");
  const names = pod.volumes.map(({ name }) => name);
  for (const [i, { volumes }] of pod.containers.entries())
    for (const { volume, detail } of volumes)
      if (detail === undefined && !names.includes(volume))
        throw invalid(
          `containers[${i}].volumes`,
          `The pod has no volume "${printable(volume)}" in volumes`,
          "Add it there",
        );
  const isMain = mainOf(pod) !== undefined;
  for (const [i, each] of pod.containers.entries())
    refuseInContainer(each, `containers[${i}]`, isMain, pod.restartpolicy);
  refuseDoubles(names, "volumes");
  refuseDoubles(
    pod.files.map(({ name }) => name),
    "files",
  );
  for (const [i, { id }] of pod.interfaces.entries())
    refuseFirst([
      [id !== "", `interfaces[${i}].id`, "podnet chooses the ids of interfaces itself", none],
    ]);
  refuseDoubles(
    pod.containers.flatMap(({ name }) => (name === "" ? [] : [name])),
    "containers",
  );
}

/** Throws `UNSUPPORTED` for what podnet cannot honour in a container, the main process or not. */
export function refuseInContainer(
  container: UserContainer,
  field: string,
  isMain: boolean,
  ofPod: string,
): void {
  const policy = (container.restartpolicy || ofPod).toLowerCase();
  refuseDoubles(
    container.envs.map(({ env }) => env),
    `${field}.envs`,
  );
  refuseVolumes(
    container.volumes.flatMap(({ detail }) => (detail === undefined ? [] : [detail])),
    `${field}.volumes`,
  );
  refuseFirst([
    [
      !isMain && !["", "never"].includes(policy),
      `${field}.restartPolicy`,
      "podnet restarts the container of a pod that has no other, and no volumes",
      "Write never",
    ],
    [
      container.id !== "",
      `${field}.id`,
      "podnet chooses the ids of containers itself",
      `${none}, and find the container by its name`,
    ],
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
    [container.ulimits.length > 0, `${field}.ulimits`, "podnet does not set ulimits", none],
    [
      container.logpath !== "",
      `${field}.logPath`,
      "podnet does not write the output of a container to a path",
      `${none}: GET /container/logs has the output`,
    ],
    [
      isMain && (container.user?.additionalgroups.length ?? 0) > 0,
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

function refuseVolumes(volumes: UserPod["volumes"], field: string): void {
  for (const [i, { name, format, fstype, option }] of volumes.entries())
    refuseFirst([
      [name === "", `${field}[${i}].name`, "The volume has no name", "Name it"],
      [
        fstype !== "" || option !== undefined || !["", "vfs"].includes(format),
        `${field}[${i}]`,
        "podnet mounts no disks into containers",
        "Use the format vfs: copies of files of the host, or with no source a directory in memory",
      ],
    ]);
}

function refuseDoubles(names: readonly string[], field: string): void {
  const double = names.find((name, i) => names.indexOf(name) < i);
  if (double !== undefined)
    throw invalid(field, `"${printable(double)}" is there twice`, "Give each name once");
}

function refuseFirst(refusals: readonly Refusal[]): void {
  const [first] = refusals.filter(([isGiven]) => isGiven);
  if (first === undefined) return;
  const [, field, message, hint] = first;
  throw new PodnetError("UNSUPPORTED", message, { field, hint });
}
