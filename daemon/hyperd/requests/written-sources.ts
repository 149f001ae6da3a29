import type { ShareSpec } from "../../../api/pod-spec.ts";
import type { UserPod } from "./user-pod.ts";

/** Where a machine has the directories of its host that its containers write to. */
const sharesAt = "/run/podnet-shares";

/** The shares of a pod: the sources of those of its volumes that a container may write to. */
export function writtenSources({
  volumes,
  containers,
}: Pick<UserPod, "volumes" | "containers">): readonly Required<ShareSpec>[] {
  const written = new Set(
    containers.flatMap((container) =>
      container.volumes.flatMap(({ volume, readonly, detail }) =>
        readonly || detail !== undefined ? [] : [volume],
      ),
    ),
  );
  const sources = volumes.flatMap(({ name, source }) =>
    source !== "" && written.has(name) ? [source] : [],
  );
  return [...new Set(sources)].map((hostPath, i) => ({
    hostPath,
    path: `${sharesAt}/${i}`,
    writable: true,
  }));
}
