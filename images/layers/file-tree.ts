import type { Bytes, TarEntry } from "../tar/entry.ts";
import { quoted, unreadable } from "../unreadable.ts";

/** What a path leads to. Several paths may lead to one file: hard links. */
export interface Inode {
  readonly entry: TarEntry;
  /** The layer that has its bytes, counted from the lowest, and the number of its entry there. */
  readonly layer: number;
  readonly index: number;
}

export interface TreeNode {
  readonly name: Bytes;
  readonly parent: TreeNode | undefined;
  readonly depth: number;
  inode: Inode;
  /** The layer that last named this path. */
  layer: number;
  /** Of a directory. */
  children: Map<Bytes, TreeNode> | undefined;
}

/** Directories in one another, and symbolic links on one way. Linux's own limits are not far. */
const mostDepth = 1024;
const mostLinks = 40;

const whiteout = ".wh.";
const opaque = ".wh..wh..opq";

/** A directory that no layer names, only files in it. */
const impliedDirectory: TarEntry = {
  path: "",
  kind: "directory",
  mode: 0o755,
  uid: 0,
  gid: 0,
  mtime: 0,
  size: 0,
  target: "",
  major: 0,
  minor: 0,
  xattrs: new Map(),
};

/**
 * The files of an image, as its layers put them one above the other (OCI image specification,
 * "Image Layer Filesystem Changeset"). Paths stay within the image: symbolic links on the way are
 * followed inside, and `..` is refused.
 */
export class FileTree {
  readonly root: TreeNode;

  constructor() {
    this.root = {
      name: "",
      parent: undefined,
      depth: 0,
      inode: { entry: impliedDirectory, layer: -1, index: -1 },
      layer: -1,
      children: new Map(),
    };
  }

  /** Puts the next entry of a layer in its place. Throws `IMAGE_UNREADABLE`. */
  add(entry: TarEntry, layer: number, index: number): void {
    const names = namesOf(entry.path);
    const last = names.pop();
    const inode = { entry, layer, index };
    if (last === undefined) {
      if (entry.kind !== "directory") throw refused(entry, "is the image's root, and no directory");
      this.root.inode = inode;
      return;
    }
    if (last.startsWith(whiteout)) {
      this.#hide(names, last, layer);
      return;
    }
    const parent = this.#directory(names, layer, entry);
    const had = parent.children?.get(last);
    if (entry.kind === "directory" && had?.children !== undefined) {
      had.inode = inode;
      had.layer = layer;
      return;
    }
    const node: TreeNode = {
      name: last,
      parent,
      depth: parent.depth + 1,
      inode: entry.kind === "hardlink" ? this.#linked(entry) : inode,
      layer,
      children: entry.kind === "directory" ? new Map() : undefined,
    };
    parent.children?.set(last, node);
  }

  /** A whiteout hides what lower layers have, not what its own has. */
  #hide(names: readonly Bytes[], last: Bytes, layer: number): void {
    const parent = this.#find(names, true);
    if (parent?.children === undefined) return;
    if (last === opaque) {
      for (const child of parent.children.values()) withoutLower(child, layer);
      return;
    }
    // (Names of aufs' own.)
    if (last.startsWith(".wh..wh.")) return;
    const hidden = parent.children.get(last.slice(whiteout.length));
    if (hidden !== undefined) withoutLower(hidden, layer);
  }

  #linked(entry: TarEntry): Inode {
    const names = namesOf(entry.target);
    const found = this.#find(names, false);
    if (found === undefined || found.children !== undefined)
      throw refused(entry, `is a hard link to ${quoted(entry.target)}, which is no file`);
    return found.inode;
  }

  /** The directory at a path; makes it where there is none. */
  #directory(names: readonly Bytes[], layer: number, entry: TarEntry): TreeNode {
    const found = this.#walk(names, (parent, name) => {
      if (parent.depth >= mostDepth) throw refused(entry, "lies too deep");
      const made: TreeNode = {
        name,
        parent,
        depth: parent.depth + 1,
        inode: { entry: impliedDirectory, layer, index: -1 },
        layer,
        children: new Map(),
      };
      parent.children?.set(name, made);
      return made;
    });
    if (found?.children === undefined) throw refused(entry, "lies below what is no directory");
    if (found.depth >= mostDepth) throw refused(entry, "lies too deep");
    return found;
  }

  #find(names: readonly Bytes[], follow: boolean): TreeNode | undefined {
    const last = names.at(-1);
    if (follow || last === undefined) return this.#walk(names, () => undefined);
    return this.#walk(names.slice(0, -1), () => undefined)?.children?.get(last);
  }

  /** Follows names from the root. Undefined where a link leads nowhere, or in circles. */
  #walk(
    names: readonly Bytes[],
    missing: (parent: TreeNode, name: Bytes) => TreeNode | undefined,
  ): TreeNode | undefined {
    const left = [...names].reverse();
    let at: TreeNode | undefined = this.root;
    for (let links = 0; at !== undefined; ) {
      const name = left.pop();
      if (name === undefined) return at;
      if (name === "..") {
        at = at.parent ?? at;
        continue;
      }
      if (at.children === undefined) return undefined;
      const next: TreeNode | undefined = at.children.get(name) ?? missing(at, name);
      if (next?.inode.entry.kind !== "symlink") {
        at = next;
        if (at !== undefined && at.children === undefined && left.length > 0) return undefined;
        continue;
      }
      links += 1;
      const { target } = next.inode.entry;
      if (links > mostLinks || left.length > mostDepth * 4) return undefined;
      if (target.startsWith("/")) at = this.root;
      left.push(...target.split("/").filter(isName).reverse());
    }
    return undefined;
  }
}

const isName = (name: Bytes): boolean => name !== "" && name !== ".";

/** The names of an archive's path. Throws `IMAGE_UNREADABLE` for one that leads out. */
function namesOf(path: Bytes): Bytes[] {
  const names = path.split("/").filter(isName);
  if (names.includes(".."))
    throw unreadable(
      `The path ${quoted(path)} leads out of the image`,
      "Do not use this image: programs that build images write no such path",
    );
  return names;
}

const refused = ({ path }: TarEntry, why: string) => unreadable(`${quoted(path)} ${why}`);

/** Takes away what lower layers have at and below a path; true when nothing is left there. */
function withoutLower(node: TreeNode, layer: number): boolean {
  // (A map may lose members while it is gone through.)
  for (const child of node.children?.values() ?? []) withoutLower(child, layer);
  const stays = node.layer === layer || (node.children?.size ?? 0) > 0;
  if (!stays) node.parent?.children?.delete(node.name);
  return !stays;
}

/** All paths below a directory, each directory before what is in it. */
export function* nodesBelow(node: TreeNode, path: Bytes = ""): Generator<[Bytes, TreeNode]> {
  for (const child of node.children?.values() ?? []) {
    const at = path === "" ? child.name : `${path}/${child.name}`;
    yield [at, child];
    yield* nodesBelow(child, at);
  }
}
