import type { DescMethod } from "@bufbuild/protobuf";
import { ImageService } from "./gen/podnet/v1/image_service_pb.ts";
import { PodService } from "./gen/podnet/v1/pod_service_pb.ts";
import { ServiceService } from "./gen/podnet/v1/service_service_pb.ts";

/** What one message of a request may have. */
export interface RequestLimits {
  /** Its length. */
  readonly bytes: number;
  /** Its fields, entries of lists and maps, and what they hold, all counted. */
  readonly values: number;
}

/** Room for 64 labels of the longest values, in whatever way JSON writes them. */
const usual: RequestLimits = { bytes: 256 << 10, values: 1024 };
/**
 * Room for a pod with the most of everything that it may have, and for what is typed or piped into
 * it.
 */
const large: RequestLimits = { bytes: 1 << 20, values: 4096 };

/** Room for a service with the most backends that it may have. */
const longList: RequestLimits = { bytes: 1 << 20, values: 8192 };

/** Kubernetes' runtime interface, where annotations of a pod may have 256 KiB, and hyperd's. */
const foreign: readonly string[] = ["runtime.v1", "types"];

const byMethod: ReadonlyMap<DescMethod, RequestLimits> = new Map<DescMethod, RequestLimits>([
  [ServiceService.method.create, longList],
  [ServiceService.method.update, longList],
  ...[
    ...(
      ["create", "createStream", "attach", "update", "exec", "startExec", "openConsole"] as const
    ).map((name) => PodService.method[name]),
    ImageService.method.import,
  ].map((method) => [method, large] as const),
]);

/** How large a message of a request to this method may be. */
export const limitsOf = (method: DescMethod): RequestLimits =>
  byMethod.get(method) ?? (foreign.includes(method.parent.file.proto.package) ? large : usual);
