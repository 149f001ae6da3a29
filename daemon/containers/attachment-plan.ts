import type { Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { AttachmentFragment, LaterChanges } from "../../network/containers/desired.ts";
import { laterText } from "../../network/containers/later.ts";
import type { BootMoment } from "../../linux/boot-moment.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import type { AttachmentId } from "../store/holder.ts";

/** Version of the stored form. A reader refuses what it does not know. */
export const attachmentPlanVersion = 1;

/**
 * Everything a container's attachment will be, decided before anything happens. Plain JSON, stored
 * with its row; undo and recovery work from it alone.
 */
export interface AttachmentPlan {
  readonly version: typeof attachmentPlanVersion;
  readonly id: AttachmentId;
  readonly containerId: string;
  readonly ifName: string;
  /** The name of the runtime's network configuration. */
  readonly config: string;
  readonly network: NetworkName;
  readonly netns: string;
  readonly mac: Mac;
  readonly mtu: number;
  /** The runtime asked for no MTU, so the MTU follows the network's. Absent: the MTU stays. */
  readonly mtuOfNetwork?: true;
  readonly addresses: readonly IpPrefix[];
  /** At most one of each family that the container has addresses of. */
  readonly gateways: readonly Ip[];
  /** The container's part of the host. */
  readonly fragment: AttachmentFragment;
  readonly published?: readonly PublishedPlan[];
  /**
   * The runtime holds the host ports that are published; absent: podnetd holds them with sockets.
   */
  readonly portsHeldByRuntime?: true;
  /**
   * podnetd's own loopback ports that the runtime's are redirected to (`fragment.loopback`); absent
   * where there are none.
   */
  readonly forwarders?: readonly PublishedPlan[];
  readonly dns: AttachmentDns;
  /**
   * When the plan was claimed, unaffected by changes of the clock; absent in plans of earlier
   * podnetds.
   */
  readonly claimed?: BootMoment;
  /** The DNS names that the runtime gives the container on this network; absent: none. */
  readonly names?: readonly string[];
  /** The container's pod, if the runtime names it: `namespace/name`. */
  readonly pod?: string;
}

/** Which one it is, for people. */
export const containerText = ({
  containerId,
  ifName,
  network,
  pod,
}: Pick<AttachmentPlan, "containerId" | "ifName" | "network" | "pod">): string =>
  `container ${containerId}${pod === undefined ? "" : ` of ${pod}`}, ${ifName} on ${network}`;

/**
 * The host ports that podnetd is to listen at: where the runtime holds those that are published,
 * its own that they lead to.
 */
export const portsToHold = ({
  published,
  portsHeldByRuntime,
  forwarders,
}: Pick<
  AttachmentPlan,
  "published" | "portsHeldByRuntime" | "forwarders"
>): AttachmentPlan["published"] => (portsHeldByRuntime === true ? forwarders : published);

/** A plan with its namespace's identity: another one by the same path is not its own. */
export const inNamespace = (plan: AttachmentPlan, namespace: string | undefined): AttachmentPlan =>
  namespace === undefined ? plan : { ...plan, fragment: { ...plan.fragment, namespace } };

/**
 * The plan of a container whose ADD is answered now: plugins after podnet's in the list are yet to
 * run.
 */
export const settlingPlan = (plan: AttachmentPlan): AttachmentPlan =>
  plan.fragment.madeByCaller === true
    ? plan
    : { ...plan, fragment: { ...plan.fragment, settling: true } };

/**
 * The plan of a container whose list is done. Without `later`, later plugins changed nothing
 * inside.
 */
export function settledPlan(plan: AttachmentPlan, later?: LaterChanges): AttachmentPlan {
  const { settling: _done, ...fragment } = plan.fragment;
  const isAny = later !== undefined && laterText(later) !== undefined;
  return { ...plan, fragment: isAny ? { ...fragment, later } : fragment };
}

/** The container's name servers, as the runtime gets them in ADD's result. */
export interface AttachmentDns {
  readonly nameservers: readonly string[];
  readonly domain?: string;
  readonly search: readonly string[];
  readonly options: readonly string[];
}
