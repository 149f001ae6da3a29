import * as wire from "../../../api/gen/podnet/v1/node_service_pb.ts";
import type { ServiceParts } from "../context.ts";
import { healthChecks } from "./health-checks.ts";
import { overlaysReady } from "./overlay-checks.ts";

/** `/healthz`: nothing has failed. `/readyz`: and pods can be made. */
export type HealthPage = "healthz" | "readyz";

export interface HealthAnswer {
  readonly ok: boolean;
  /** A line for each thing that was looked at. */
  readonly text: string;
}

const words: ReadonlyMap<wire.HealthCheck_Status, string> = new Map([
  [wire.HealthCheck_Status.OK, "ok"],
  [wire.HealthCheck_Status.WARNING, "warning"],
  [wire.HealthCheck_Status.FAILED, "failed"],
]);

/** Longest that looking may take, milliseconds. */
const lookMs = 10_000;

/** Health pages for programs that monitor podnetd. */
export async function healthPage(parts: ServiceParts, page: HealthPage): Promise<HealthAnswer> {
  const checks = await healthChecks(parts, AbortSignal.timeout(lookMs));
  const healthy = checks.every(({ status }) => status !== wire.HealthCheck_Status.FAILED);
  const ok = healthy && (page === "healthz" || overlaysReady(parts.overlays));
  const lines = checks.map(
    ({ name, status, message }) => `${words.get(status) ?? ""} ${name}: ${message}\n`,
  );
  return { ok, text: lines.join("") };
}
