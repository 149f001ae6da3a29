import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, globSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const top = resolve(import.meta.dirname, "../..");
const applets = "sh cat echo id env sleep seq stty yes head pwd ps ls grep true false".split(" ");

/**
 * Makes a squashfs of busybox with a few users and groups, and a file that is no program:
 * `/bin/plain`. Answers its path. `change` has the last word about its files.
 */
export function busyboxImage(
  directory: string,
  name = "busybox",
  change: (root: string) => void = () => {},
): string {
  const image = join(directory, `${name}.squashfs`);
  const root = join(directory, name);
  const [busybox] = globSync("build/cache/image/busybox-static-*/bin/busybox", { cwd: top });
  if (busybox === undefined) throw new Error("No busybox: run scripts/build-image");
  for (const path of ["bin", "etc", "srv", "tmp"]) mkdirSync(join(root, path), { recursive: true });
  cpSync(join(top, busybox), join(root, "bin/busybox"));
  for (const applet of applets) symlinkSync("busybox", join(root, "bin", applet));
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:1000:100::/srv:\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\nusers:x:100:\nlogs:x:44:web,other\n");
  writeFileSync(join(root, "bin/plain"), "no program\n");
  chmodSync(join(root, "bin/plain"), 0o644);
  change(root);
  execFileSync("mksquashfs", [root, image, "-comp", "lz4", "-quiet", "-no-progress"]);
  return image;
}
