import { fcntlPointer } from "./ffi/libc.ts";
import { checked } from "./syscall-error.ts";

const F_OFD_GETLK = 36;
const F_WRLCK = 1;
const F_UNLCK = 2;
/** sizeof(struct flock) */
const flockBytes = 32;

/** Whether anybody else has a lock, of whatever kind, on that byte of an open file. */
export function isLocked(fd: number, at: number): boolean {
  const flock = Buffer.alloc(flockBytes);
  flock.writeInt16LE(F_WRLCK, 0);
  flock.writeBigInt64LE(BigInt(at), 8);
  flock.writeBigInt64LE(1n, 16);
  checked(fcntlPointer(fd, F_OFD_GETLK, flock), "fcntl", "Cannot look at a file's locks");
  return flock.readInt16LE(0) !== F_UNLCK;
}
