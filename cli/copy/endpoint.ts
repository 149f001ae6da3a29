import path from "node:path";
import { usage } from "../usage.ts";

/** One end of a copy. A tar archive means all of its content. */
export type Endpoint =
  | { readonly kind: "stream" }
  | { readonly kind: "local"; readonly path: string }
  | { readonly kind: "pod"; readonly idOrName: string; readonly path: string };

/** `-`, `POD:PATH` or a path here; one with a colon in its first part is written `./a:b`. */
export function endpointOf(text: string, field: string): Endpoint {
  if (text === "-") return { kind: "stream" };
  const [, idOrName, inPod] = /^([a-z0-9-]{1,63}):([^]*)$/.exec(text) ?? [];
  if (idOrName !== undefined && inPod !== undefined) {
    // As a path after the root: who runs podnet has no directory in the guest.
    return { kind: "pod", idOrName, path: `/${inPod}`.replace(/^\/+/, "/") };
  }
  if (text === "") throw usage("A path is empty", "Name a file or a directory", field);
  return { kind: "local", path: text };
}

/** Kind of the object at a path; `link` is a link without a target. */
export type Found = "absent" | "file" | "directory" | "link" | "other";

/**
 * Where a copy goes: into this directory, under this name; without one, what is in the source goes
 * there.
 */
export interface Landing {
  readonly directory: string;
  readonly name: string | undefined;
}

export interface Source {
  readonly path: string;
  readonly isDirectory: boolean;
}

export interface Target {
  readonly path: string;
  readonly found: Found;
  /** Kind of its parent. */
  readonly parent: Found;
}

/** The last part of a path as it was written, slashes at its end aside. */
const baseOf = (text: string): string => path.posix.basename(path.posix.resolve("/", text));

/**
 * Where a source lands, by docker cp's rules: into a directory that is there, else under the
 * target's name; `DIRECTORY/.` is what is in it. Pure. Throws `INVALID_ARGUMENT` for what goes
 * nowhere.
 */
export function landingOf(source: Source, target: Target): Landing {
  const ends = /\/\.?$/.test(target.path);
  const contents = source.isDirectory && /(?:^|\/)\.$/.test(source.path);
  const whole = target.path.replace(/\/+\.?$/, "") || "/";
  const above = { directory: path.posix.dirname(whole), name: path.posix.basename(whole) };
  switch (target.found) {
    case "directory": {
      const name = contents ? "" : baseOf(source.path);
      return { directory: target.path, name: name === "" ? undefined : name };
    }
    case "absent":
      if (target.parent !== "directory") {
        const what = target.parent === "absent" ? "is not there" : "is no directory";
        throw refused(`"${above.directory}" ${what}`, "Make it first");
      }
      if (ends && !source.isDirectory) {
        throw refused(`"${target.path}" is not there`, "Make it first, or leave out the slash");
      }
      return above;
    default:
      if (source.isDirectory || ends) {
        throw refused(`"${target.path}" is no directory`, "Name a directory, or a new name");
      }
      return above;
  }
}

const refused = (message: string, hint: string): Error => usage(message, hint, "destination");
