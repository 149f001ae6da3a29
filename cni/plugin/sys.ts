import { decodeUtf8 } from "../../core/utf8.ts";
import type { Moment } from "../protocol/pending.ts";

/**
 * The system calls the plugin has, as native/sys.c offers them: each answers a number, failures as
 * the negative error number. Nothing else reaches outside of the JavaScript engine.
 */
interface Native {
  environment(prefix: string, into: Uint8Array): number;
  readAll(fd: number, into: Uint8Array): number;
  writeAll(fd: number, bytes: Uint8Array): number;
  connect(path: string, ms: number): number;
  send(fd: number, bytes: Uint8Array, ms: number): number;
  receive(fd: number, into: Uint8Array, ms: number): number;
  open(path: string, flags: number, mode: number): number;
  close(fd: number): number;
  sync(fd: number): number;
  rename(from: string, to: string): number;
  unlink(path: string): number;
  mkdir(path: string, mode: number): number;
  umask(mask: number): number;
  monotonic(): number;
  clock(): number;
  pid(): number;
  exit(code: number): number;
  base64(from: Uint8Array, into: Uint8Array): number;
}

declare const podnetSys: Native;

/** Linux error numbers that the plugin handles. */
export const errno = {
  noEntry: 2,
  again: 11,
  access: 13,
  exists: 17,
  brokenPipe: 32,
  reset: 104,
  timedOut: 110,
  refused: 111,
} as const;

/** A system call that failed. */
export class SysError extends Error {
  readonly errno: number;
  constructor(what: string, number: number) {
    super(`${what} failed (errno ${number})`);
    this.errno = number;
  }
}

function checked(what: string, result: number): number {
  if (result < 0) throw new SysError(what, -result);
  return result;
}

/**
 * Flags of open(2): O_RDONLY, O_WRONLY | O_CREAT | O_TRUNC, and O_RDONLY | O_DIRECTORY (x86_64).
 */
export const openFlag = { read: 0, make: 0o1101, directory: 0o200000 } as const;

export const sys = {
  /**
   * Variables whose names begin so, `NAME=value` each; undefined when they have more bytes than
   * `limit`.
   */
  environment(prefix: string, limit: number): string[] | undefined {
    for (let size = 4096; ; size *= 4) {
      const into = new Uint8Array(Math.min(size, limit));
      const used = podnetSys.environment(prefix, into);
      if (used >= 0) return decodeUtf8(into.subarray(0, used)).split("\0").slice(0, -1);
      if (size >= limit) return undefined;
    }
  },
  /** All of a descriptor; undefined when it has more bytes than `limit`. */
  readAll(fd: number, limit: number): Uint8Array | undefined {
    let bytes = new Uint8Array(8192);
    for (let used = 0; ; ) {
      used += checked("read", podnetSys.readAll(fd, bytes.subarray(used)));
      if (used > limit) return undefined;
      if (used < bytes.length) return bytes.subarray(0, used);
      const larger = new Uint8Array(2 * bytes.length);
      larger.set(bytes);
      bytes = larger;
    }
  },
  writeAll: (fd: number, bytes: Uint8Array): number =>
    checked("write", podnetSys.writeAll(fd, bytes)),
  connect: (path: string, ms: number): number => checked("connect", podnetSys.connect(path, ms)),
  /** Sends all of it by `deadline`. */
  sendAll(fd: number, bytes: Uint8Array, deadline: number): void {
    for (let done = 0; done < bytes.length; )
      done += checked("send", podnetSys.send(fd, bytes.subarray(done), left(deadline)));
  },
  /** Bytes received; 0 at the end. */
  receive(fd: number, into: Uint8Array, deadline: number): number {
    for (;;) {
      const count = podnetSys.receive(fd, into, left(deadline));
      if (count !== -errno.again) return checked("receive", count);
    }
  },
  open: (path: string, flags: number, mode: number): number =>
    checked("open", podnetSys.open(path, flags, mode)),
  close: (fd: number): number => podnetSys.close(fd),
  sync: (fd: number): number => checked("fsync", podnetSys.sync(fd)),
  rename: (from: string, to: string): number => checked("rename", podnetSys.rename(from, to)),
  unlink: (path: string): number => podnetSys.unlink(path),
  /** 0, or the negative error number. */
  mkdir: (path: string, mode: number): number => podnetSys.mkdir(path, mode),
  /** Whatever the runtime's is, modes are taken at their word but for these. */
  umask: (mask: number): number => podnetSys.umask(mask),
  /** Milliseconds since an arbitrary start. */
  monotonic: (): number => podnetSys.monotonic(),
  /** Milliseconds since 1970. */
  clock: (): number => podnetSys.clock(),
  /** The moment that is now, of this boot of the host; undefined without /proc. */
  moment(): Moment | undefined {
    const fd = podnetSys.open("/proc/sys/kernel/random/boot_id", openFlag.read, 0);
    if (fd < 0) return undefined;
    const bytes = new Uint8Array(64);
    const used = podnetSys.readAll(fd, bytes);
    podnetSys.close(fd);
    const boot = used > 0 ? decodeUtf8(bytes.subarray(0, used)).trim() : "";
    return boot === "" ? undefined : { boot, us: Math.floor(podnetSys.monotonic() * 1000) };
  },
  pid: (): number => podnetSys.pid(),
  exit: (code: number): number => podnetSys.exit(code),
  base64(bytes: Uint8Array): string {
    const into = new Uint8Array(4 * Math.ceil(bytes.length / 3));
    return decodeUtf8(into.subarray(0, checked("base64", podnetSys.base64(bytes, into))));
  },
} as const;

/** Milliseconds until a moment of `monotonic`; past it the call that waits times out. */
function left(deadline: number): number {
  const ms = Math.ceil(deadline - podnetSys.monotonic());
  if (ms <= 0) throw new SysError("waiting", errno.timedOut);
  return ms;
}
