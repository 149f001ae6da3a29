import { randomBytes } from "node:crypto";
import { systemClock } from "../../core/clock.ts";
import { bootId } from "../../linux/processes/proc.ts";
import type { Log } from "../../linux/log.ts";
import { Overlays } from "../../network/overlay/overlays.ts";
import type { Config } from "../config/config.ts";
import { reportDrift, type Reporting } from "../drift/report.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Networks } from "../networks/networks.ts";
import type { Database } from "../store/database.ts";
import { knowsOverlays } from "./store.ts";
import { sweepMs } from "./kernel/leftovers.ts";
import { OverlayHosts } from "./overlay-hosts.ts";

/** The parts that overlays are opened with. */
export interface OverlaysParts extends Pick<Reporting, "journal"> {
  readonly network: HostNetwork;
  readonly networks: Networks;
  readonly metrics: Reporting["metrics"] & { followOverlays(overlays: OverlayHosts): void };
}

/**
 * Starts taking part in the configured overlays. Without any, removes what former ones left, and
 * returns undefined.
 */
export async function openOverlays(
  config: Config,
  db: Database,
  { network, networks, journal, metrics }: OverlaysParts,
  log: Log,
): Promise<OverlayHosts | undefined> {
  const rules = network.overlayRules;
  if (config.overlay === undefined) {
    if (!knowsOverlays(db)) return undefined;
    await using overlays = new Overlays(rules);
    await overlays.sweep([], AbortSignal.timeout(sweepMs));
    return undefined;
  }
  const overlays = await OverlayHosts.open({
    config,
    settings: config.overlay,
    rules,
    networks,
    db,
    clock: systemClock,
    bootId: bootId(),
    log,
    randomBytes,
    onHealed: (name, found, pauseMs) =>
      reportDrift(
        { part: { kind: "overlay", key: `overlay ${name}`, name }, found, pauseMs },
        { journal, log, metrics },
      ),
  });
  metrics.followOverlays(overlays);
  return overlays;
}
