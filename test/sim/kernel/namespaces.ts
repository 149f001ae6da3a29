import { basename } from "node:path";
import type { Mac } from "../../../core/address.ts";
import { Errno } from "./errno.ts";
import { FakeKernel } from "./kernel.ts";

export interface OpenNamespace {
  readonly fd: number;
  readonly kernel: FakeKernel;
  /** Which one it is, whatever path led to it. */
  readonly identity: string;
}

/**
 * The network namespaces of a host alongside its own, by the paths that lead to them and by open
 * descriptors.
 */
export class FakeNamespaces {
  readonly #randomMac: () => Mac;
  readonly #paths = new Map<string, FakeKernel>();
  readonly #descriptors = new Map<number, FakeKernel>();
  readonly #identities = new WeakMap<FakeKernel, string>();
  #nextDescriptor = 1000;
  #made = 0;

  constructor(randomMac: () => Mac) {
    this.#randomMac = randomMac;
  }

  /** How traces name it: paths differ from run to run. */
  static nameOf(path: string): string {
    return basename(path);
  }

  /** A new one, with nothing in it but a loopback link that is down. */
  make(path: string): FakeKernel {
    const made = new FakeKernel(this.#randomMac);
    made.links.change("lo", { up: false });
    this.#paths.set(path, made);
    this.#identities.set(made, `namespace ${this.#made++}`);
    return made;
  }

  at(path: string): FakeKernel | undefined {
    return this.#paths.get(path);
  }

  /** The path is gone; so are the links, once no process holds it open. */
  remove(path: string): void {
    const gone = this.#paths.get(path);
    this.#paths.delete(path);
    this.#endUnheld(gone);
  }

  open(path: string): OpenNamespace | undefined {
    const kernel = this.#paths.get(path);
    if (kernel === undefined) return undefined;
    const fd = this.#nextDescriptor++;
    this.#descriptors.set(fd, kernel);
    return { fd, kernel, identity: this.#identities.get(kernel) ?? "" };
  }

  of(fd: number): FakeKernel {
    const kernel = this.#descriptors.get(fd);
    if (kernel === undefined) throw new Errno("EBADF");
    return kernel;
  }

  close(fd: number): void {
    const kernel = this.#descriptors.get(fd);
    this.#descriptors.delete(fd);
    this.#endUnheld(kernel);
  }

  get openDescriptors(): number {
    return this.#descriptors.size;
  }

  /** A process has ended. */
  closeAll(): void {
    for (const fd of this.#descriptors.keys()) this.close(fd);
  }

  #endUnheld(kernel: FakeKernel | undefined): void {
    const held = [...this.#paths.values(), ...this.#descriptors.values()];
    if (kernel !== undefined && !held.includes(kernel)) kernel.links.end();
  }
}
