import { openShelf, shelf } from "../containers/container-root.ts";
import { readText } from "../files.ts";
import { type Confinement, failedWith, sys } from "../sys.ts";

/** Flags of mount(2). */
const flag = { nosuid: 2, nodev: 4, noexec: 8, bind: 4096, recursive: 16384 } as const;

const groups = "/sys/fs/cgroup";
const root = `${shelf}/.main`;

/**
 * Where a program runs that insists on being PID 1, such as systemd: in a process namespace of its
 * own, on the agent's files and network, with control groups. Of /sys only these can be written to,
 * or it would manage the machine's devices.
 */
export function makeInitPlace(): Confinement {
  if (readText("/proc/self/mounts")?.includes(` ${groups} `) !== true)
    sys.mount("cgroup2", groups, "cgroup2", flag.nosuid | flag.nodev | flag.noexec, "");
  openShelf();
  try {
    sys.mkdir(root, 0o700);
  } catch (thrown) {
    if (!failedWith(thrown, "EEXIST")) throw thrown;
  }
  sys.mount("/", root, "", flag.bind | flag.recursive, "");
  const place = { kind: "first", root, shelf, maskedPaths: [], readOnlyPaths: ["/sys"] } as const;
  return { place, capabilities: undefined, noNewPrivileges: false, group: undefined };
}

/** The program has its own copy of these mounts now. */
export const leaveInitPlace = (): void => void sys.unmount(root);
