import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { sys } from "../sys.ts";

const directoryType = 0o040000;
const typeMask = 0o170000;

const refuse = (name: string, why: string, errno: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `"${printable(name)}" ${why}`, {
    field: "args[0]",
    details: { errno },
  });

/**
 * Looks for a program as execvpe(3) will. Throws with `ENOENT` when there is none, with `EACCES`
 * when no user may execute it: known before it is started, these are errors of the start.
 */
export function refuseUnlessProgram(
  name: string,
  env: readonly string[],
  directory: string,
  modeOf: (path: string) => number | undefined = sys.mode,
): void {
  const from = (path: string): string => (path.startsWith("/") ? path : `${directory}/${path}`);
  const search = env.findLast((each) => each.startsWith("PATH="))?.slice(5) ?? "";
  const paths = name.includes("/")
    ? [from(name)]
    : search.split(":").map((each) => from(each === "" ? name : `${each}/${name}`));
  const found = paths.flatMap((path) => modeOf(path) ?? []);
  if (found.length === 0 || name === "") throw refuse(name, "does not exist", "ENOENT");
  const usable = found.some((mode) => (mode & typeMask) !== directoryType && (mode & 0o111) !== 0);
  if (!usable) throw refuse(name, "cannot be executed", "EACCES");
}
