import type { PodSpec } from "../../../api/pod-spec.ts";
import { checkForm } from "../../../api/validate/disks.ts";
import { refuseClone } from "../../../api/validate/guest.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { type FoundImage, onImage } from "../process/plan-process.ts";

/**
 * Refuses what a pod of this image cannot have. Pure. Throws `INVALID_ARGUMENT`, `UNSUPPORTED`.
 */
export function refuseForImage(spec: PodSpec, image: FoundImage): void {
  const { boot } = spec;
  const name = printable(boot.image ?? "");
  if (image.type === "root") {
    const what = boot.agent !== undefined ? "agent" : "cloud_init";
    if (boot.agent === undefined && boot.cloudInit === undefined) return;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `The image "${name}" starts on podnet's kernel with podnet's agent`,
      { field: `boot.${what}`, hint: `Leave ${what} out: it is for images that are disks` },
    );
  }
  const field =
    boot.layer !== undefined
      ? "boot.layer"
      : spec.process !== undefined
        ? "process"
        : spec.restart !== undefined
          ? "restart"
          : undefined;
  if (field !== undefined)
    throw new PodnetError(
      "UNSUPPORTED",
      `The image "${name}" is a disk: its own system starts its programs, and keeps what they write`,
      {
        field,
        hint: `Leave it out: podnet create --image ${name} boots the disk. Programs run by podnet run need an image of a container`,
      },
    );
  const asked = onImage(spec, image).boot;
  checkForm(asked);
  refuseClone(asked);
}
