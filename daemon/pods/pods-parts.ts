import type { Log } from "../../linux/log.ts";
import type { Config } from "../config/config.ts";
import type { Journal } from "../events/journal.ts";
import type { Metrics } from "../main/metrics.ts";
import type { Database } from "../store/database.ts";
import type { Addresses } from "../ipam/addresses.ts";
import type { KnownNetworks } from "./plan/gather-networks.ts";
import type { Host } from "./lifecycle/host.ts";
import type { KeptPlans } from "./store/kept-plans.ts";
import type { PodRecords } from "./store/records.ts";

/** What pods are made with and of. */
export interface PodsParts {
  readonly db: Database;
  readonly config: Config;
  readonly host: Host;
  readonly records: PodRecords;
  readonly kept: KeptPlans;
  readonly addresses: Addresses;
  readonly networks: KnownNetworks;
  readonly journal: Journal;
  readonly log: Log;
  readonly metrics: Metrics;
}
