import { closeSync, openSync } from "node:fs";
import type { Json } from "./arguments.ts";
import { QmpError } from "./qmp-error.ts";

interface FdSet {
  /** Undefined once it was removed, while a node still has its own. */
  given: { readonly fd: number; readonly opaque: string | undefined } | undefined;
  readonly nodes: Set<string>;
}

/** Files of disks that are plugged in: sets of descriptors, and nodes, under QEMU's rules. */
export class DiskFiles {
  readonly #sets = new Map<number, FdSet>();
  /** Descriptors by the nodes' names. */
  readonly #nodes = new Map<string, number>();

  /** The smallest number that is free is the set's. */
  add(fd: number, opaque: string | undefined): Json {
    let set = 0;
    while (this.#sets.has(set)) set++;
    this.#sets.set(set, { given: { fd, opaque }, nodes: new Set() });
    return { fd, "fdset-id": set };
  }

  remove(set: number): void {
    const found = this.#sets.get(set);
    if (found?.given === undefined)
      throw new QmpError(`File descriptor named 'fdset-id:${set}' not found`);
    closeSync(found.given.fd);
    found.given = undefined;
    this.#drop(set);
  }

  list(): readonly Json[] {
    return [...this.#sets].map(([set, { given }]) => ({
      fds:
        given === undefined
          ? []
          : [{ fd: given.fd, ...(given.opaque === undefined ? {} : { opaque: given.opaque }) }],
      "fdset-id": set,
    }));
  }

  addNode(name: string, filename: string): void {
    if (this.#nodes.has(name)) throw new QmpError(`Duplicate nodes with node-name='${name}'`);
    const set = Number(/^\/dev\/fdset\/(\d+)$/.exec(filename)?.[1]);
    const found = this.#sets.get(set);
    if (found?.given === undefined)
      throw new QmpError(`Could not open '${filename}': No such file or directory`);
    this.#nodes.set(name, openSync(`/proc/self/fd/${found.given.fd}`, "r"));
    found.nodes.add(name);
  }

  hasNode(name: string): boolean {
    return this.#nodes.has(name);
  }

  removeNode(name: string): void {
    const fd = this.#nodes.get(name);
    if (fd === undefined) throw new QmpError(`Failed to find node with node-name='${name}'`);
    closeSync(fd);
    this.#nodes.delete(name);
    for (const [set, { nodes }] of this.#sets) if (nodes.delete(name)) this.#drop(set);
  }

  /** A set goes with the last that needs it. */
  #drop(set: number): void {
    const found = this.#sets.get(set);
    if (found?.given === undefined && found?.nodes.size === 0) this.#sets.delete(set);
  }
}
