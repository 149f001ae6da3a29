import { create } from "@bufbuild/protobuf";
import * as wire from "../../../api/gen/podnet/v1/node_service_pb.ts";
import type { OverlayControl, OverlayView } from "../../overlays/view.ts";

const { OK, WARNING, FAILED } = wire.HealthCheck_Status;

/** How this host fares in each of its overlays. */
export const overlayChecks = (overlays: OverlayControl | undefined): wire.HealthCheck[] =>
  overlays === undefined ? [] : [...overlays.list().map(overlayCheck), ...commonCheck(overlays)];

/**
 * Whether pods can be made on the networks of all overlays, except for overlays that this host was
 * ordered to leave.
 */
export const overlaysReady = (overlays: OverlayControl | undefined): boolean =>
  (overlays?.list() ?? []).every(({ phase, subnets }) => phase === "left" || subnets.length > 0);

/** The problem that all overlays have in common; empty without one. */
function commonCheck({ troubles }: OverlayControl): wire.HealthCheck[] {
  if (troubles.length === 0) return [];
  const message = troubles.join("; ");
  return [
    create(wire.HealthCheckSchema, { name: "overlays", status: WARNING, message, hint: see }),
  ];
}

function overlayCheck(view: OverlayView): wire.HealthCheck {
  const [status, message, hint = ""] = judge(view);
  return create(wire.HealthCheckSchema, {
    name: `overlay ${view.name}`,
    status,
    message,
    hint,
  });
}

type Judgement = readonly [status: wire.HealthCheck_Status, message: string, hint?: string];

const see = "See more: podnet overlay list";

function judge(view: OverlayView): Judgement {
  const { phase, subnets, networks, backend, peers, staleMs, manager, troubles } = view;
  const part = [subnets, networks]
    .flatMap((cidrs) => (cidrs.length === 0 ? [] : [cidrs.join(" and ")]))
    .join(" of ");
  const why = troubles.length === 0 ? "" : `: ${troubles.join("; ")}`;
  if (phase === "left") return [OK, "left on request", "Take part again: podnet overlay join"];
  if (phase === "lost")
    return [FAILED, `the lease of ${part} is lost${why}`, `Pods keep their addresses. ${see}`];
  if (staleMs !== undefined) {
    const none = subnets.length === 0 ? ", and there is no subnet yet" : "";
    return [
      WARNING,
      `stale: ${manager} has not been heard for ${Math.round(staleMs / 1000)} s${none}${why}`,
      `Bring ${manager} back, or put right what it says: pods go on meanwhile, and hosts that come or move are not heard of`,
    ];
  }
  if (phase === "waiting" || phase === "acquiring")
    return [WARNING, `there is no lease yet${why}`, see];
  if (phase === "draining")
    return [WARNING, `${part} is given up when the last pod on it is gone${why}`, see];
  if (why !== "") return [WARNING, `${part} by ${backend}${why}`, see];
  return [OK, `${part} by ${backend}, with ${peers} other ${peers === 1 ? "host" : "hosts"}`];
}
