import type { HandlerContext } from "@connectrpc/connect";
import type { Attachments } from "../containers/attachments.ts";
import type { Installation } from "../containers/cni/installation.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { Pods } from "../pods/pods.ts";
import type { PodRecords } from "../pods/store/records.ts";
import type { Addresses } from "../ipam/addresses.ts";
import type { DriftWatch } from "../drift/drift.ts";
import type { Host } from "../pods/lifecycle/host.ts";
import type { Resolvers } from "../dns/resolvers.ts";
import type { Config } from "../config/config.ts";
import type { Journal } from "../events/journal.ts";
import type { HostRecords } from "../overlays/records/host-records.ts";
import type { OverlayControl } from "../overlays/view.ts";
import type { ImageJobs } from "../images/image-jobs.ts";
import type { Images } from "../images/images.ts";
import type { Networks } from "../networks/networks.ts";
import type { Denials } from "../policies/denials.ts";
import type { Learning } from "../policies/learning.ts";
import type { Policies } from "../policies/policies.ts";
import type { Services } from "../services/services.ts";
import type { Verdicts } from "../policies/verdicts.ts";
import type { Log, LogThreshold } from "../../linux/log.ts";
import type { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Database } from "../store/database.ts";
import { type DamagedPod, isDamaged } from "../pods/store/pod-rows.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { peerKey } from "../listeners/peer.ts";
import { damagedView, podView } from "./views.ts";

/** The QEMU of this host, as far as the API shows it. */
interface QemuOfHost {
  /** Why no machine can start on this host, now; undefined where QEMU is installed. */
  missing(): PodnetError | undefined;
  /** QEMU's own version, such as `7.2.22`; empty where QEMU is not installed. */
  version(): Promise<string>;
}

/** The parts that the services use. */
export interface ServiceParts {
  readonly config: Config;
  readonly db: Database;
  readonly pods: Pods;
  readonly records: PodRecords;
  readonly addresses: Addresses;
  readonly journal: Journal;
  readonly host: Host;
  readonly network: HostNetwork;
  /** For counters: reading them does not wait for changes of the host. */
  readonly netlink: Pick<Rtnetlink, "answers" | "routesTo">;
  readonly networks: Networks;
  readonly policies: Policies;
  readonly services: Services;
  readonly denials: Pick<Denials, "list">;
  readonly verdicts: Pick<Verdicts, "last" | "watch">;
  readonly learning: Pick<Learning, "learn">;
  readonly images: Images;
  readonly imageJobs: ImageJobs;
  readonly attachments: Attachments;
  readonly installation: Installation;
  readonly qemu: QemuOfHost;
  readonly resolvers: Pick<Resolvers, "error" | "domain">;
  readonly log: Log;
  /** Of all logs of podnetd. */
  readonly logLevel: LogThreshold;
  /** Absent when the host is configured to be in none. */
  readonly overlays?: OverlayControl;
  /** Pods reported by other hosts. Absent as the overlays are. */
  readonly hostRecords?: Pick<HostRecords, "remote" | "staleMs" | "withdraw">;
  /** Absent without drift detection. */
  readonly drift?: Pick<DriftWatch, "rest">;
  readonly startedMs: number;
  /** Ends the daemon; what is under way still gets its answer. */
  end(): void;
}

/** Who asked for what, for the log. */
export function note(
  { log }: Pick<ServiceParts, "log">,
  context: Pick<HandlerContext, "values">,
  what: string,
): void {
  log.info({ caller: context.values.get(peerKey) }, what.trim());
}

/** As above, for a pod whose record may be damaged. */
export const viewAnyPod = (row: PodRow | DamagedPod, parts: ServiceParts): Pod =>
  isDamaged(row) ? damagedView(row) : viewPod(row, parts);

/** A pod as the API shows it now. */
export function viewPod(row: PodRow, { records, pods, host }: ServiceParts): Pod {
  return podView(row, {
    run: records.run(row.id),
    live: pods.live(row.id),
    process: records.processes.get(row.id),
    expiresMs: records.expiries.of(row.id),
    nowMs: host.clock.now(),
    networks: host.networks.list(),
    accelerators: host.driver.capabilities().accelerators,
  });
}
