import { PodnetError } from "../../core/errors.ts";

/**
 * The annotation by which a pod of Kubernetes names the directories of the node that its containers
 * write to, separated by commas: kubelet says what containers mount when their machine is there.
 */
export const writablePaths = "podnet/writable-paths";

/** Where a machine has what it shares; each container has the parts that it mounts. */
const sharesAt = "/run/podnet-shares";

/** The shares of a sandbox's machine. Throws `INVALID_ARGUMENT`. */
export function writableShares(annotations: Readonly<Record<string, string>>) {
  const text = annotations[writablePaths];
  if (text === undefined) return [];
  const paths = text.split(",").map((each) => each.trim());
  if (new Set(paths).size < paths.length || paths.includes(""))
    throw new PodnetError("INVALID_ARGUMENT", "A directory is named twice, or without a name", {
      field: `config.annotations["${writablePaths}"]`,
      hint: "Separate absolute paths by commas: /srv/one,/srv/two",
    });
  return paths.map((hostPath, i) => ({ hostPath, path: `${sharesAt}/${i}`, writable: true }));
}
