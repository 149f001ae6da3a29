import { closeSync, constants, openSync } from "node:fs";
import { fcntlPointer, flock, lastErrno } from "../ffi/libc.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { checked, syscallError } from "../syscall-error.ts";

const F_OFD_GETLK = 36;
const F_WRLCK = 1;
const F_UNLCK = 2;
/** sizeof(struct flock) */
const flockBytes = 32;

/** Whether another program holds a lock, of whatever kind, on that byte of an open file. */
export function isLocked(fd: number, at: number): boolean {
  const flock = Buffer.alloc(flockBytes);
  flock.writeInt16LE(F_WRLCK, 0);
  flock.writeBigInt64LE(BigInt(at), 8);
  flock.writeBigInt64LE(1n, 16);
  checked(fcntlPointer(fd, F_OFD_GETLK, flock), "fcntl", "Cannot look at a file's locks");
  return flock.readInt16LE(0) !== F_UNLCK;
}

const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Locks a directory for this process: flock(2) on the directory itself, so that every mount and
 * every path of it counts, from whatever namespace, and no file is left. Undefined when another
 * process has it. The lock ends with the process, however it ends. Throws what `openSync` throws,
 * and `SYSCALL_FAILED`.
 */
export const lockDirectory = (path: string): Disposable | undefined =>
  lockOpened(openSync(path, constants.O_RDONLY | constants.O_DIRECTORY), path);

/** Locks a file that is there for nothing else, and makes it. It stays. */
export const lockFile = (path: string): Disposable | undefined =>
  lockOpened(openSync(path, lockFlags, 0o600), path);

const lockFlags =
  constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;

function lockOpened(fd: number, path: string): Disposable | undefined {
  if (flock(fd, LOCK_EX | LOCK_NB) === 0) return { [Symbol.dispose]: () => closeSync(fd) };
  const errno = lastErrno();
  closeSync(fd);
  if (errnoName(errno) === "EAGAIN") return undefined;
  throw syscallError("flock", errno, `Cannot lock "${path}"`);
}
