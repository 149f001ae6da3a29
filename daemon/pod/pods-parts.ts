import type { Log } from "../../linux/log.ts";
import type { Config } from "../config/config.ts";
import type { Journal } from "../journal.ts";
import type { Metrics } from "../metrics.ts";
import type { Database } from "../store/database.ts";
import type { Addresses } from "./addresses.ts";
import type { KnownNetworks } from "./gather-networks.ts";
import type { Host } from "./host.ts";
import type { KeptPlans } from "./kept-plans.ts";
import type { PodRecords } from "./records.ts";

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
