import { machineOomScore } from "../../linux/processes/oom-score.ts";
import type { Accelerator, CgroupPlan, JailPlan, VmPlan } from "../driver.ts";

/** Inputs of the launcher's arguments in addition to the plan. */
export interface JailHost {
  /** Absolute path of podnet-jail. */
  readonly launcher: string;
  /** The descriptor on which it reports; those from 3 up to it are QEMU's to inherit. */
  readonly reportFd: number;
  readonly accelerator: Accelerator;
  /** Group that may open /dev/kvm, when QEMU needs it. */
  readonly kvmGroup?: number;
}

/**
 * QEMU's own sandbox: what the jail's filter leaves, it refuses from the moment QEMU has started
 * up.
 */
export const sandboxWords = [
  "-sandbox",
  "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
] as const;

/**
 * The part before QEMU's own command line: the launcher and everything that QEMU will see. Empty
 * for a plan without jail. Pure.
 */
export function jailArgv(plan: VmPlan, host: JailHost): readonly string[] {
  const { jail } = plan;
  if (jail === undefined) return [];
  const kvm = host.accelerator === "kvm";
  return [
    host.launcher,
    ["--uid", `${jail.uid}`],
    kvm && host.kvmGroup !== undefined ? ["--group", `${host.kvmGroup}`] : [],
    ["--run", plan.runDir],
    ["--report", `${host.reportFd}`],
    ["--oom-score", `${machineOomScore}`],
    ...jail.cgroups.map(({ path }) => ["--cgroup", path]),
    [plan.kernel, plan.initrd].flatMap((path) => (path === undefined ? [] : ["--read", path])),
    kvm ? ["--device", "/dev/kvm"] : [],
    ["--"],
  ].flat();
}

/** A program that serves a directory to a machine. */
export interface FileServer {
  /** Absolute path of podnet-jail. */
  readonly launcher: string;
  /** The machine's own. */
  readonly jail: JailPlan;
  /** As whom it serves a directory that the machine writes to; absent: it writes nothing. */
  readonly owner: { readonly uid: number; readonly gid: number } | undefined;
  /** The directory's descriptor, in whose place the program has its socket. */
  readonly fd: number;
  /** The socket's name in the run directory. */
  readonly socket: string;
  readonly reportFd: number;
  /** Descriptors that it may have at once. */
  readonly openFiles: number;
}

/** The part before the program's own command line; it finds the directory at `treePlace`. Pure. */
export const fileServerArgv = (given: FileServer): readonly string[] =>
  [
    given.launcher,
    ["--uid", `${given.owner?.uid ?? given.jail.uid}`],
    given.owner === undefined ? [] : ["--writable", `${given.owner.gid}`],
    ["--report", `${given.reportFd}`],
    ["--served", `${given.fd}`, "--listen", given.socket],
    ["--open-files", `${given.openFiles}`],
    ["--oom-score", `${machineOomScore}`],
    ...given.jail.cgroups.map(({ path }) => ["--cgroup", path]),
    ["--"],
  ].flat();

/** A program that is no machine, and needs no capability. */
export interface NetworkProgram {
  /** Absolute path of podnet-jail. */
  readonly launcher: string;
  readonly uid: number;
  /** The directory where it may write; its user owns it. */
  readonly runDir: string;
  /** The descriptor on which the launcher reports. */
  readonly reportFd: number;
  /** Files that it reads. */
  readonly files: readonly string[];
  /** Descriptors that it may have at once. */
  readonly openFiles: number;
  /** Whether it has the host's network, or none; the host's unless given. */
  readonly network?: boolean;
  /** Control groups that it joins. */
  readonly cgroups?: readonly CgroupPlan[];
  /**
   * A directory that it sees as `treePlace`: its file system without those mounted below,
   * read-only. It may read all files there, whosever they are, if podnetd may.
   */
  readonly tree?: string | undefined;
}

/** Where a program sees its tree. */
export const treePlace = "/podnet-tree";

/** The part before the program's own command line. Pure. */
export const networkProgramArgv = (given: NetworkProgram): readonly string[] =>
  [
    given.launcher,
    ["--uid", `${given.uid}`],
    ["--run", given.runDir],
    ["--report", `${given.reportFd}`],
    given.network === false ? [] : ["--network", "host"],
    ["--open-files", `${given.openFiles}`],
    ...(given.cgroups ?? []).map(({ path }) => ["--cgroup", path]),
    given.files.flatMap((file) => ["--read", file]),
    given.tree === undefined ? [] : ["--tree", given.tree],
    ["--"],
  ].flat();
