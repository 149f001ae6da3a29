import { makeDirectories } from "../files.ts";
import { SysError, sys } from "../sys.ts";

/** Flags of mount(2). */
const readOnly = 1;
const nodev = 4;
const move = 8192;

/** Directories of the initramfs, which nothing sees once the root is another. */
const image = "/podnet/image";
const writes = "/podnet/writes";
const root = "/podnet/root";

/** Mounts that go with the agent; `/tmp` is the image's own. */
const kept = ["/proc", "/sys", "/dev", "/run"] as const;

/**
 * The disk that the kernel's command line names as the root, `podnet.root=vda`; undefined without
 * it. The kernel takes a word with a dot for a module's and leaves it alone.
 */
export function rootDisk(commandLine: string): string | undefined {
  const [, disk] = /(?:^|\s)podnet\.root=([a-z0-9]+)(?=\s|$)/.exec(commandLine) ?? [];
  return disk;
}

/** The disk for what is written to the root, `podnet.layer=vdb`; undefined: memory. */
export function layerDisk(commandLine: string): string | undefined {
  const [, disk] = /(?:^|\s)podnet\.layer=([a-z0-9]+)(?=\s|$)/.exec(commandLine) ?? [];
  return disk;
}

/**
 * Makes the squashfs on a disk the root of the agent and of all it starts. What is written goes to
 * the ext4 on the disk `layer`; without one to memory, at most half of the machine's, and ends with
 * it. False when the disks cannot be the root: the reason is on the console.
 */
export function enterRootOf(disk: string, layer: string | undefined): boolean {
  try {
    for (const path of [image, writes, root]) makeDirectories(path);
    sys.mount(`/dev/${disk}`, image, "squashfs", readOnly | nodev, "");
    if (layer === undefined) sys.mount("podnet", writes, "tmpfs", nodev, "mode=0755,size=50%");
    else sys.mount(`/dev/${layer}`, writes, "ext4", nodev, "");
    for (const path of ["upper", "work"]) makeDirectories(`${writes}/${path}`);
    const layers = `lowerdir=${image},upperdir=${writes}/upper,workdir=${writes}/work`;
    sys.mount("podnet", root, "overlay", 0, layers);
    for (const path of kept) {
      makeDirectories(`${root}${path}`);
      sys.mount(path, `${root}${path}`, "", move, "");
    }
    sys.enterRoot(root);
    return true;
  } catch (thrown) {
    if (!(thrown instanceof SysError)) throw thrown;
    const above = layer === undefined ? "" : `, with layer "${layer}"`;
    sys.log(`The disk "${disk}" cannot be the root${above}: ${thrown.message}`);
    return false;
  }
}
