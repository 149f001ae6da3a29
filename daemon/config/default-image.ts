import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Architecture } from "../../hypervisor/architecture.ts";

/**
 * Where the default image of an architecture lies: below build/ of a checkout, and where a package
 * puts it.
 */
const images = {
  x86_64: { built: "image", packaged: "/usr/share/podnet", kernel: "vmlinux" },
  arm64: { built: "image-arm64", packaged: "/usr/share/podnet/arm64", kernel: "Image" },
} as const;

/** Kernel and initramfs of pods without their own: the checkout's when it has built them. */
export function defaultImage(
  checkout: string,
  arch: Architecture,
): Readonly<Record<"image.kernel" | "image.initrd", string>> {
  const { built, packaged, kernel } = images[arch];
  const own = join(checkout, "build", built);
  const directory = existsSync(join(own, "manifest.json")) ? own : packaged;
  return {
    "image.kernel": join(directory, kernel),
    "image.initrd": join(directory, "initramfs.gz"),
  };
}
