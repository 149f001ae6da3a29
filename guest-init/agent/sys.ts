import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { errnoName } from "../../linux/rtnetlink/errno.ts";

/** What `spawn` takes of a confinement. */
type NativeConfinement = [
  masked: Uint8Array,
  root: string,
  shelf: string,
  readOnly: Uint8Array,
  neighbour: number,
  withheld: Uint8Array,
  noNewPrivileges: number,
  group: Uint8Array,
  ownProcesses: number,
  filter: Uint8Array,
];

/**
 * The system calls the agent has, as native/sys.c and native/process.c offer them: each answers a
 * number, failures as the negative error number. Nothing else reaches outside of the JavaScript
 * engine.
 */
interface Native {
  args(out: Uint8Array): number;
  open(path: string, flags: number, mode: number): number;
  close(fd: number): number;
  read(fd: number, into: Uint8Array): number;
  fill(fd: number, into: Uint8Array): number;
  readAt(fd: number, into: Uint8Array, at: number): number;
  write(fd: number, bytes: Uint8Array): number;
  forward(
    from: number,
    to: number,
    frame: Uint8Array,
    header: number,
    most: number,
    out: Int32Array,
  ): number;
  readSmall(path: string, into: Uint8Array): number;
  writeSmall(path: string, text: string): number;
  unlink(path: string): number;
  rename(from: string, to: string): number;
  setOwner(fd: number, uid: number, gid: number, mode: number): number;
  mkdir(path: string, mode: number): number;
  symlink(target: string, path: string): number;
  readlink(path: string, out: Uint8Array): number;
  mode(path: string): number;
  readdir(path: string, out: Uint8Array): number;
  mount(source: string, target: string, type: string, flags: number, data: string): number;
  unmount(path: string): number;
  rmdir(path: string): number;
  openIn(root: string, path: string, flags: number, mode: number): number;
  enterRoot(path: string): number;
  finitModule(fd: number, parameters: string): number;
  setHostname(name: string): number;
  reboot(how: number): number;
  sync(): number;
  monotonic(): number;
  clock(): number;
  setClock(ms: number): number;
  poll(set: Int32Array, timeoutMs: number, count: number, found: Int32Array, port: number): number;
  steps(payload: Uint8Array): number;
  results(into: Uint8Array): number;
  useNetlink(fd: number): number;
  epoch(into: Uint8Array): number;
  heard(): number;
  ioctlNumber(fd: number, request: number, value: number): number;
  ioctlBytes(fd: number, request: number, bytes: Uint8Array): number;
  socket(domain: number, type: number, protocol: number): number;
  bind(fd: number, address: Uint8Array): number;
  setOption(fd: number, level: number, option: number, value: number): number;
  send(fd: number, bytes: Uint8Array, to?: Uint8Array): number;
  receive(fd: number, into: Uint8Array): number;
  exchange(fd: number, request: Uint8Array, into: Uint8Array): number;
  receiveAll(fd: number, into: Uint8Array): number;
  connectUnix(path: string): number;
  log(line: string): number;
  exit(code: number): number;
  spawn(
    argv: Uint8Array,
    env: Uint8Array,
    directory: string,
    uid: number,
    gid: number,
    groups: Uint32Array,
    terminal: number,
    out: Int32Array,
    ...confinement: [] | NativeConfinement
  ): number;
  reap(out: Int32Array): number;
  kill(pid: number, signal: number): number;
  pid(): number;
  signals(numbers: Uint8Array): number;
}

declare const podnetSys: Native;

/** A system call that failed. */
export class SysError extends Error {
  readonly errno: number;
  /** `ENOENT` and the like. */
  readonly code: string;
  constructor(what: string, errno: number) {
    super(`${what}: ${errnoName(errno)}`);
    this.errno = errno;
    this.code = errnoName(errno);
  }
}

export const eagain = 11;
const eintr = 4;
const ebadmsg = 74;

function checked(what: string, result: number): number {
  if (result < 0) throw new SysError(what, -result);
  return result;
}

/** Flags of open(2), equal on x86_64 and aarch64. */
export const openFlag = {
  read: 0,
  write: 1,
  readWrite: 2,
  create: 0o100,
  /** With `create`: a name that exists, also as a link, is an error. */
  exclusive: 0o200,
  truncate: 0o1000,
  append: 0o2000,
  nonBlock: 0o4000,
  /** Only names the file: it is not read, and a device or a pipe not opened. */
  path: 0o10000000,
} as const;

/** Events of poll(2). */
export const pollEvent = { in: 1, out: 4, error: 8, hangUp: 16 } as const;

