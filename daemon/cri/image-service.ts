import { readdirSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { systemClock } from "../../core/clock.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { credentialOf } from "../images/call-credential.ts";
import type { StoredImageRow } from "../images/images.ts";
import { type ImageService, ImageSchema, type ImageSpec } from "./gen/cri_pb.ts";
import { requireHandler } from "./sandbox-spec.ts";
import { nanoseconds } from "./sandbox-views.ts";

/** podnet's store of images as kubelet sees it. */
export function imageService(parts: ServiceParts): ServiceImpl<typeof ImageService> {
  const { images, imageJobs, config } = parts;
  const find = (spec: ImageSpec | undefined): StoredImageRow | undefined => {
    try {
      return images.findImage(referenceOf(spec));
    } catch (thrown) {
      if (isPodnetError(thrown) && thrown.code === "IMAGE_NOT_FOUND") return undefined;
      throw thrown;
    }
  };
  return {
    listImages({ filter }) {
      if ((filter?.image?.image ?? "") === "") return { images: images.list().map(imageView) };
      const found = find(filter?.image);
      return { images: found === undefined ? [] : [imageView(found)] };
    },

    imageStatus({ image }) {
      const found = find(image);
      return found === undefined ? {} : { image: imageView(found) };
    },

    async pullImage({ image, auth }, context) {
      const reference = referenceOf(image);
      requireHandler(image?.runtimeHandler ?? "", "image.runtime_handler");
      const credential = credentialOf(auth, reference, config.images.registries[0]);
      note(parts, context, `pull image ${printable(reference)}`);
      const options = { policy: "always", mayPullFromAll: true, credential } as const;
      const pulled = await imageJobs.pull(reference, options, () => {}, context.signal);
      return { imageRef: pulled.digest };
    },

    removeImage({ image }, context) {
      const found = find(image);
      if (found === undefined) return {};
      note(parts, context, `remove image ${found.digest}`);
      images.remove(found.digest);
      return {};
    },

    imageFsInfo() {
      const used = images.list().reduce((sum, { bytes }) => sum + BigInt(bytes), 0n);
      const timestamp = nanoseconds(systemClock.now());
      const { directory } = config.images;
      return {
        imageFilesystems: [
          {
            timestamp,
            fsId: { mountpoint: directory },
            usedBytes: { value: used },
            inodesUsed: { value: BigInt(readdirSync(directory).length) },
          },
        ],
        // What containers write would be in the memory of their machine.
        containerFilesystems: [],
      };
    },
  };
}

function referenceOf(spec: ImageSpec | undefined): string {
  if (spec !== undefined && spec.image !== "") return spec.image;
  throw new PodnetError("INVALID_ARGUMENT", "No image is named", {
    field: "image.image",
    hint: "Give a name, such as registry.example.org/app:1, or a digest",
  });
}

/** An image; without a user in it, root runs it, which kubelet has to know (runAsNonRoot). */
function imageView({ digest, names, bytes, config }: StoredImageRow) {
  const [user = ""] = config.user.split(":");
  const isNumber = /^\d+$/.test(user);
  return create(ImageSchema, {
    id: digest,
    repoTags: names.filter((name) => !name.includes("@")),
    repoDigests: names.filter((name) => name.includes("@")),
    size: BigInt(bytes),
    ...(user === "" || isNumber ? { uid: { value: BigInt(user === "" ? 0 : user) } } : {}),
    username: isNumber ? "" : user,
    spec: { image: names[0] ?? digest },
  });
}
