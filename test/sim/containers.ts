import { readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { IpPrefix } from "../../core/address.ts";
import type { FakeKernel } from "./kernel/kernel.ts";
import { FakeNamespaces } from "./kernel/namespaces.ts";
import type { Random } from "./random.ts";

/**
 * What a path leads to, as far as podnetd looks at it by itself: a namespace, of whatever kind,
 * whose number is another one for each. Nothing enters it: the one that is worked in is the fake's.
 */
const leadsTo = ["uts", "ipc", "mnt", "pid", "net", "user", "cgroup"];

/**
 * Containers of a host: their namespaces, and what others have in them. A runtime makes and ends
 * them.
 */
export class Containers {
  readonly namespaces: FakeNamespaces;
  readonly #directory: string;
  #made = 0;

  constructor(directory: string, random: Random) {
    this.#directory = directory;
    this.namespaces = new FakeNamespaces(() => random.mac());
  }

  pathOf(container: string): string {
    return join(this.#directory, container);
  }

  insideOf(container: string): FakeKernel | undefined {
    return this.namespaces.at(this.pathOf(container));
  }

  /** A container's namespace, made if there is none, with a foreign link in it. */
  ensure(container: string): string {
    const path = this.pathOf(container);
    if (this.namespaces.at(path) !== undefined) return path;
    rmSync(path, { force: true });
    symlinkSync(`/proc/self/ns/${leadsTo[this.#made++ % leadsTo.length]}`, path);
    const inside = this.namespaces.make(path);
    const theirs = inside.links.addBridge({ name: theirLink, up: true });
    inside.addAddress(theirs.index, "192.0.2.1/24" as IpPrefix);
    return path;
  }

  /** It ends; its path may stay as an empty file, as when a bind mount alone is undone. */
  end(container: string, leaveFile: boolean): void {
    const path = this.pathOf(container);
    rmSync(path, { force: true });
    if (leaveFile) writeFileSync(path, "");
    this.namespaces.remove(path);
  }

  reboot(): void {
    for (const container of readdirSync(this.#directory)) this.end(container, false);
  }

  /** What others have in namespaces, as text. */
  foreign(): string[] {
    return readdirSync(this.#directory).flatMap((container) => {
      const link = this.insideOf(container)?.links.find(theirLink);
      if (link === undefined) return [];
      const { up, mtu, addresses, routes } = link;
      return `${container} ${theirLink} ${JSON.stringify({ up, mtu, addresses, routes })}`;
    });
  }
}

const theirLink = "theirs";
