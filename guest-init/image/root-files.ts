import { readFileSync } from "node:fs";
import path from "node:path";
import type { Entry } from "./cpio.ts";
import type { KernelModule } from "./kernel-modules.ts";

const text = (file: string, content: string, mode = 0o644): Entry => ({
  kind: "file",
  path: file,
  mode,
  data: Buffer.from(content),
});
const directory = (name: string, mode = 0o755): Entry => ({ kind: "directory", path: name, mode });

const accounts = [
  text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
  text("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
  text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
];

/**
 * Modules loaded before READY, those that a root on a disk needs, those loaded after READY, and
 * those of machines with shares. A module may be in several of the latter.
 */
export interface ModuleLists {
  readonly console: readonly KernelModule[];
  readonly root: readonly KernelModule[];
  readonly network: readonly KernelModule[];
  readonly shares: readonly KernelModule[];
}

export interface RootParts {
  /** The agent's program. */
  readonly agent: string;
  readonly busybox: string;
  /** Paths busybox wants its applets at, relative: `bin/ls`. */
  readonly applets: readonly string[];
  /** Where the modules' files are relative to. */
  readonly moduleRoot: string;
  readonly modules: ModuleLists;
}

const distinct = (modules: readonly KernelModule[]): KernelModule[] => [
  ...new Map(modules.map((module) => [module.name, module])).values(),
];

/**
 * Everything in the guest's root: the agent as /init, busybox, the modules and the order to load
 * them in.
 */
export function rootEntries({ agent, busybox, applets, moduleRoot, modules }: RootParts): Entry[] {
  const program = (to: string, from: string): Entry => ({
    kind: "file",
    path: to,
    mode: 0o755,
    data: readFileSync(from),
  });
  const list = (modulesOfList: readonly KernelModule[]): string =>
    modulesOfList.map(({ name }) => `${name}.ko\n`).join("");
  return [
    program("init", agent),
    program("bin/busybox", busybox),
    ...applets
      .filter((applet) => applet !== "bin/busybox" && applet !== "linuxrc")
      .map((applet): Entry => ({ kind: "symlink", path: applet, target: "/bin/busybox" })),
    // The kernel opens it for /init's input and output before devtmpfs is there.
    { kind: "character-device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
    ...["proc", "sys", "run", "etc", "var", "usr/share"].map((name) => directory(name)),
    directory("root", 0o700),
    directory("tmp", 0o1777),
    ...accounts,
    ...distinct([...modules.console, ...modules.root, ...modules.network, ...modules.shares]).map(
      ({ name, file }): Entry => ({
        kind: "file",
        path: `lib/modules/${name}.ko`,
        mode: 0o644,
        data: readFileSync(path.join(moduleRoot, file)),
      }),
    ),
    text("lib/modules/console.list", list(modules.console)),
    text("lib/modules/root.list", list(modules.root)),
    text("lib/modules/network.list", list(modules.network)),
    text("lib/modules/shares.list", list(modules.shares)),
  ];
}
