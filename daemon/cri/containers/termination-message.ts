import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readlinkSync,
  writeSync,
} from "node:fs";
import { perform } from "../../../core/effect.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";

/**
 * Writes what a container said last to kubelet's file for it, which kubelet reads when it sees the
 * end. `file` was found to be one that containers may have when this one was made; should something
 * else be there by now, nothing is written.
 */
export function writeMessage(file: string, message: Uint8Array): void {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const fd = perform("file", "open termination message", () =>
    openSync(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK),
  );
  try {
    const opened = perform("file", "look at termination message", () =>
      readlinkSync(`/proc/self/fd/${fd}`),
    );
    if (opened !== file || !fstatSync(fd).isFile())
      throw new PodnetError("PERMISSION_DENIED", `"${printable(file)}" is another file by now`, {
        hint: "See who changes kubelet's directories",
      });
    perform("file", "write termination message", () => {
      ftruncateSync(fd, 0);
      writeSync(fd, message);
    });
  } finally {
    closeSync(fd);
  }
}
