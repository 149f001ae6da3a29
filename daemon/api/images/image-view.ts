import { create } from "@bufbuild/protobuf";
import * as wire from "../../../api/gen/podnet/v1/image_service_pb.ts";
import type { StoredImageRow } from "../../images/images.ts";
import { time } from "../views.ts";

/** An image as the API shows it. */
export const imageView = ({
  digest,
  names,
  type,
  bytes,
  createdMs,
  usedMs,
  config,
}: StoredImageRow): wire.Image =>
  create(wire.ImageSchema, {
    digest,
    names: [...names],
    type,
    bytes: BigInt(bytes),
    createdAt: time(createdMs),
    usedAt: time(usedMs),
    diskFormat: config.diskFormat ?? "",
    ...(type === "disk"
      ? {}
      : {
          config: {
            architecture: config.architecture,
            directory: config.directory,
            user: config.user,
            stopSignal: config.stopSignal,
            labels: config.labels,
            entrypoint: [...config.entrypoint],
            command: [...config.command],
            environment: [...config.environment],
            exposedPorts: [...config.exposedPorts],
          },
        }),
  });
