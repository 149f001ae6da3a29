import type { DescMethod } from "@bufbuild/protobuf";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { CniService } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../api/gen/podnet/v1/policy_service_pb.ts";
import type { Podnet } from "../../api/client.ts";

/**
 * The calls that the page makes to look, and those that it makes with `--allow-changes`. It has no
 * other: what it does not show, a page that was broken into cannot ask for.
 */
const looks = {
  pods: [PodService, ["watch", "stats", "console"], ["start", "stop", "pause", "resume"]],
  networks: [NetworkService, ["list"], []],
  overlays: [OverlayService, ["listNodes"], []],
  cni: [CniService, ["list"], []],
  policies: [PolicyService, ["list", "tail"], []],
  node: [NodeService, ["info", "health", "diff", "listPools"], []],
} as const;

export interface Call {
  readonly method: DescMethod;
  readonly changes: boolean;
  /** Makes the call: a promise of the answer, or the answers one after the other. */
  readonly make: (podnet: Podnet, request: unknown, signal: AbortSignal) => unknown;
}

type AnyClient = Readonly<
  Record<string, (request: unknown, options: { signal: AbortSignal }) => unknown>
>;

/** The calls of the page by their path: `/podnet.v1.PodService/List`. */
export const calls: ReadonlyMap<string, Call> = new Map(
  Object.entries(looks).flatMap(([name, [service, reading, changing]]) =>
    [...reading, ...changing].map((local): [string, Call] => {
      const method = (service.method as Readonly<Record<string, DescMethod>>)[local];
      if (method === undefined) throw new RangeError(`${service.typeName} has no ${local}`);
      return [
        `/${service.typeName}/${method.name}`,
        {
          method,
          changes: !(reading as readonly string[]).includes(local),
          make: (podnet, request, signal) =>
            (podnet as unknown as Readonly<Record<string, AnyClient>>)[name]?.[local]?.(request, {
              signal,
            }),
        },
      ];
    }),
  ),
);
