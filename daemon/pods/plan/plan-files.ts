import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { notAllowed } from "../../../hypervisor/disks/allowed-files.ts";
import type { FileSnapshot, Snapshot } from "./snapshot.ts";

/** The refusal of a file that a machine cannot use. */
export function refuseFile(
  file: Exclude<FileSnapshot, { readonly kind: "file" }>,
  path: string,
  field: string,
  what: string,
  { imagesWithin, defaultImage }: Snapshot,
): PodnetError {
  if (file.kind === "outside") return notAllowed({ path, field }, imagesWithin ?? []);
  if (file.kind === "missing") {
    const byDefault = path === defaultImage.kernel || path === defaultImage.initrd;
    return new PodnetError("IMAGE_MISSING", `There is no ${what} "${printable(path)}"`, {
      field,
      hint: byDefault
        ? "Build the default image (scripts/build-image) or set image.kernel and image.initrd"
        : "Give the absolute path of a file on podnetd's host",
      details: { path },
    });
  }
  return new PodnetError(
    "IMAGE_UNREADABLE",
    `The ${what} "${printable(path)}" cannot be read: ${file.why}`,
    { field, hint: "Check its kind and permissions", details: { path } },
  );
}
