import type { ShareSpec } from "../../../api/pod-spec.ts";
import { writableShares } from "../../pods/plan/writable-shares.ts";
import type { UserPod } from "./user-pod.ts";

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
  return writableShares([...new Set(sources)]);
}
