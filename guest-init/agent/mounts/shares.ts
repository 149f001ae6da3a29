import { PodnetError } from "../../../core/errors.ts";
import { parseMountShare } from "../../protocol/share-messages.ts";
import { makeDirectories, readText } from "../files.ts";
import { type Reply, done } from "../reply.ts";
import { failedWith, sys } from "../sys.ts";

/** Flags of mount(2): the guest has neither devices nor other users' rights from it. */
const readOnly = 1;
const nosuid = 2;
const nodev = 4;

/** The word of the kernel's command line that a machine with shares has. */
export const hasShares = (commandLine: string): boolean =>
  /(?:^|\s)podnet\.shares(?=\s|$)/.test(commandLine);

/**
 * MOUNTSHARE. A share that is mounted there already stays, and is not touched: whoever looks at one
 * that nothing serves any more waits for ever.
 */
export function mountShare(payload: Uint8Array): Reply {
  const { tag, path, writable = false } = parseMountShare(payload);
  if (isMounted(readText("/proc/self/mounts") ?? "", tag, path)) return done;
  makeDirectories(path);
  try {
    sys.mount(tag, path, "virtiofs", (writable ? 0 : readOnly) | nosuid | nodev, "");
  } catch (thrown) {
    if (failedWith(thrown, "ENODEV"))
      throw new PodnetError("UNSUPPORTED", "The guest's kernel has no module virtiofs", {
        field: "shares",
      });
    throw thrown;
  }
  return done;
}

/** By the text of /proc/self/mounts, where blanks and backslashes of paths are octal. */
export function isMounted(mounts: string, tag: string, path: string): boolean {
  const shown = path.replaceAll(
    /[ \t\n\\#]/g,
    (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, "0")}`,
  );
  return `\n${mounts}`.includes(`\n${tag} ${shown} virtiofs `);
}
