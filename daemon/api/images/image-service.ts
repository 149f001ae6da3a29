import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type * as wire from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { validateCredential } from "../../../api/validate/credential.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { hasLabel } from "../../images/has-label.ts";
import { pullPolicies } from "../../images/image-jobs.ts";
import { note, type ServiceParts } from "../context.ts";
import { isAdmin, streamImport } from "./import-stream.ts";
import { imageView } from "./image-view.ts";
import { progressStream } from "./progress-stream.ts";

/** The image service: what pods start from. */
export function imageService(parts: ServiceParts): ServiceImpl<typeof wire.ImageService> {
  const { images } = parts;
  return {
    pull({ reference, policy, credential: given }, context) {
      const chosen = pullPolicies.find((each) => each === (policy || "missing"));
      if (chosen === undefined)
        throw new PodnetError("INVALID_ARGUMENT", `"${printable(policy)}" is no pull policy`, {
          field: "policy",
          hint: `Write ${pullPolicies.join(", ")}`,
        });
      note(parts, context, `pull image ${printable(reference)}`);
      const credential = given === undefined ? undefined : validateCredential(given);
      const options = { policy: chosen, mayPullFromAll: isAdmin(context), credential };
      return progressStream(
        (report, signal) => parts.imageJobs.pull(reference, options, report, signal),
        context.signal,
      );
    },

    import: (requests, context) => streamImport(requests, parts, context),

    list({ name, labels, dangling }) {
      const found = images
        .list()
        .filter(({ names }) => name === "" || names.some((each) => each.includes(name)))
        .filter(({ names }) => !dangling || names.length === 0)
        .filter(({ config }) => labels.every((label) => hasLabel(config.labels, label)));
      return { images: found.map(imageView).toSorted(byName) };
    },

    get: ({ reference }) => ({ image: imageView(images.findImage(reference)) }),

    tag({ reference, name }, context) {
      note(parts, context, `tag image ${printable(reference)} ${printable(name)}`);
      return { image: imageView(images.tag(reference, name)) };
    },

    untag({ name }, context) {
      note(parts, context, `untag image ${printable(name)}`);
      return { existed: images.untag(name) };
    },

    remove({ reference }, context) {
      note(parts, context, `remove image ${printable(reference)}`);
      return { image: imageView(images.remove(reference)) };
    },

    prune({ all, until, planOnly }, context) {
      if (!planOnly) note(parts, context, "prune images");
      const untilMs = until === undefined ? undefined : timestampMs(until);
      return { images: images.prune({ all, untilMs }, planOnly).map(imageView) };
    },
  };
}

/** Images without a name come last. */
const byName = (a: wire.Image, b: wire.Image): number =>
  Number(a.names.length === 0) - Number(b.names.length === 0) ||
  (a.names[0] ?? a.digest).localeCompare(b.names[0] ?? b.digest, "en");
