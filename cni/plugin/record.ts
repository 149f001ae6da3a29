import { encodeUtf8 } from "../../core/utf8.ts";
import { temporaryName, pendingName } from "../protocol/pending.ts";
import { errno, openFlag, SysError, sys } from "./sys.ts";

/**
 * Writes down a DEL, so that it is there under its name whole, and stays there through a crash of
 * the host. Answers its path. Throws a `SysError`.
 */
export function writePending(
  directory: string,
  attachment: { readonly containerId: string; readonly ifName: string },
  text: string,
): string {
  const name = pendingName(attachment.containerId, attachment.ifName);
  const path = `${directory}/${name}`;
  const temporary = `${directory}/${temporaryName(sys.pid())}`;
  makeDirectory(directory);
  // podnetd may run as another user, which must be able to read the record; its directory is closed
  // to other users.
  sys.umask(0o022);
  const fd = sys.open(temporary, openFlag.make, 0o644);
  sys.writeAll(fd, encodeUtf8(text));
  sys.sync(fd);
  sys.close(fd);
  sys.rename(temporary, path);
  const parent = sys.open(directory, openFlag.directory, 0);
  sys.sync(parent);
  sys.close(parent);
  return path;
}

/** Makes the directory, and the one it is in: podnetd may never have run. */
function makeDirectory(directory: string): void {
  let result = sys.mkdir(directory, 0o700);
  if (result === -errno.noEntry) {
    sys.mkdir(directory.slice(0, directory.lastIndexOf("/")), 0o700);
    result = sys.mkdir(directory, 0o700);
  }
  if (result < 0 && result !== -errno.exists) throw new SysError("mkdir", -result);
}