/** Where a process of a container runs, and what it may do. */
export interface Confinement {
  readonly place:
    | {
        /** The first one: it makes the namespaces. */
        readonly kind: "first";
        /** A process whose process namespace it is in; undefined: it leads one of its own. */
        readonly among?: number | undefined;
        /** The mounted root, and the mount that has the roots of all containers. */
        readonly root: string;
        readonly shelf: string;
        readonly maskedPaths: readonly string[];
        readonly readOnlyPaths: readonly string[];
      }
    /** In the namespaces of the first one. */
    | { readonly kind: "joined"; readonly pid: number }
    /** Leads a process namespace, and is as the agent otherwise. */
    | { readonly kind: "holder" };
  /** Numbers of those that root has; undefined: all. */
  readonly capabilities: readonly number[] | undefined;
  readonly noNewPrivileges: boolean;
  /** The file by which it joins a control group; undefined without one. */
  readonly group: string | undefined;
  /** What the kernel does about its system calls: instructions of its own. */
  readonly filter?: Uint8Array;
}

export interface SpawnRequest {
  readonly args: readonly string[];
  /** `KEY=value`, each. */
  readonly env: readonly string[];
  /** Empty stays where the agent is. */
  readonly directory: string;
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  readonly terminal: boolean;
  /** Absent: in the agent's own namespaces. */
  readonly confinement?: Confinement;
}

export interface Spawned {
  readonly pid: number;
  /** On a terminal, input and output are the same descriptor and there is no `stderr` (-1). */
  readonly stdin: number;
  readonly stdout: number;
  readonly stderr: number;
}

export interface Ended {
  readonly pid: number;
  /** Exit code; 128 + n for a process ended by signal n. */
  readonly status: number;
  /** The signal that ended it; 0 when it exited. */
  readonly signal: number;
}

/** Texts, each ended by NUL; a NUL inside one splits it. */
const packed = (texts: readonly string[]): Uint8Array =>
  encodeUtf8(texts.length === 0 ? "" : `${texts.join("\0")}\0`);

function block(texts: readonly string[]): Uint8Array {
  for (const text of texts) if (text.includes("\0")) throw new SysError("NUL in an argument", 22);
  return packed(texts);
}

const noFilter = new Uint8Array();
const everyCapability = Array.from({ length: 64 }, (_, number) => number);

function confined({
  place,
  capabilities,
  noNewPrivileges,
  group,
  filter = noFilter,
}: Confinement): NativeConfinement {
  const first = place.kind === "first" ? place : undefined;
  const leads = place.kind === "holder" || (first !== undefined && first.among === undefined);
  const withheld =
    capabilities === undefined
      ? []
      : everyCapability.filter((each) => !capabilities.includes(each));
  return [
    block(first?.maskedPaths ?? []),
    first?.root ?? "",
    first?.shelf ?? "",
    block(first?.readOnlyPaths ?? []),
    (place.kind === "joined" ? place.pid : first?.among) ?? 0,
    Uint8Array.from(withheld),
    noNewPrivileges ? 1 : 0,
    block(group === undefined ? [] : [group]),
    leads ? 1 : 0,
    filter,
  ];
}

const unblock = (bytes: Uint8Array): string[] => decodeUtf8(bytes).split("\0").slice(0, -1);

/**
 * Where a pipe is that was passed on: `filling` after much was read, so many bytes, and it is empty
 * now.
 */
export type Forwarded =
  | { readonly from: "empty" | "open" | "ended" }
  | { readonly from: "filling"; readonly moved: number };

const forwarded = new Int32Array(2);
const spawned = new Int32Array(4);
const reaped = new Int32Array(3);
const nothingNow = { from: "empty" } as const;
const moreMayCome = { from: "open" } as const;
const atEnd = { from: "ended" } as const;

