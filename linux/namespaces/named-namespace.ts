import { closeSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { lastErrno, mount, umount2 } from "../ffi/libc.ts";
import { ownNetns, withNewNetns } from "./netns.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { checked } from "../syscall-error.ts";

// include/uapi/linux/mount.h
const MS_BIND = 4096;
const MNT_DETACH = 2;

/**
 * Makes a new, empty network namespace that stays until `removeNamespace`, under a path of its own,
 * as `ip netns add` does. Removes the remains of an earlier one under that path first. Throws
 * `SYSCALL_FAILED`.
 */
export function makeNamespace(at: string): void {
  removeNamespace(at);
  const what = `Cannot make network namespace "${at}"`;
  perform("file", "make a namespace", () => {
    mkdirSync(path.dirname(at), { recursive: true, mode: 0o755 });
    writeFileSync(at, "", { mode: 0o444 });
    const fd = withNewNetns(() => ownNetns());
    try {
      checked(mount(`/proc/self/fd/${fd}`, at, null, MS_BIND, null), "mount", what);
    } finally {
      closeSync(fd);
    }
  });
}

/**
 * Ends what `makeNamespace` made, with all links in it but those of others' hardware. Absent is
 * success.
 */
export function removeNamespace(at: string): void {
  perform("file", "remove a namespace", () => {
    if (umount2(at, MNT_DETACH) < 0) {
      const errno = errnoName(lastErrno());
      // Not there, or nothing is mounted on it.
      if (errno !== "ENOENT" && errno !== "EINVAL")
        throw new PodnetError("SYSCALL_FAILED", `Cannot remove network namespace "${at}"`, {
          details: { syscall: "umount2", errno },
        });
    }
    rmSync(at, { force: true });
  });
}
