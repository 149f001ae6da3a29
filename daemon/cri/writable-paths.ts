import { PodnetError } from "../../core/errors.ts";

/**
 * The annotation by which a pod of Kubernetes names the directories of the node that its containers
 * write to, separated by commas: kubelet says what containers mount when their machine is there.
 */
export const writablePaths = "podnet/writable-paths";

/** The directories that a sandbox's annotations name. Throws `INVALID_ARGUMENT`. */
export function writablePathsOf(annotations: Readonly<Record<string, string>>): readonly string[] {
  const text = annotations[writablePaths];
  if (text === undefined) return [];
  const paths = text.split(",").map((each) => each.trim());
  if (new Set(paths).size < paths.length || paths.includes(""))
    throw new PodnetError("INVALID_ARGUMENT", "A directory is named twice, or without a name", {
      field: `config.annotations["${writablePaths}"]`,
      hint: "Separate absolute paths by commas: /srv/one,/srv/two",
    });
  return paths;
}
