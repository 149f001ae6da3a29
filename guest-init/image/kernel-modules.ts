import { PodnetError } from "../../core/errors.ts";

/** One kernel module: its file, relative to the modules' directory, and what it needs. */
export interface KernelModule {
  readonly name: string;
  readonly file: string;
  readonly needs: readonly string[];
}

/** A module's name has `_` where its file may have `-`. */
export const moduleName = (file: string): string =>
  file
    .slice(file.lastIndexOf("/") + 1)
    .replace(/\.ko$/, "")
    .replaceAll("-", "_");

/**
 * A module's dependencies: the `depends=` word of its .modinfo section. Debian's kernel packages
 * carry no modules.dep (depmod makes it at installation), and ours is never installed.
 */
export function dependencies(module: Uint8Array): string[] {
  const bytes = Buffer.from(module.buffer, module.byteOffset, module.length);
  const at = bytes.indexOf("\0depends=");
  if (at < 0) return [];
  const from = at + "\0depends=".length;
  const text = bytes.toString("latin1", from, bytes.indexOf(0, from));
  return text === "" ? [] : text.split(",").map((name) => name.replaceAll("-", "_"));
}

/**
 * The wanted modules and all they need, each after what it needs; those in `loaded` left out. A
 * name that is not among `modules` is built into the kernel if `builtin` says so. Throws
 * `IMAGE_MISSING` for one that is nowhere.
 */
export function loadOrder(
  wanted: readonly string[],
  modules: ReadonlyMap<string, KernelModule>,
  builtin: ReadonlySet<string>,
  loaded: readonly KernelModule[] = [],
): KernelModule[] {
  const order = [...loaded];
  const visit = (name: string, path: readonly string[]): void => {
    if (builtin.has(name) || order.some((module) => module.name === name)) return;
    const module = modules.get(name);
    if (module === undefined || path.includes(name))
      throw new PodnetError("IMAGE_MISSING", `The kernel has no usable module "${name}"`, {
        details: { neededBy: path.join(" > ") },
      });
    for (const need of module.needs) visit(need, [...path, name]);
    order.push(module);
  };
  for (const name of wanted) visit(name, []);
  return order.slice(loaded.length);
}
