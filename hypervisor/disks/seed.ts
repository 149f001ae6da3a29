import { writeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { openMemfd } from "../../linux/files/memfd.ts";
import type { SeedPlan } from "../driver.ts";
import { iso9660 } from "./iso9660.ts";

/**
 * Makes a seed disk in memory, where other programs cannot find its content; answers a descriptor
 * for reading it.
 */
export function openSeed({ volume, files }: SeedPlan): Disposable & { readonly fd: number } {
  const image = iso9660(volume, files);
  using file = openMemfd("seed", image.length);
  perform("file", "write seed", () => {
    for (let at = 0; at < image.length; )
      at += writeSync(file.fd, image, at, image.length - at, at);
  });
  file.seal();
  return file.openReader();
}