export const sys = {
  args(): string[] {
    const out = new Uint8Array(8192);
    return unblock(out.subarray(0, checked("args", podnetSys.args(out))));
  },

  open: (path: string, flags: number, mode = 0o644): number =>
    checked(path, podnetSys.open(path, flags, mode)),
  close(fd: number): void {
    podnetSys.close(fd);
  },
  /** Bytes read; 0 at the end; undefined when nothing is there yet. */
  read(fd: number, into: Uint8Array): number | undefined {
    const count = podnetSys.read(fd, into);
    return count === -eagain || count === -eintr ? undefined : checked("read", count);
  },
  /** Reads for as long as there is something: of descriptors that do not block. */
  fill(fd: number, into: Uint8Array): number | undefined {
    const count = podnetSys.fill(fd, into);
    return count === -eagain || count === -eintr ? undefined : checked("read", count);
  },
  /** Bytes read of a file from a position on; 0 behind its end. */
  readAt: (fd: number, into: Uint8Array, at: number): number =>
    checked("read", podnetSys.readAt(fd, into, at)),
  /** Bytes written; undefined when the other end takes none now. */
  write(fd: number, bytes: Uint8Array): number | undefined {
    const count = podnetSys.write(fd, bytes);
    return count === -eagain || count === -eintr ? undefined : checked("write", count);
  },
  /**
   * Passes on what can be read of `from`, in at most `most` frames: each goes into `frame`, behind
   * its header, whose last four bytes get the frame's length. `left` is what `to` did not take of
   * the last one, a part of `frame`.
   */
  forward(
    from: number,
    to: number,
    frame: Uint8Array,
    header: number,
    most: number,
  ): Forwarded & { readonly left?: Uint8Array } {
    const result = podnetSys.forward(from, to, frame, header, most, forwarded);
    switch (checked("forward", result)) {
      case 0:
        return nothingNow;
      case 2:
        return atEnd;
      case 3:
        return { from: "open", left: frame.subarray(forwarded[0], forwarded[1]) };
      case 4:
        return { from: "filling", moved: forwarded[0] as number };
      default:
        return moreMayCome;
    }
  },
  /** Bytes of a file, as many as fit. */
  readSmall: (path: string, into: Uint8Array): number =>
    checked(path, podnetSys.readSmall(path, into)),
  /** One write into a file that is there. */
  writeSmall: (path: string, text: string): number =>
    checked(path, podnetSys.writeSmall(path, text)),
  unlink: (path: string): number => checked(path, podnetSys.unlink(path)),
  rename: (from: string, to: string): number => checked(to, podnetSys.rename(from, to)),
  /** Owner, group and permission bits of an open file. */
  setOwner: (fd: number, uid: number, gid: number, mode: number): number =>
    checked("fchown", podnetSys.setOwner(fd, uid, gid, mode)),
  mkdir: (path: string, mode = 0o755): number => checked(path, podnetSys.mkdir(path, mode)),
  symlink: (target: string, path: string): number => checked(path, podnetSys.symlink(target, path)),
  readlink(path: string): string {
    const out = new Uint8Array(4096);
    return decodeUtf8(out.subarray(0, checked(path, podnetSys.readlink(path, out))));
  },
  /** st_mode; undefined when the path leads nowhere. */
  mode(path: string): number | undefined {
    const mode = podnetSys.mode(path);
    return mode < 0 ? undefined : mode;
  },
  /** Names in a directory, without `.` and `..`; none when it cannot be read. */
  readdir(path: string): string[] {
    const out = new Uint8Array(65536);
    const used = podnetSys.readdir(path, out);
    if (used < 0) return [];
    return unblock(out.subarray(0, used)).filter((name) => name !== "." && name !== "..");
  },

  mount: (source: string, target: string, type: string, flags: number, data: string): number =>
    checked(target, podnetSys.mount(source, target, type, flags, data)),
  /** Lets go of a mount and all below it, at once. */
  unmount: (path: string): number => checked(path, podnetSys.unmount(path)),
  rmdir: (path: string): number => checked(path, podnetSys.rmdir(path)),
  /** Opens a path as a process sees it whose root is `root`: no link leads outside. */
  openIn: (root: string, path: string, flags: number, mode = 0): number =>
    checked(path, podnetSys.openIn(root, path, flags, mode)),
  /** Moves the mount at `path` to `/`, and makes it the root of the agent and all it starts. */
  enterRoot: (path: string): number => checked(path, podnetSys.enterRoot(path)),
  finitModule: (fd: number): number => checked("finit_module", podnetSys.finitModule(fd, "")),
  setHostname: (name: string): number => checked("sethostname", podnetSys.setHostname(name)),
  reboot: (how: number): number => podnetSys.reboot(how | 0),
  sync: (): number => podnetSys.sync(),
  /** Milliseconds since an arbitrary start. */
  monotonic: (): number => podnetSys.monotonic(),
  /** Wall time, milliseconds since 1970. */
  clock: (): number => podnetSys.clock(),
  setClock: (ms: number): number => checked("clock_settime", podnetSys.setClock(ms)),

  /**
   * `set` holds struct pollfd: descriptor, then events. `found` gets pairs: a place in the set, and
   * what happened there. Answers how many. `port` is one more than the descriptor of a port whose
   * STEPS are carried out before anything of them is seen here; 0 when there is none.
   */
  poll: (set: Int32Array, timeoutMs: number, count: number, found: Int32Array, port = 0): number =>
    podnetSys.poll(set, timeoutMs, count, found, port),
  /** Does steps, and answers their results; undefined when the payload is none. */
  steps(payload: Uint8Array): Uint8Array | undefined {
    const length = podnetSys.steps(payload);
    if (length === -ebadmsg) return undefined;
    const results = new Uint8Array(checked("steps", length));
    podnetSys.results(results);
    return results;
  },
  /** The socket of rtnetlink that steps use. */
  useNetlink: (fd: number): number => podnetSys.useNetlink(fd),
  /** The epoch that steps have given this clone; empty unless they have. */
  epoch(): string {
    const name = new Uint8Array(256);
    return decodeUtf8(name.subarray(0, podnetSys.epoch(name)));
  },
  /** When steps came last, on the clock of `monotonic`. */
  heard: (): number => podnetSys.heard(),
  ioctlNumber: (fd: number, request: number, value: number): number =>
    checked("ioctl", podnetSys.ioctlNumber(fd, request, value)),
  ioctlBytes: (fd: number, request: number, bytes: Uint8Array): number =>
    checked("ioctl", podnetSys.ioctlBytes(fd, request, bytes)),
  /** A socket that does not block. */
  socket: (domain: number, type: number, protocol: number): number =>
    checked("socket", podnetSys.socket(domain, type, protocol)),
  bind: (fd: number, address: Uint8Array): number => checked("bind", podnetSys.bind(fd, address)),
  setOption: (fd: number, level: number, option: number, value: number): number =>
    checked("setsockopt", podnetSys.setOption(fd, level, option, value)),
  send: (fd: number, bytes: Uint8Array, to?: Uint8Array): number =>
    checked("send", podnetSys.send(fd, bytes, to)),
  /** Length of the datagram, which may exceed `into`; undefined when there is none. */
  receive(fd: number, into: Uint8Array): number | undefined {
    const count = podnetSys.receive(fd, into);
    return count === -eagain || count === -eintr ? undefined : checked("recv", count);
  },
  /**
   * Sends a request to netlink; bytes of the datagrams in response, concatenated; undefined when
   * there are none yet.
   */
  exchange(fd: number, request: Uint8Array, into: Uint8Array): number | undefined {
    const count = podnetSys.exchange(fd, request, into);
    return count === -eagain ? undefined : checked("netlink", count);
  },
  /** Further datagrams of netlink. */
  receiveAll(fd: number, into: Uint8Array): number | undefined {
    const count = podnetSys.receiveAll(fd, into);
    return count === -eagain ? undefined : checked("netlink", count);
  },
  connectUnix: (path: string): number => checked(path, podnetSys.connectUnix(path)),

  log: (line: string): number => podnetSys.log(line),
  exit: (code: number): number => podnetSys.exit(code),

  spawn(request: SpawnRequest): Spawned {
    const { args, env, directory, uid, gid, groups, terminal, confinement } = request;
    // The numbers of texts, which are counted again.
    spawned[0] = args.length;
    spawned[1] = env.length;
    const result = podnetSys.spawn(
      packed(args),
      packed(env),
      directory,
      uid,
      gid,
      new Uint32Array(groups),
      terminal ? 1 : 0,
      spawned,
      ...(confinement === undefined ? [] : confined(confinement)),
    );
    checked("spawn", result);
    return {
      pid: spawned[0],
      stdin: spawned[1],
      stdout: spawned[2] as number,
      stderr: spawned[3] as number,
    };
  },
  /** One child that has ended; undefined when there is none. */
  reap(): Ended | undefined {
    if (podnetSys.reap(reaped) !== 1) return undefined;
    const pid = reaped[0] as number;
    const killed = reaped[1] as number;
    const value = reaped[2] as number;
    return killed === 1
      ? { pid, status: 128 + value, signal: value }
      : { pid, status: value, signal: 0 };
  },
  /** A negative pid is a process group. */
  kill: (pid: number, signal: number): number => checked("kill", podnetSys.kill(pid, signal)),
  pid: (): number => podnetSys.pid(),
  /** Blocks signals and answers a descriptor that delivers them. */
  signals: (numbers: readonly number[]): number =>
    checked("signalfd", podnetSys.signals(Uint8Array.from(numbers))),
} as const;

/** Whether something failed with one of these error names. */
export const failedWith = (thrown: unknown, ...codes: readonly string[]): boolean =>
  thrown instanceof SysError && codes.includes(thrown.code);
