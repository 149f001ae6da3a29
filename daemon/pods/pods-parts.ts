import type { Log } from "../../linux/log.ts";
import type { Config } from "../config/config.ts";
import type { Journal } from "../events/journal.ts";
import type { Span } from "../events/span.ts";
import type { Database } from "../store/database.ts";
import type { Addresses } from "../ipam/addresses.ts";
import type { KnownNetworks } from "../networks/known-networks.ts";
import type { Host } from "./lifecycle/host.ts";
import type { KeptPlans } from "./store/kept-plans.ts";
import type { FoundImage } from "./process/plan-process.ts";
import type { PodRecords } from "./store/records.ts";

/** The metrics of pods, in Prometheus' terms. */
interface PodMetrics {
  /** A step of bringing a pod up has ended. */
  step(span: Span): void;
  /** A create or start has ended, with `OK` or its error code. */
  created(code: string): void;
  /** Counts what a guest did beyond its limit of `what`. */
  guestDropped(what: string): void;
  /** Counts bytes of a console that were overwritten. */
  consoleOverwritten(bytes: number): void;
}

/** The parts of podnetd that pods need. */
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
  readonly metrics: PodMetrics;
  /** The images that pods are made of. */
  readonly images?: ImageStore;
}

/** The store of images, as far as pods need it. */
interface ImageStore {
  /** Throws `IMAGE_NOT_FOUND`, `INVALID_ARGUMENT`. */
  findImage(reference: string): FoundImage;
}
