import type { PortSpec } from "../../api/pod-spec.ts";
import type { Ip } from "../../core/address.ts";

/** Published ports as decided: `hostPort` is never 0. */
export interface PublishedPlan extends PortSpec {
  /** Where who asks at which address of the host is led. */
  readonly at: readonly PublishedAt[];
}

export interface PublishedAt {
  /** `0.0.0.0` and `::` stand for every address of a family. */
  readonly hostIp: Ip;
  readonly podIp: Ip;
}
