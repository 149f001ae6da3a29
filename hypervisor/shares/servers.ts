import { accessSync, constants, openSync, closeSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { vmFiles } from "../argv/argv.ts";
import { shareSocket } from "../argv/share-words.ts";
import type { JailPlan, ProcessRecord, SharePlan, VmPlan } from "../driver.ts";
import { fileServerArgv, treePlace } from "../jail/argv.ts";
import { missingCapabilities } from "../jail/capabilities.ts";
import { membersOf } from "../jail/cgroup.ts";
import { findLauncher } from "../jail/launcher.ts";
import { readReport } from "../jail/report.ts";
import {
  firstInheritedFd,
  hasStarted,
  identifyProcess,
  launcherMissing,
  spawnStrictly,
} from "../process/process.ts";
import { openShare } from "./open-share.ts";

/** Debian's QEMU 7.2 brings it; later ones, in Rust, have other options and another path. */
const virtiofsd = "/usr/lib/qemu/virtiofsd";

/** What virtiofsd needs until it answers, in addition to what every jail does. */
const serverCapabilities = { CAP_SYS_CHROOT: 18 } as const;

/**
 * Files and directories that a guest can know of at once, as virtiofsd keeps a descriptor of each.
 * More fail in the guest with ENFILE.
 */
const openFiles = 131_072;

/** The process that serves a share. */
export interface ShareServer {
  readonly tag: string;
  /** Absent when it has ended. */
  readonly record: ProcessRecord | undefined;
}

/** The rights that virtiofsd keeps unless they are named. */
const keptRights = "CHOWN DAC_OVERRIDE FOWNER FSETID SETGID SETUID MKNOD SETFCAP".split(" ");

/**
 * virtiofsd's own words. Its only view is the directory, which is mounted read-only unless it is a
 * writable share, and it gives up all its rights: no request of a guest gets beyond the rights of
 * its user. Pure.
 */
const serverWords = (fd: number, files: number): readonly string[] => [
  virtiofsd,
  `--fd=${fd}`,
  "-f",
  `--rlimit-nofile=${files}`,
  "-o",
  `source=${treePlace}`,
  "-o",
  "sandbox=chroot",
  "-o",
  `modcaps=${keptRights.map((right) => `-${right}`).join(":")}`,
  // Attributes are asked for again after a second: changes on the host show.
  "-o",
  "cache=auto,no_readdirplus,no_xattr,no_posix_lock,no_flock",
  "-o",
  "log_level=warn",
];

/**
 * Checks what a start needs for its shares before anything is done. Throws `UNSUPPORTED`,
 * `QEMU_MISSING`, and as `openShare`.
 */
export function checkShares(plan: VmPlan): void {
  const { shares = [], jail } = plan;
  if (shares.length === 0) return;
  if (jail === undefined)
    throw new PodnetError("UNSUPPORTED", "Directories are only shared with confined machines", {
      field: "shares",
      hint: 'Set qemu.confine = "on", or copy the files: podnet cp',
    });
  const [missing] = missingCapabilities(
    readFileSync("/proc/self/status", "latin1"),
    serverCapabilities,
  );
  if (missing !== undefined)
    throw new PodnetError("UNSUPPORTED", `podnetd lacks ${missing}, which sharing needs`, {
      field: "shares",
      hint: "Give it to podnetd (AmbientCapabilities= in the unit)",
    });
  try {
    accessSync(virtiofsd, constants.X_OK);
  } catch (cause) {
    throw new PodnetError("QEMU_MISSING", `The program "${virtiofsd}" is not installed`, {
      hint: "Install it: apt-get install qemu-system-common",
      cause,
    });
  }
  shares.forEach((share, i) => openShare(share, fieldOf(i), plan)[Symbol.dispose]());
}

const fieldOf = (index: number): string => `shares[${index}].host_path`;

/**
 * Starts a server for each share, in the machine's control groups: what ends those ends the
 * servers. Each listens when this resolves, serves one machine, and ends with it. Throws as
 * `checkShares`, and `JAIL_FAILED`.
 */
export async function startServers(plan: VmPlan): Promise<readonly ShareServer[]> {
  const { shares = [], jail } = plan;
  const servers: ShareServer[] = [];
  for (const [index, share] of shares.entries())
    if (jail !== undefined) servers.push(await startServer(share, index, { ...plan, jail }));
  return servers;
}

async function startServer(
  share: SharePlan,
  index: number,
  plan: VmPlan & { readonly jail: JailPlan },
): Promise<ShareServer> {
  const { runDir, jail } = plan;
  using directory = openShare(share, fieldOf(index), plan);
  const fd = firstInheritedFd + index;
  const files = Math.min(openFiles, descriptorLimit());
  const reportFd = fd + 1;
  const socket = shareSocket(index);
  const { owner } = directory;
  const launcher = findLauncher();
  const [program = "", ...args] = [
    ...fileServerArgv({ launcher, jail, owner, fd, socket, reportFd, openFiles: files }),
    ...serverWords(fd, files),
  ];
  const log = perform("file", `open ${vmFiles.log}`, () =>
    openSync(
      join(runDir, vmFiles.log),
      constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND,
      0o600,
    ),
  );
  try {
    const pid = await performAsync("spawn", "virtiofsd", async () => {
      const child = spawnStrictly(program, args, {
        cwd: runDir,
        detached: true,
        // Its socket's number says which share a server is for: see `findServers`.
        stdio: ["ignore", log, log, ...Array<"ignore">(index).fill("ignore"), directory.fd, "pipe"],
        env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
      });
      child.unref();
      await hasStarted(child, program, launcherMissing);
      const { pid, ready, error } = await readReport(child.stdio[reportFd] as Readable);
      if (pid !== undefined && ready) return pid;
      child.kill("SIGKILL");
      throw new PodnetError(
        "JAIL_FAILED",
        `virtiofsd cannot be confined: ${error ?? "it reported no error"}`,
        {
          hint: "See docs/how-to/confinement.md",
          details: { error: error ?? "", path: share.path },
        },
      );
    });
    return { tag: share.tag, record: identifyProcess(pid) };
  } finally {
    closeSync(log);
  }
}

/** The most descriptors that a program of podnetd's may have. */
function descriptorLimit(): number {
  const limits = readFileSync("/proc/self/limits", "latin1");
  const most = Number(/^Max open files\s+\S+\s+(\S+)/m.exec(limits)?.[1]);
  return Number.isSafeInteger(most) ? most : openFiles;
}

/** The servers that an earlier podnetd has started, by the machine's control groups. */
export function findServers({ shares = [], jail }: VmPlan): readonly ShareServer[] {
  const found = new Map<string, ProcessRecord>();
  for (const pid of (jail?.cgroups ?? []).flatMap(({ path }) => membersOf(path))) {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      const fd = words.find((word) => word.startsWith("--fd="));
      if (words[0] === virtiofsd && fd !== undefined) found.set(fd, identifyProcess(pid));
    } catch {
      // It ended meanwhile.
    }
  }
  return shares.map(({ tag }, i) => ({ tag, record: found.get(`--fd=${firstInheritedFd + i}`) }));
}
