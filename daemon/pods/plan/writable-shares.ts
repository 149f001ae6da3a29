import type { ShareSpec } from "../../../api/pod-spec.ts";

/** Where a machine has what its containers write to; each has the parts that it mounts. */
const sharesAt = "/run/podnet-shares";

/** The shares of a machine whose containers write to these directories of the host. Pure. */
export const writableShares = (hostPaths: readonly string[]): readonly Required<ShareSpec>[] =>
  hostPaths.map((hostPath, i) => ({ hostPath, path: `${sharesAt}/${i}`, writable: true }));
