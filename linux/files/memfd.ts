import { closeSync, ftruncateSync, openSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { fcntl, memfdCreate } from "../ffi/libc.ts";
import { checked, fileError } from "../syscall-error.ts";

// include/uapi/linux/memfd.h
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
// include/uapi/linux/fcntl.h
const F_ADD_SEALS = 1033;
const F_SEAL_SEAL = 1;
const F_SEAL_SHRINK = 2;
const F_SEAL_GROW = 4;
const F_SEAL_WRITE = 8;

/**
 * A file in memory, without a name in any directory: it is gone with the last descriptor and the
 * last mapping.
 */
export interface Memfd extends Disposable {
  readonly fd: number;
  /**
   * Makes the content final, for everyone and for ever: neither written nor cut nor grown, through
   * whatever descriptor. Private mappings stay possible. Throws `SYSCALL_FAILED` with `EBUSY` while
   * a writable shared mapping exists.
   */
  seal(): void;
  /** Another descriptor with an offset of its own, for reading alone. */
  openReader(): Disposable & { readonly fd: number };
}

/**
 * Makes an empty file of `bytes` in memory. `name` is shown in /proc/PID/fd and means nothing else.
 */
export function openMemfd(name: string, bytes: number): Memfd {
  const what = `Cannot make ${bytes} bytes of memory file "${name}"`;
  const fd = perform("file", `make memory file ${name}`, () =>
    checked(memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create", what),
  );
  try {
    ftruncateSync(fd, bytes);
  } catch (error) {
    closeSync(fd);
    throw fileError(error, what);
  }
  return {
    fd,
    seal() {
      const seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
      perform("file", `seal memory file ${name}`, () =>
        checked(fcntl(fd, F_ADD_SEALS, seals), "F_ADD_SEALS", `Cannot seal memory file "${name}"`),
      );
    },
    openReader() {
      const reader = openSync(`/proc/self/fd/${fd}`, "r");
      return { fd: reader, [Symbol.dispose]: () => closeSync(reader) };
    },
    [Symbol.dispose]: () => closeSync(fd),
  };
}
