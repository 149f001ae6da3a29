import type { PortSpec } from "../../api/pod-spec.ts";
import type { Ip } from "../../core/address.ts";

/** Published ports as decided: `hostPort` is never 0. */
export interface PublishedPlan extends PortSpec {
  /** The addresses of the host, each with the pod's address that it leads to. */
  readonly at: readonly PublishedAt[];
}

export interface PublishedAt {
  /** `0.0.0.0` and `::` stand for every address of a family. */
  readonly hostIp: Ip;
  readonly podIp: Ip;
}
