import { PodnetError } from "../../core/errors.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { lacksRoom } from "../store/sqlite-error.ts";

export const roomMissing = (cause?: unknown): PodnetError =>
  new PodnetError("STATE_UNWRITABLE", "There is no room for the image", {
    hint: "Make room in the state directory: podnet image prune removes images without a name",
    ...(cause === undefined ? {} : { cause }),
  });

/** What `node:fs` throws, in podnet's words. */
export function noRoom(thrown: unknown): unknown {
  // (The store is in the state directory, and may be what finds no room first.)
  if (thrown instanceof PodnetError) return lacksRoom(thrown) ? roomMissing(thrown) : thrown;
  const code = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
  if (code === "ENOSPC" || code === "EDQUOT") return roomMissing(thrown);
  return code === undefined ? thrown : fileError(thrown, "Cannot work on the image");
}
